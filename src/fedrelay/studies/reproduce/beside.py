"""What came out beside what the paper prints: differences, the spread over seeds, and what became of the claims."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fedrelay.runs.folder import Run
from fedrelay.studies.reproduce import scales
from fedrelay.studies.reproduce.finished import Finished, Reading, by_seed
from fedrelay.studies.reproduce.item import Claim, Column, Item, Place, Printed
from fedrelay.studies.reproduce.relative import other_rows, stays
from fedrelay.studies.reproduce.study import seeds_of

Verdict = Literal["held", "not held", "not tried"]
FIRST = ("highest", "lowest")
"""Claims that the first of several is ahead of all others."""
TIMES = 2.0
"""Two numbers differ if they are further apart than so many times their spread."""


@dataclass(frozen=True)
class Cell:
    """One measure of one row: ours over seeds, and the paper's, in the unit of the column."""

    ours: float | None = None
    deviation: float | None = None
    seeds: int = 0
    beyond: float | None = None
    """Where it was not reached (by all seeds): within so many."""
    paper: float | None = None
    paper_deviation: float | None = None
    never: bool = False
    """The paper says that it was never reached."""
    open: bool = False
    """Rounds or seeds that are still to come may change ours: no claim is judged by it."""

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    @property
    def spread(self) -> float | None:
        """What two numbers may differ by; None where no deviation is known."""
        known = [one for one in (self.deviation, self.paper_deviation) if one is not None]
        return TIMES * math.hypot(*known) if known else None

    @property
    def apart(self) -> bool | None:
        """Whether the two differ by more than the spread; None where that cannot be said."""
        if self.never and self.ours is not None:
            return True
        if self.difference is None or self.spread is None:
            return None
        return abs(self.difference) > self.spread


@dataclass(frozen=True)
class Line:
    """One row of a panel, by the paper's name."""

    name: str
    cells: Mapping[str, Cell]
    rounds: tuple[int, ...] = ()
    """How far every seed has come, where the row is a run."""
    planned: int | None = None
    """Rounds of every seed."""
    seeds: int | None = None
    """How many there are to be."""


@dataclass(frozen=True)
class Part:
    """A panel beside the paper's."""

    name: str
    lines: tuple[Line, ...]

    def cell(self, row: str, column: str) -> Cell | None:
        return next((line.cells.get(column) for line in self.lines if line.name == row), None)


@dataclass(frozen=True)
class Judged:
    """A claim, what became of it, and the numbers that say so."""

    text: str
    column: str
    verdict: Verdict
    places: tuple[Place, ...]
    ours: tuple[str, ...]
    paper: tuple[str, ...]
    unsure: bool = False
    """Whether the order is within the spread over seeds."""


def over_seeds(readings: Sequence[Reading], factor: float, printed: Printed | None, *, ended: bool = True) -> Cell:
    """The readings of a row in the column's unit, beside what is printed; `ended` if none of them will change."""
    values = [reading.value * factor for reading in readings if reading.value is not None]
    short = [reading.beyond * factor for reading in readings if reading.beyond is not None]
    whole = bool(values) and len(values) == len(readings)
    return Cell(
        ours=statistics.fmean(values) if whole else None,
        deviation=statistics.stdev(values) if whole and len(values) > 1 else None,
        seeds=len(values),
        beyond=min(short, default=None) if not whole else None,
        paper=None if printed is None else printed.value,
        paper_deviation=None if printed is None else printed.deviation,
        never=printed is not None and printed.value is None,
        open=not ended and bool(values or short),
    )


def parts_of(item: Item, scale: str, found: Mapping[str, Finished]) -> list[Part]:
    """Every panel that the scale has, beside the paper's; then those that are means of them."""
    has = scales.panels_of(item, scale)
    made = [part_of(item, scale, panel, found.get(panel, Finished())) for panel in has]
    for name, panels in item.means.items():
        several = {panel: found.get(panel, Finished()) for panel in panels if panel in has}
        made.append(mean_part(item, scale, name, several))
    return [part for part in made if part.lines]


def part_of(item: Item, scale: str, panel: str, found: Finished) -> Part:
    lines, seeds = [], len(seeds_of(scales.tables_of(item, scale, panel)))
    for row in scales.rows_of(item, scale, panel):
        name, runs, cells = item.called(row), found.runs.get(row, ()), {}
        for column in item.columns:
            readings, ended = column.measure(found, row), has_ended(found, row, column, seeds)
            cells[column.name] = over_seeds(readings, column.factor, printed(item, panel, name, column), ended=ended)
        lines.append(
            Line(name, cells, tuple(len(run.rounds) for run in runs), rounds_of(runs), seeds if runs else None)
        )
    return Part(panel, tuple(line for line in lines if any(cell != Cell() for cell in line.cells.values())))


def rounds_of(runs: Iterable[Run]) -> int | None:
    """How many rounds these runs are to have."""
    return next((value for run in runs if isinstance(value := run.config.get("rounds"), int)), None)


def has_ended(found: Finished, row: str, column: Column, seeds: int) -> bool:
    """Whether what a column says of a row is what it will say at the end."""
    if stays(column.measure):
        readings = column.measure(found, row)
        if len(readings) == seeds and all(reading.value is not None for reading in readings):
            return True
    return all(is_whole(found, one, seeds) for one in (row, *other_rows(column.measure).values()))


def is_whole(found: Finished, row: str, seeds: int) -> bool:
    """Whether a row has all its seeds, each with all its rounds; figures without a seed are of all of them."""
    runs, figures = found.runs.get(row, ()), found.figures.get(row, ())
    planned = rounds_of(runs)
    if runs and (len(runs) < seeds or any(planned is not None and len(run.rounds) < planned for run in runs)):
        return False
    return len(figures) >= seeds or not any("seed" in one for one in figures)


def mean_part(item: Item, scale: str, name: str, found: Mapping[str, Finished]) -> Part:
    """A panel that is the mean of others, seed by seed."""
    lines, seeds = [], {panel: len(seeds_of(scales.tables_of(item, scale, panel))) for panel in found}
    for row in dict.fromkeys(row for one in found.values() for row in one.rows):
        cells = {}
        for column in item.columns:
            means = [mean_of(readings) for readings in by_seed([column.measure(one, row) for one in found.values()])]
            ended = all(has_ended(one, row, column, seeds[panel]) for panel, one in found.items())
            beside = printed(item, name, item.called(row), column)
            cells[column.name] = over_seeds(means, column.factor, beside, ended=ended)
        lines.append(Line(item.called(row), cells))
    return Part(name, tuple(line for line in lines if any(cell != Cell() for cell in line.cells.values())))


def mean_of(readings: Iterable[Reading]) -> Reading:
    values = [reading.value for reading in readings]
    known = [value for value in values if value is not None]
    return Reading(statistics.fmean(known)) if known and len(known) == len(values) else Reading()


def printed(item: Item, panel: str, row: str, column: Column) -> Printed | None:
    return item.printed.get(panel, {}).get(row, {}).get(column.name)


# --- claims


def judged(item: Item, scale: str, parts: Sequence[Part]) -> list[Judged]:
    """What became of every claim; a smoke run says nothing of them."""
    units = {column.name: column for column in item.columns}
    found = []
    for claim in item.claims:
        column = units[claim.column]
        cells = [cell_at(item, place, column, parts) for place in claim.places]
        verdict = "not tried" if scale == "smoke" else verdict_of(claim, cells)
        found.append(
            Judged(
                claim.text,
                claim.column,
                verdict,
                claim.places,
                tuple(ours_text(cell, column.unit, column.digits) for cell in cells),
                tuple(paper_text(cell, column.unit, column.digits) for cell in cells),
                verdict != "not tried" and unsure(claim, cells),
            )
        )
    return found


def cell_at(item: Item, place: Place, column: Column, parts: Sequence[Part]) -> Cell:
    """What a claim speaks of; where nothing was run, the paper's number alone."""
    part = next((part for part in parts if part.name == place.panel), None)
    found = None if part is None else part.cell(place.row, column.name)
    return found or over_seeds((), column.factor, printed(item, place.panel, place.row, column))


def verdict_of(claim: Claim, cells: Sequence[Cell]) -> Verdict:
    """Held if all that it says is so, not held if some of it is not, else not tried; what may change says nothing."""
    cells = [Cell() if cell.open else cell for cell in cells]
    if claim.order in ("least", "most"):
        said = [bounded(cell, bound, claim.order) for cell, bound in zip(cells, claim.bounds, strict=True)]
    elif claim.order == "close":
        values = [cell.ours for cell in cells if cell.ours is not None]
        said = [max(values) - min(values) <= claim.within if len(values) == len(cells) else None]
    else:
        said = [ahead(*pair, claim.by) for pair in pairs_of(claim, cells)]
    if any(one is False for one in said):
        return "not held"
    return "held" if said and all(said) else "not tried"


def pairs_of(claim: Claim, cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """What is said to be less, and than what: one after another, or all others beside the first."""
    pairs = [(cells[0], other) for other in cells[1:]] if claim.order in FIRST else list(pairwise(cells))
    return pairs if claim.order in ("rising", "lowest") else [pair[::-1] for pair in pairs]


def ahead(one: Cell, other: Cell, by: float) -> bool | None:
    """Whether one value is below the other, by more than so much."""
    said = below(one, other)
    if not said or not by:
        return said
    return None if one.ours is None or other.ours is None else other.ours - one.ours > by


def below(one: Cell, other: Cell) -> bool | None:
    """Whether one value is below the other; what was not reached within some number lies beyond it."""
    if one.ours is not None and other.ours is not None:
        return one.ours < other.ours
    if one.ours is not None and other.beyond is not None:
        return True if one.ours <= other.beyond else None
    if one.beyond is not None and other.ours is not None:
        return False if other.ours <= one.beyond else None
    return None


def bounded(cell: Cell, bound: float, order: str) -> bool | None:
    if cell.ours is not None:
        return cell.ours >= bound if order == "least" else cell.ours <= bound
    if cell.beyond is not None and cell.beyond >= bound:
        return order == "least"
    return None


def unsure(claim: Claim, cells: Sequence[Cell]) -> bool:
    """Whether an order that is held, or not, is within the spread over seeds."""
    if claim.order not in ("rising", "falling", *FIRST):
        return False
    for one, other in pairs_of(claim, cells):
        known = [cell.deviation for cell in (one, other) if cell.deviation is not None]
        if one.ours is None or other.ours is None or not known:
            continue
        if abs(one.ours - other.ours) <= TIMES * math.hypot(*known):
            return True
    return False


# --- in words


WITH_NUMBERS = ("%", "x")
"""Units that are written after every number; others stand above the column."""


def number_text(value: float, unit: str, digits: int | None) -> str:
    """A number of a column; without a unit, whole ones as they are and others with three figures."""
    if digits is None:
        digits = 2 if unit in WITH_NUMBERS else None
    if digits is not None:
        written = f"{value:.{digits}f}"
    else:
        written = f"{value:.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.3g}"
    return f"{written} {unit}" if unit == "%" else f"{written}{unit}" if unit == "x" else written


def ours_text(cell: Cell, unit: str, digits: int | None) -> str:
    """Ours with its deviation; what was not reached says within how many."""
    if cell.ours is None:
        return "–" if cell.beyond is None else f"not in {number_text(cell.beyond, unit, digits)}"
    apart = "" if cell.deviation is None else f" ± {number_text(cell.deviation, unit, digits)}"
    return number_text(cell.ours, unit, digits) + apart


def paper_text(cell: Cell, unit: str, digits: int | None) -> str:
    """The paper's with its deviation."""
    if cell.paper is None:
        return "never" if cell.never else "–"
    apart = "" if cell.paper_deviation is None else f" ± {number_text(cell.paper_deviation, unit, digits)}"
    return number_text(cell.paper, unit, digits) + apart
