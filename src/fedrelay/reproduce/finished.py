"""What is there of one panel of an item: its runs, or the figures of another study, done or still under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedrelay.report.figures import Figure
from fedrelay.runs.folder import Run

Figures = Mapping[str, float | None]


@dataclass(frozen=True)
class Reading:
    """One measure of one seed: its value, or beyond which number it lies where that is all that is known."""

    value: float | None = None
    beyond: float | None = None
    """What was never reached was not reached within so many rounds (bytes, seconds)."""


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
