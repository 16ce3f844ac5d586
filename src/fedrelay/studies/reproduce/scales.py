"""The experiment of a panel at a scale: the paper's own, what differs in the panel, and what is smaller.

One table goes over another as a run of a comparison goes over its file: a section that names something else keeps what
that knows too, and inside a section a table that names something else replaces the old one whole.
"""

from __future__ import annotations

from typing import Any

from fedrelay.studies.overrides import merged
from fedrelay.studies.reproduce.item import Item, Scale


def scale_of(item: Item, name: str) -> Scale:
    """What differs at this scale; nothing at that of the paper."""
    return item.scales.get(name, Scale())


def panels_of(item: Item, scale: str) -> list[str]:
    """The panels that this scale has."""
    chosen = scale_of(item, scale).panels
    return [panel for panel in item.panels if chosen is None or panel in chosen]


def tables_of(item: Item, scale: str, panel: str) -> dict[str, Any]:
    """All that the study of this panel is asked for, with the rows that the scale has."""
    tables = whole_tables(item, scale, panel)
    for rows in (scale_of(item, scale).rows, item.rows):
        if rows is not None:
            tables = item.kind.chosen(tables, [row for row in item.kind.rows(tables) if item.called(row) in rows])
    return tables


def whole_tables(item: Item, scale: str, panel: str) -> dict[str, Any]:
    """The same with all rows."""
    at, tables = scale_of(item, scale), dict(item.experiment)
    for change in (item.panels[panel], at.change, at.change_in.get(panel, {})):
        tables, _ = merged(tables, change)
    return tables


def rows_of(item: Item, scale: str, panel: str) -> list[str]:
    """The rows of this panel at this scale, as we call them; a study that does all at once shows only these."""
    tables = tables_of(item, scale, panel)
    chosen = [rows for rows in (scale_of(item, scale).rows, item.rows) if rows is not None]
    return [
        row
        for row in item.kind.rows(tables)
        if row == tables.get("reference") or all(item.called(row) in rows for rows in chosen)
    ]
