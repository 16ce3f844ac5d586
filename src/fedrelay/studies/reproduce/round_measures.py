"""Columns that look at single rounds: after some of them, from one to the next, who was drawn, what a pool holds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

from fedrelay.errors import within
from fedrelay.report import measures as of_run
from fedrelay.runs.folder import Run
from fedrelay.runs.log import RoundLog
from fedrelay.studies.reproduce.finished import Finished, Reading, by_run

Points = list[tuple[int, float]]
"""Rounds, each with its value."""


def each(found: Finished, row: str, of: Callable[[Run], float | None]) -> list[Reading]:
    """One reading for every run of a row."""
    return by_run(found, row, lambda run: Reading(of(run)))


def points_of(run: Run, figure: str | None) -> Points:
    """A figure over clients by its name, or what the run is judged by, in every round that has it."""
    judged = of_run.headline_of(run).name
    values = [
        (log.round, log.metrics.get(judged) if figure is None else log.over_clients.get(figure)) for log in run.rounds
    ]
    return [(round, value) for round, value in values if value is not None]


def mean_of_last(run: Run, figure: str | None, rounds: int) -> float | None:
    """The mean over what the last rounds of the run have of a figure."""
    values = [value for round, value in points_of(run, figure) if round > len(run.rounds) - rounds]
    return statistics.fmean(values) if values else None


@dataclass(frozen=True)
class AtRound:
    """What a run is judged by after this round; with `since`, how much more that is than after that one."""

    round: int
    since: int | None = None

    def __post_init__(self) -> None:
        within("round", self.round, least=1)

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return each(found, row, self.of)

    def of(self, run: Run) -> float | None:
        tested = dict(points_of(run, None))
        now, before = tested.get(self.round), 0.0 if self.since is None else tested.get(self.since)
        return None if now is None or before is None else now - before


@dataclass(frozen=True)
class OverClients:
    """A figure over all clients' own examples (`train_loss`, `test_accuracy_deviation` …), the mean over the last
    rounds (clustered sampling 2021, Figs. 1 and 2)."""

    figure: str
    rounds: int = 1

    def __post_init__(self) -> None:
        within("rounds", self.rounds, least=1)

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return each(found, row, lambda run: mean_of_last(run, self.figure, self.rounds))


@dataclass(frozen=True)
class Jump:
    """The mean difference from one test to the next: how rough the curve is."""

    figure: str | None = None

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return each(found, row, self.of)

    def of(self, run: Run) -> float | None:
        values = [value for _, value in points_of(run, self.figure)]
        steps = [abs(after - before) for before, after in pairwise(values)]
        return statistics.fmean(steps) if steps else None


@dataclass(frozen=True)
class ARound:
    """Different classes, or different clients, that a round saw: the mean over rounds, or the share of the rounds that
    saw at least so many."""

    what: Literal["classes", "distinct"]
    least: int | None = None

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return each(found, row, self.of)

    def of(self, run: Run) -> float | None:
        seen = [value for log in run.rounds if (value := seen_in(log, self.what)) is not None]
        if not seen:
            return None
        return statistics.fmean(seen if self.least is None else [value >= self.least for value in seen])


def seen_in(log: RoundLog, what: str) -> float | None:
    return log.classes if what == "classes" else log.sampling.get("distinct")


@dataclass(frozen=True)
class InPool:
    """Distances of the models in the last client's pool (FedELMY 2024, Fig. 10): the largest by the smallest
    (`range`), or their correlation with how far apart in the order of training the two models are (`trend`)."""

    what: Literal["range", "trend"]

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        return each(found, row, self.of)

    def of(self, run: Run) -> float | None:
        pool = next((log.pool for log in reversed(run.rounds) if log.pool), None)
        return None if pool is None else OF_POOL[self.what](pool["distances"])


def largest_by_smallest(distances: Sequence[Sequence[float | None]]) -> float | None:
    known = [far for _, far in pairs_of(distances)]
    return max(known) / min(known) if known and min(known) > 0 else None


def correlation_with_order(distances: Sequence[Sequence[float | None]]) -> float | None:
    gaps, known = zip(*pairs_of(distances), strict=True) if pairs_of(distances) else ((), ())
    if len(set(gaps)) < 2 or len(set(known)) < 2:
        return None  # two models, or all of them equally far apart
    return statistics.correlation(gaps, known)


def pairs_of(distances: Sequence[Sequence[float | None]]) -> list[tuple[int, float]]:
    """How far apart two models are in the order of training, and how far in fact."""
    pairs = combinations(range(len(distances)), 2)
    return [(two - one, far) for one, two in pairs if (far := distances[one][two]) is not None]


OF_POOL = {"range": largest_by_smallest, "trend": correlation_with_order}
