"""What came out in the cells of a grid, and what defences give and cost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedrelay.runs.log import Summary
from fedrelay.studies.attack_grid.crossing import NOBODY, NOTHING, Crossing, Place
from fedrelay.studies.compared import headline
from fedrelay.tasks import Headline
from fedrelay.visits.attacks.backdoor import BACKDOOR_SUCCESS

BROKE_OFF, FAILED = "broke off: ", "failed: "
"""How the reason of a run begins whose models diverged, and of one that could not go on for another cause, such as a
lost worker. A refused one has neither."""


@dataclass(frozen=True)
class Cell:
    """A method under an attack with a defence, seed by seed."""

    values: tuple[float, ...] = ()
    lost: tuple[float, ...] = ()
    """Of what the same seed has if nobody attacks and nothing is done about it."""
    success: tuple[float, ...] = ()
    """How often a backdoor opens, where there is one."""
    why: str = ""
    """Why there is no result, or why a run broke off."""

    @property
    def value(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None


@dataclass(frozen=True)
class Worth:
    """What a defence gives and costs."""

    defence: str
    lost: Mapping[str, float | None]
    """By who attacks, the mean over all attacks; None if some cell has no result."""
    worst: Mapping[str, tuple[str, float]]
    """The attack that takes most, and how much that is."""
    cost: tuple[float, ...]
    """What is lost if nobody attacks, seed by seed."""
    bytes: float | None
    """How many times as much is sent as without it, if nobody attacks."""


@dataclass(frozen=True)
class Cells:
    """All cells that have run, or were refused: of every seed what came out, or why nothing did."""

    grid: Crossing
    found: Mapping[Place, tuple[Summary | str, ...]]

    @property
    def failed(self) -> dict[Place, str]:
        """Where something went wrong that no attack explains, and what."""
        failed: dict[Place, str] = {}
        for place, found in self.found.items():
            wrong = (FAILED, BROKE_OFF) if place[1] == NOBODY else (FAILED,)
            reasons = [one for one in found if isinstance(one, str) and one.startswith(wrong)]
            failed |= {place: reasons[0]} if reasons else {}
        return failed

    @cached_property
    def by(self) -> Headline:
        """What the runs are judged by."""
        return headline([one for place in self.found for one in self.summaries(place)])

    @property
    def seeds(self) -> int:
        return max(map(len, self.found.values()), default=0)

    def summaries(self, place: Place) -> list[Summary]:
        return [one for one in self.found[place] if isinstance(one, Summary)]

    def cell(self, place: Place) -> Cell | None:
        """None if the method has no such defence."""
        if place not in self.found:
            return None
        reasons = [one for one in self.found[place] if isinstance(one, str)]
        refused = next((why for why in reasons if not why.startswith(BROKE_OFF)), "")
        values = [self._value(place, one) for one in self.found[place]]
        if refused or any(value is None for value in values):
            return Cell(why=refused or next(iter(reasons), "there was no test"))
        kept = tuple(value for value in values if value is not None)
        opened = (one.attacked.get(BACKDOOR_SUCCESS) for one in self.summaries(place))
        success = tuple(one for one in opened if one is not None)
        return Cell(kept, self._lost(place[0], kept), success, next(iter(reasons), ""))

    def _value(self, place: Place, one: Summary | str) -> float | None:
        """What a run came to; of one that broke off under attack nothing is left, where that can be said."""
        if isinstance(one, Summary):
            return one.mean
        return 0.0 if place[1] != NOBODY and self.by.share and self.by.higher_is_better else None

    def _lost(self, method: str, values: Sequence[float]) -> tuple[float, ...]:
        honest = [one.mean for one in self.summaries((method, NOBODY, NOTHING))]
        known = [one for one in honest if one is not None]
        if len(known) != len(values):
            return ()
        return tuple(self.by.merit(one) - self.by.merit(other) for one, other in zip(known, values, strict=True))

    def attacks_by(self, who: str) -> list[str]:
        """The attacks that so many clients make."""
        return [attack for attack in self.grid.attacks if self.grid.who.get(attack) == who]

    @property
    def spread(self) -> float | None:
        """The median over cells of the deviation over seeds of what is lost; None with one seed."""
        cells = [self.cell(place) for place in self.found]
        several = [statistics.stdev(cell.lost) for cell in cells if cell is not None and len(cell.lost) > 1]
        return statistics.median(several) if several else None

    def worth(self, method: str) -> list[Worth]:
        """Of every defence that this method has."""
        mine = [defence for defence in self.grid.defences if (method, NOBODY, defence) in self.found]
        return [self._worth(method, defence) for defence in mine]

    def _worth(self, method: str, defence: str) -> Worth:
        lost: dict[str, float | None] = {}
        worst: dict[str, tuple[str, float]] = {}
        for who in dict.fromkeys(self.grid.who.values()):
            attacks = self.attacks_by(who)
            cells = {attack: self.cell((method, attack, defence)) for attack in attacks}
            means = {attack: statistics.fmean(cell.lost) for attack, cell in cells.items() if cell and cell.lost}
            lost[who] = statistics.fmean(means.values()) if means and len(means) == len(attacks) else None
            if means:
                most = max(means, key=means.__getitem__)
                worst[who] = most, means[most]
        quiet = self.cell((method, NOBODY, defence))
        return Worth(
            defence,
            lost,
            worst,
            quiet.lost if quiet is not None else (),
            self._bytes(method, defence),
        )

    def _bytes(self, method: str, defence: str) -> float | None:
        """How many times as much is sent with a defence as without, if nobody attacks."""
        one, other = (self.summaries((method, NOBODY, name)) for name in (defence, NOTHING))
        if not one or len(one) != len(other):
            return None
        return sum(run.bytes["total"] for run in one) / sum(run.bytes["total"] for run in other)
