"""What is there of one panel of an item: its runs, or the figures of another study, done or still under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedrelay.report.figures import Figure
from fedrelay.runs.folder import Run

Figures = Mapping[str, float | None]
"""Of one seed, which `seed` says where the study has several."""


@dataclass(frozen=True)
class Reading:
    """One measure of one seed: its value, or beyond which number it lies where that is all that is known."""

    value: float | None = None
    beyond: float | None = None
    """What was never reached was not reached within so many rounds (bytes, seconds)."""
    seed: float = 0


@dataclass(frozen=True)
class Finished:
    """What a panel has come to, by the names of rows; every seed has its place."""

    runs: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    figures: Mapping[str, tuple[Figures, ...]] = field(default_factory=dict)
    pictures: tuple[Figure, ...] = ()
    """What the study itself draws."""

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys((*self.runs, *self.figures)))


def by_run(found: Finished, row: str, of: Callable[[Run], Reading]) -> list[Reading]:
    """One reading for every run of a row, with its seed; a run that says none has its place among them."""
    return [replace(of(run), seed=run.config.get("seed", n)) for n, run in enumerate(found.runs.get(row, ()))]


def by_seed(several: Sequence[Sequence[Reading]]) -> list[tuple[Reading, ...]]:
    """The readings of every seed that all of these have: a seed that is still to come elsewhere is no partner."""
    tables = [{reading.seed: reading for reading in readings} for readings in several]
    shared = [seed for seed in tables[0] if all(seed in table for table in tables)]
    return [tuple(table[seed] for table in tables) for seed in shared]
