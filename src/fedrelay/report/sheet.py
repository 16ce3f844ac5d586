"""A plain page: one table and pictures, self-contained like the report of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedrelay.report.figures import Figure
from fedrelay.report.rendering import rendered


@dataclass(frozen=True)
class Column:
    """One measure of every row, as text; `best` are the rows that lead."""

    title: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


def sheet(
    title: str,
    headline: str,
    notes: Sequence[str],
    rows: Sequence[str],
    columns: Sequence[Column],
    figures: Sequence[Figure],
    *,
    what: str,
    pictures_first: bool = False,
) -> str:
    """The page; names and notes are text, whatever they contain. `what` is what the rows are."""
    return rendered(
        "sheet.html",
        figures,
        title=title,
        headline=headline,
        notes=notes,
        what=what,
        pictures_first=pictures_first,
        marked=any(column.best for column in columns),
        rows=rows,
        columns=columns,
        figures=figures,
    )
