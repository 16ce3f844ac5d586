"""The columns of papers' tables: from what a panel has come to, one reading for every seed of a row.

Readings are taken from the rounds themselves, so a run that is still under way has those that it can have.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from fedrelay.errors import BadInput, within
from fedrelay.report import measures as of_run
from fedrelay.runs.folder import Run
from fedrelay.runs.summary import Evaluate, rounds_to, tests_of
from fedrelay.studies.reproduce.cost_measures import Estimated, Messages
from fedrelay.studies.reproduce.finished import Figures, Finished, Reading, by_run, by_seed
from fedrelay.studies.reproduce.round_measures import ARound, AtRound, InPool, Jump, OverClients
from fedrelay.tasks import METRICS, Headline

NEVER = Reading()


class Measure(Protocol):
    """One column: a reading for every seed of a row; nothing of a row that is not there."""

    def __call__(self, found: Finished, row: str, /) -> list[Reading]: ...


def judged_by(run: Run, metric: str | None) -> Headline:
    """The metric that is asked for, or what the run is judged by."""
    if metric is None:
        return of_run.headline_of(run)
    if metric not in METRICS:
        return Headline(metric, higher_is_better=False, share=False)
    known = METRICS[metric]()
    return Headline(metric, known.higher_is_better, known.share)


def evaluated(run: Run) -> Mapping[str, Any]:
    """What the run's configuration says of its tests."""
    section = run.config.get("evaluate")
    return section if isinstance(section, dict) else {}


# --- how good


@dataclass(frozen=True)
class MeanOfLast:
    """The mean of the last tests: of so many `tests`, or of those in the last `rounds` rounds; without either, of as
    many as the run's own summary takes."""

    metric: str | None = None
    tests: int | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        if self.tests is not None and self.rounds is not None:
            raise BadInput("say tests or rounds, not both")
        within("tests", 1 if self.tests is None else self.tests, least=1)
        within("rounds", 1 if self.rounds is None else self.rounds, least=1)

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return by_run(found, row, self.of)

    def of(self, run: Run) -> Reading:
        return Reading(self.which(run).mean(run.rounds, judged_by(run, self.metric).name))

    def which(self, run: Run) -> Evaluate:
        """Which tests count."""
        if self.tests is not None:
            return Evaluate(last=self.tests)
        if self.rounds is not None:
            return Evaluate(last_rounds=self.rounds)
        section = evaluated(run)
        last, rounds = section.get("last", Evaluate.last), section.get("last_rounds")
        return Evaluate(last=int(last), last_rounds=rounds if isinstance(rounds, int) else None)


@dataclass(frozen=True)
class OneTest:
    """The best test, or the last one."""

    which: Literal["best", "final"] = "best"
    metric: str | None = None

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return by_run(found, row, self.of)

    def of(self, run: Run) -> Reading:
        by = judged_by(run, self.metric)
        values = tests_of(run.rounds, by.name)
        return Reading(by.best(values) if self.which == "best" else next(reversed(values), None))


@dataclass(frozen=True)
class LossRise:
    """How far the test loss at the end, the mean of the last `tests`, is above the least of any test: what overfits
    rises (FedGSP 2022, Fig. 3c)."""

    tests: int = 5

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return by_run(found, row, self.of)

    def of(self, run: Run) -> Reading:
        values = tests_of(run.rounds, "loss")
        return Reading(statistics.fmean(values[-self.tests :]) - min(values) if values else None)


# --- what it took


def reached(run: Run, share: float, smooth: int | None) -> int | None:
    """The round in which this share of the run's target was reached."""
    section = evaluated(run)
    target = section.get("target")
    if not isinstance(target, int | float):
        return None
    by = of_run.headline_of(run)
    return rounds_to(run.rounds, by.goal(target, share), smooth or int(section.get("smooth", Evaluate.smooth)), by)


@dataclass(frozen=True)
class To:
    """Rounds, bytes or simulated seconds until this share of the target, smoothed over `smooth` rounds."""

    share: float
    what: Literal["rounds", "bytes", "seconds"] = "rounds"
    smooth: int | None = None

    def __post_init__(self) -> None:
        within("share", self.share, above=0)

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return by_run(found, row, self.of)

    def of(self, run: Run) -> Reading:
        spent = self.spent(run)
        if not spent:
            return NEVER
        round = reached(run, self.share, self.smooth)
        return Reading(beyond=spent[-1]) if round is None else Reading(spent[round - 1])

    def spent(self, run: Run) -> list[float]:
        """Since the start, after every round."""
        if self.what == "rounds":
            return [float(log.round) for log in run.rounds]
        return list(map(float, of_run.traffic(run))) if self.what == "bytes" else of_run.clock(run)


@dataclass(frozen=True)
class SpeedUp:
    """How many times fewer rounds (bytes, seconds) than the run `against` it took to the share, seed by seed."""

    share: float
    against: str
    what: Literal["rounds", "bytes", "seconds"] = "rounds"
    smooth: int | None = None

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        to = To(self.share, self.what, self.smooth)
        both = by_seed([to(found, row), to(found, self.against)])
        return [Reading(ratio(other.value, own.value), seed=own.seed) for own, other in both]


def ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


# --- what was done and sent


@dataclass(frozen=True)
class Spent:
    """Of a whole run: what its rounds add up to."""

    what: Literal["messages", "bytes", "seconds", "simulated", "examples", "rounds", "parallelism"]

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return by_run(found, row, lambda run: Reading(self.of(run)))

    def of(self, run: Run) -> float | None:
        if not run.rounds:
            return None
        if self.what == "messages" or self.what == "bytes":
            return of_run.total(run, self.what)
        if self.what == "simulated":
            return next(reversed(of_run.clock(run)), None)
        plain = {"seconds": of_run.seconds, "examples": of_run.examples, "parallelism": of_run.groups}
        return float(len(run.rounds)) if self.what == "rounds" else plain[self.what](run)


# --- of other studies


def figures_by_seed(found: Finished, row: str) -> dict[float, Figures]:
    """The figures of a row; those that say no seed have their place among them."""
    own = [(one.get("seed"), one) for one in found.figures.get(row, ())]
    return {n if seed is None else seed: one for n, (seed, one) in enumerate(own)}


@dataclass(frozen=True)
class OfStudy:
    """A figure that the study itself has found, by its name in there."""

    figure: str

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return [Reading(one.get(self.figure), seed=seed) for seed, one in figures_by_seed(found, row).items()]


@dataclass(frozen=True)
class Slope:
    """How much a figure of the study has changed since the row before that has it, by how much another one has."""

    figure: str
    along: str

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        rows = [name for name, seeds in found.figures.items() if all(self.figure in one for one in seeds)]
        if row not in rows:
            return []
        place = rows.index(row)
        before = figures_by_seed(found, rows[place - 1]) if place else {}
        own = figures_by_seed(found, row)
        return [Reading(self.of(before.get(seed, {}), one), seed=seed) for seed, one in own.items()]

    def of(self, before: Figures, after: Figures) -> float | None:
        changes = [difference(before.get(key), after.get(key)) for key in (self.figure, self.along)]
        return ratio(*changes)


def difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else other - one


def best(metric: str | None = None) -> OneTest:
    """The best test."""
    return OneTest("best", metric)


def final(metric: str | None = None) -> OneTest:
    """The last test."""
    return OneTest("final", metric)


def loss(rounds: int | None = None, tests: int | None = None) -> MeanOfLast:
    """The mean test loss at the end."""
    return MeanOfLast("loss", tests, rounds)


def rounds_until(share: float, smooth: int | None = None) -> To:
    """Rounds until this share of the target."""
    return To(share, "rounds", smooth)


def traffic_until(share: float, smooth: int | None = None) -> To:
    """Bytes until this share of the target."""
    return To(share, "bytes", smooth)


def time_until(share: float, smooth: int | None = None) -> To:
    """Simulated seconds until this share of the target."""
    return To(share, "seconds", smooth)


def balance() -> OfStudy:
    """Examples of the rarest class by those of the commonest one in a group."""
    return OfStudy("balance_ratio")


def covered() -> OfStudy:
    """The share of the classes that a group has."""
    return OfStudy("covered_classes")


def cpd() -> OfStudy:
    """The median distance of the class mixes of two groups."""
    return OfStudy("cpd")


MEASURES: dict[str, Callable[..., Measure]] = {
    "accuracy": MeanOfLast,
    "best": best,
    "final": final,
    "loss": loss,
    "loss_rise": LossRise,
    "rounds_to": rounds_until,
    "traffic_to": traffic_until,
    "time_to": time_until,
    "speed_up": SpeedUp,
    "spent": Spent,
    "messages": Messages,
    "estimate": Estimated,
    "balance": balance,
    "covered": covered,
    "cpd": cpd,
    "figure": OfStudy,
    "slope": Slope,
    "at_round": AtRound,
    "over_clients": OverClients,
    "jump": Jump,
    "a_round": ARound,
    "pool": InPool,
}
"""By the name that a column says."""
