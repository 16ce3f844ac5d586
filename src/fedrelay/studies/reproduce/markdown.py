"""What an item has come to as a document: a table a panel, ours beside the paper's, and the claims."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.reproduce.beside import TIMES, Cell, Judged, Line, Part, number_text, ours_text, paper_text
from fedrelay.studies.reproduce.outcome import Head, Outcome

MARK = "≠"
"""After a difference that is more than the spread."""


def document(outcome: Outcome) -> str:
    """The whole of it."""
    title = f"# {outcome.where}: {outcome.title}" if not outcome.paper else f"# {outcome.paper}, {outcome.where}"
    lines = [
        title,
        *([f"{outcome.title}."] if outcome.paper else []),
        f"```\n{outcome.command}\n```",
        *remarks(outcome),
    ]
    for part in outcome.parts:
        lines += [f"## {part.name}"] if part.name else []
        lines += [table(part, outcome.columns)]
    lines += ["## What the paper concludes", claims(outcome)] if outcome.claims else []
    lines += ["## Notes", "\n".join(f"- {note}" for note in outcome.notes)] if outcome.notes else []
    return "\n\n".join(lines) + "\n"


def remarks(outcome: Outcome) -> list[str]:
    """What to know before the tables are read, as paragraphs."""
    first, *others = remarks_of(outcome)
    return [first, "\n".join(f"- {text}" for text in others)] if others else [first]


def remarks_of(outcome: Outcome) -> list[str]:
    """The size and the spread, then what is not there and why."""
    if outcome.scale == "paper":
        size = "The paper's own size."
    else:
        size = f"Scale {outcome.scale}: {outcome.why}. Other sizes than the paper's are expected to differ from it."
    apart = f"{MARK} marks a difference of more than {TIMES:g} times the spread (deviations over seeds)"
    spread = f"{apart}." if has_spread(outcome) else "One seed has no spread, so no difference is called one."
    return [f"{size} {spread}", *outcome.left_out, *outcome.failed, *unfinished(outcome)]


def has_spread(outcome: Outcome) -> bool:
    return any(cell.spread is not None for part in outcome.parts for line in part.lines for cell in line.cells.values())


def unfinished(outcome: Outcome) -> list[str]:
    """Runs that are not at their end."""
    return [
        f"{f'{part.name}, ' if part.name else ''}{line.name}: {how_far(line)}"
        for part in outcome.parts
        for line in part.lines
        if line.planned is not None and (len(line.rounds) < (line.seeds or 0) or min(line.rounds) < line.planned)
    ]


def how_far(line: Line) -> str:
    """Such as: 200 of 600 rounds, 1 of 3 seeds."""
    seeds = f", {len(line.rounds)} of {line.seeds} seeds" if len(line.rounds) < (line.seeds or 0) else ""
    return f"{', '.join(map(str, line.rounds))} of {line.planned} rounds{seeds}"


def table(part: Part, columns: Sequence[Head]) -> str:
    """One panel: for every column ours, the paper's and how far they are apart, where the paper has it."""
    heads, shown = ["row"], []
    for column in columns:
        printed = is_printed(part, column)
        shown.append((column, printed))
        heads += [column.title, *(["paper", "difference"] if printed else [])]
    rows = []
    for line in part.lines:
        row = [line.name]
        for column, printed in shown:
            cell = line.cells.get(column.name, Cell())
            row.append(ours_text(cell, column.unit, column.digits))
            row += [paper_text(cell, column.unit, column.digits), difference(cell, column)] if printed else []
        rows.append(row)
    return markdown_table(heads, rows, words=1)


def is_printed(part: Part, column: Head) -> bool:
    """Whether the paper has numbers of this column in this panel."""
    cells = [line.cells.get(column.name, Cell()) for line in part.lines]
    return any(cell.paper is not None or cell.never for cell in cells)


def difference(cell: Cell, column: Head) -> str:
    """How far ours is from the paper's, with its sign."""
    if cell.difference is None:
        return MARK if cell.apart else ""
    sign = "+" if cell.difference >= 0 else "−"
    text = number_text(abs(cell.difference), column.unit, column.digits)
    return f"{sign}{text}{f' {MARK}' if cell.apart else ''}"


def claims(outcome: Outcome) -> str:
    """One line a claim."""
    return markdown_table(list(CLAIM), [claim_cells(claim) for claim in outcome.claims])


CLAIM = ("claim", "here", "of", "ours", "the paper's")
"""What a line of a claim has."""


def claim_cells(claim: Judged) -> list[str]:
    """What is claimed, what became of it, and the numbers in the order of the rows that it is of."""
    rows = [place_text(claim, number) for number in range(len(claim.places))]
    between = "; " if any("," in row for row in rows) else ", "
    return [
        claim.text,
        verdict_text(claim),
        f"{claim.column}: {between.join(rows)}",
        numbers(claim.ours),
        numbers(claim.paper),
    ]


def place_text(claim: Judged, number: int) -> str:
    """A row of a claim; with its panel where they are not all of one."""
    place = claim.places[number]
    several = len({one.panel for one in claim.places}) > 1
    return f"{place.row} ({place.panel})" if several else place.row


def verdict_text(claim: Judged) -> str:
    """What became of a claim, and whether seeds say otherwise."""
    return claim.verdict + (" (within the spread)" if claim.unsure else "")


def numbers(texts: Sequence[str]) -> str:
    """The numbers of a claim; a dash if there is none."""
    return "–" if set(texts) == {"–"} else ", ".join(texts)
