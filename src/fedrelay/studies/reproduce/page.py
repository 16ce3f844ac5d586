"""The page of an item: self-contained, like the report of runs; ours beside the paper's, claims and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedrelay.report.figures import Figure
from fedrelay.report.rendering import rendered
from fedrelay.studies.reproduce import markdown
from fedrelay.studies.reproduce.beside import Cell, Part, ours_text, paper_text
from fedrelay.studies.reproduce.outcome import Head, Outcome


@dataclass(frozen=True)
class Shown:
    """One cell of the page as text."""

    ours: str
    paper: str
    difference: str
    apart: bool


@dataclass(frozen=True)
class Sheet:
    """One panel of the page: `printed` says for every column whether the paper has it."""

    name: str
    printed: tuple[bool, ...]
    rows: tuple[tuple[str, tuple[Shown, ...]], ...]


def html(outcome: Outcome, figures: Sequence[Figure]) -> str:
    """The whole page; names and notes are text, whatever they contain."""
    return rendered(
        "item.html",
        figures,
        package="fedrelay.studies.reproduce",
        outcome=outcome,
        told=told(outcome),
        remarks=markdown.remarks_of(outcome),
        claims=[markdown.claim_cells(claim) for claim in outcome.claims],
        sheets=[sheet_of(part, outcome.columns) for part in outcome.parts],
        columns=outcome.columns,
        figures=figures,
    )


def told(outcome: Outcome) -> str:
    """What became of the claims, in a sentence."""
    verdicts = [claim.verdict for claim in outcome.claims]
    if not verdicts:
        return ""
    counts = [f"{verdicts.count(one)} {one}" for one in ("held", "not held", "not tried") if one in verdicts]
    return f"Of what the paper concludes here: {', '.join(counts)}."


def sheet_of(part: Part, columns: Sequence[Head]) -> Sheet:
    """A panel as text."""
    printed = tuple(markdown.is_printed(part, column) for column in columns)
    rows = [
        (line.name, tuple(shown(line.cells.get(column.name, Cell()), column) for column in columns))
        for line in part.lines
    ]
    return Sheet(part.name, printed, tuple(rows))


def shown(cell: Cell, column: Head) -> Shown:
    return Shown(
        ours_text(cell, column.unit, column.digits),
        paper_text(cell, column.unit, column.digits),
        markdown.difference(cell, column),
        bool(cell.apart),
    )
