"""A plain page: one table and pictures, self-contained like the report of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from fedrelay.report.figures import Figure


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
    environment = Environment(
        loader=PackageLoader("fedrelay.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("sheet.html").render(
        plotly=get_plotlyjs(),
        title=title,
        headline=headline,
        notes=notes,
        what=what,
        pictures_first=pictures_first,
        marked=any(column.best for column in columns),
        rows=rows,
        columns=columns,
        figures=figures,
        specs={figure.key: figure.spec for figure in figures},
    )
