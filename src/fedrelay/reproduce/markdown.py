"""What an item has come to as a document: a table a panel, ours beside the paper's, and the claims."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.reproduce.beside import TIMES, Cell, Line, Part, number_text, ours_text, paper_text
from fedrelay.reproduce.outcome import Head, Outcome
from fedrelay.studies.markdown import markdown_table

MARK = "≠"
"""After a difference that is more than the spread."""


def document(outcome: Outcome) -> str:
    """The whole of it."""
    title = f"# {outcome.where}: {outcome.title}" if not outcome.paper else f"# {outcome.paper}, {outcome.where}"
    lines = [title, f"{outcome.title}.", f"```\n{outcome.command}\n```", *remarks(outcome)]
    for part in outcome.parts:
        lines += [f"## {part.name}"] if part.name else []
        lines += [table(part, outcome.columns)]
    lines += ["## What the paper concludes", claims(outcome)] if outcome.claims else []
    lines += ["## Notes", "\n".join(f"- {note}" for note in outcome.notes)] if outcome.notes else []
    return "\n\n".join(lines) + "\n"


def remarks(outcome: Outcome) -> list[str]:
    """What to know before the tables are read."""
    if outcome.scale == "paper":
        size = "The paper's own size."
    else:
        size = f"Scale `{outcome.scale}`: {outcome.why}. Other sizes than the paper's are expected to differ from it."
    apart = f"{MARK} marks a difference of more than {TIMES:g} times the spread (deviations over seeds)"
    spread = f"{apart}." if has_spread(outcome) else "One seed has no spread, so no difference is called one."
    said = [f"{size} {spread}"]
    said += ["\n".join(f"- {text}" for text in (*outcome.left_out, *outcome.failed, *unfinished(outcome)))]
    return [text for text in said if text]


def has_spread(outcome: Outcome) -> bool:
    return any(cell.spread is not None for part in outcome.parts for line in part.lines for cell in line.cells.values())


def unfinished(outcome: Outcome) -> list[str]:
    """Runs that are not at their end."""
    return [
        f"{f'{part.name}, ' if part.name else ''}{line.name}: {how_far(line)}"
        for part in outcome.parts
        for line in part.lines
        if line.planned is not None and any(done < line.planned for done in line.rounds)
    ]


def how_far(line: Line) -> str:
    """Such as: 200 of 600 rounds."""
    return f"{', '.join(map(str, line.rounds))} of {line.planned} rounds"


def table(part: Part, columns: Sequence[Head]) -> str:
    """One panel: for every column ours, the paper's and how far they are apart, where the paper has it."""
    heads, shown = ["row"], []
    for column in columns:
        cells = [line.cells.get(column.name, Cell()) for line in part.lines]
        printed = any(cell.paper is not None or cell.never for cell in cells)
        shown.append((column, printed))
        heads += [column.name, *(["paper", "difference"] if printed else [])]
    rows = []
    for line in part.lines:
        row = [line.name]
        for column, printed in shown:
            cell = line.cells.get(column.name, Cell())
            row.append(ours_text(cell, column.unit, column.digits))
            row += [paper_text(cell, column.unit, column.digits), difference(cell, column)] if printed else []
        rows.append(row)
    return markdown_table(heads, rows, words=1)


def difference(cell: Cell, column: Head) -> str:
    """How far ours is from the paper's, with its sign."""
    if cell.difference is None:
        return MARK if cell.apart else ""
    sign = "+" if cell.difference >= 0 else "−"
    text = number_text(abs(cell.difference), column.unit, column.digits)
    return f"{sign}{text}{f' {MARK}' if cell.apart else ''}"


def claims(outcome: Outcome) -> str:
    """One line a claim."""
    rows = [
        [
            claim.text,
            claim.verdict + (" (within the spread)" if claim.unsure else ""),
            *numbers(claim.ours, claim.paper),
        ]
        for claim in outcome.claims
    ]
    return markdown_table(["claim", "here", "ours", "the paper's"], rows)


def numbers(*several: Sequence[str]) -> list[str]:
    return [", ".join(texts) for texts in several]
