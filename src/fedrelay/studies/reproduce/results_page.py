"""The results in the documents: docs/results.md has the claims that were tried, docs/results/PAPER.md all, and tables.

`python -m fedrelay.studies.reproduce.results_page docs/results.md docs/results` renews them from the results that are
kept there (docs/results/PAPER/ITEM.json); with a folder of finished items after it (`runs/reproduce`), those are taken
over first. What a smoke run came to is never taken over: it says nothing. Kept are numbers: claims are judged anew, as
the item says them now.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.marks import filled
from fedrelay.studies.reproduce import library, markdown
from fedrelay.studies.reproduce.beside import Cell, Judged, Line, judged, over_seeds, printed
from fedrelay.studies.reproduce.item import SCALES, Column, Item, Paper
from fedrelay.studies.reproduce.outcome import Outcome, dumped, outcome_of, read

TRIED = tuple(scale for scale in reversed(SCALES) if scale != "smoke")
"""The largest scale first."""


def take_over(runs: Path, kept: Path, names: Iterable[str]) -> list[Path]:
    """Bring results of finished items to where results are kept: of several scales the largest that has any. A row that
    has come farther in what is kept of the same scale stays: a night may be too short for all rows."""
    written = []
    for name in names:
        places = (runs / name / scale / "results.json" for scale in TRIED)
        source = next((path for path in places if path.is_file() and has_numbers(read(path))), None)
        if source is not None:
            target = kept / f"{name}.json"
            target.parent.mkdir(parents=True, exist_ok=True)
            found = read(source)
            target.write_bytes(dumped(with_kept_rows(found, read(target)) if target.is_file() else found))
            written.append(target)
    return written


def with_kept_rows(found: Outcome, kept: Outcome) -> Outcome:
    """The results, with the rows of earlier ones of the same scale that came farther, or were not run this time."""
    if kept.scale != found.scale:
        return found
    before = {part.name: {line.name: line for line in part.lines} for part in kept.parts}
    parts = []
    for part in found.parts:
        earlier = before.get(part.name, {})
        here = {line.name for line in part.lines}
        lines = [farther(line, earlier.get(line.name)) for line in part.lines]
        lines += [line for name, line in earlier.items() if name not in here]
        parts.append(replace(part, lines=tuple(lines)))
    there = {part.name for part in found.parts}
    parts += [part for part in kept.parts if part.name not in there]
    return replace(found, parts=tuple(parts))


def farther(line: Line, kept: Line | None) -> Line:
    return line if kept is None or sum(line.rounds) >= sum(kept.rounds) else kept


def has_numbers(outcome: Outcome) -> bool:
    cells = (cell for part in outcome.parts for line in part.lines for cell in line.cells.values())
    return any(cell.ours is not None or cell.beyond is not None for cell in cells)


def outcome_in(kept: Path, item: Item) -> Outcome:
    """What an item has come to; one that was not run has the paper's numbers alone."""
    path = kept / f"{item.name}.json"
    return judged_anew(item, read(path)) if path.is_file() else outcome_of(item, "small", {})


def judged_anew(item: Item, outcome: Outcome) -> Outcome:
    """Our numbers as they are kept, beside the paper's, under the claims and with the notes that the item has now."""
    columns = {column.name: column for column in item.columns}
    same = [head.name for head in outcome.columns if head.name in columns and columns[head.name].unit == head.unit]
    parts = [
        replace(
            part,
            lines=tuple(with_printed(item, part.name, line, [columns[name] for name in same]) for line in part.lines),
        )
        for part in outcome.parts
    ]
    heads = tuple(head for head in outcome.columns if head.name in same)
    found = tuple(judged(item, outcome.scale, parts))
    return replace(outcome, columns=heads, parts=tuple(parts), claims=found, notes=item.notes)


def with_printed(item: Item, panel: str, line: Line, columns: Sequence[Column]) -> Line:
    """A line with these columns, and in them what the item says now that the paper prints."""
    cells = {}
    for column in columns:
        paper = over_seeds((), column.factor, printed(item, panel, line.name, column))
        kept = line.cells.get(column.name, Cell())
        cells[column.name] = replace(kept, paper=paper.paper, paper_deviation=paper.paper_deviation, never=paper.never)
    return replace(line, cells=cells)


def claims(papers: Sequence[tuple[Paper, Sequence[tuple[Item, Outcome]]]]) -> str:
    """One line for every claim that was tried, paper by paper; the others are counted."""
    parts = []
    for paper, several in papers:
        parts.append(f"### [{paper.short}](results/{paper.name}.md)\n\n{tally(several)}\n")
        table = claims_table(several, tried=True)
        parts += [f"{table}\n"] if table else []
    return "\n".join(parts)


def claims_table(several: Sequence[tuple[Item, Outcome]], *, tried: bool = False) -> str:
    """One line for every claim of these items, or for those that were tried."""
    rows = [
        [*markdown.claim_cells(claim), how_far(outcome, claim), f"`{outcome.command}`"]
        for _, outcome in several
        for claim in outcome.claims
        if not tried or claim.verdict != "not tried"
    ]
    return markdown_table([*markdown.CLAIM, "how far", "command"], rows) if rows else ""


def tally(several: Sequence[tuple[Item, Outcome]]) -> str:
    """How many claims of a paper held."""
    verdicts = [claim.verdict for _, outcome in several for claim in outcome.claims]
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in ("held", "not held", "not tried"))
    run = sum(has_numbers(outcome) for _, outcome in several)
    return f"{len(several)} tables and figures, {run} of them run; of {len(verdicts)} claims {counts}."


def how_far(outcome: Outcome, claim: Judged) -> str:
    """The scale, and how many rounds the runs of a claim have done; nothing of what was not run."""
    lines = [
        line
        for place in claim.places
        for part in outcome.parts
        if part.name == place.panel
        for line in part.lines
        if line.name == place.row and line.rounds
    ]
    if not lines:
        return outcome.scale if claim.verdict != "not tried" else ""
    done = sorted({min(line.rounds) for line in lines})
    rounds = f"{done[0]}" if len(done) == 1 else f"{done[0]} to {done[-1]}"
    return f"{outcome.scale}, {rounds} rounds"


def page_of(paper: Paper, several: Sequence[tuple[Item, Outcome]]) -> str:
    """All items of a paper: the tables of those that were run, the names of the others."""
    source = ", ".join(filter(None, (paper.authors, paper.title, str(paper.year or ""), paper.link)))
    run = [outcome for _, outcome in several if has_numbers(outcome)]
    others = [f"- `fedrelay reproduce {item.name}`: {item.where}, {item.title}" for item, o in several if o not in run]
    lines = [f"# {paper.short}", f"{source}. Back to [all results](../results.md).", *map(lowered, run)]
    lines += ["## Not run yet", "\n".join(others)] if others else []
    table = claims_table(several)
    lines += ["## All claims", table] if table else []
    return "\n\n".join(line.rstrip("\n") for line in lines) + "\n"


def lowered(outcome: Outcome) -> str:
    """An item as a section of a page: its headings one step down."""
    return re.sub(r"^#", "##", markdown.document(outcome), flags=re.MULTILINE)


def renewed(text: str, papers: Sequence[tuple[Paper, Sequence[tuple[Item, Outcome]]]]) -> str:
    """docs/results.md with its claims filled in anew."""
    return filled(text, {"claims": claims(papers)})


def gathered(kept: Path) -> list[tuple[Paper, list[tuple[Item, Outcome]]]]:
    """Every paper with its items and what they have come to."""
    items = [item for name in library.names() for item in library.wanted(name)]
    return [
        (paper, [(item, outcome_in(kept, item)) for item in items if item.paper.name == name])
        for name, paper in library.papers().items()
    ]


def main(document: Path, kept: Path, runs: Path | None = None) -> None:
    """Renew the documents."""
    if runs is not None:
        take_over(runs, kept, library.names())
    papers = gathered(kept)
    document.write_text(renewed(document.read_text(encoding="utf-8"), papers), encoding="utf-8")
    for paper, several in papers:
        (kept / f"{paper.name}.md").write_text(page_of(paper, several), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
