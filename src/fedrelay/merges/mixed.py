"""Models are mixed before a robust merge, so that honest ones differ less: in buckets, or with their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.merges.centres import GeometricMedian
from fedrelay.merges.mean import mean
from fedrelay.merges.robust import TrimmedMean, enough, squared_distances
from fedrelay.merges.trust import Trust
from fedrelay.tasks import Task
from fedrelay.types import GIVEN, Baton, Merge, Outcome, State, Tree, Vector


@dataclass(frozen=True)
class Bucketing(Merge):
    """Chains are put at random into buckets of `size`, and the robust `merge` gets the plain mean of every bucket: f
    chains that lie spoil at most f of the n / size buckets (Karimireddy et al. 2022, Alg. 1).

    Args:
        merge: what the means of the buckets are merged by.
        size: chains in a bucket; 1 is the merge without buckets, all of them the mean.
    """

    merge: Merge = GeometricMedian()
    size: int = 2
    seed: int = field(default=0, metadata={GIVEN: True})

    def __post_init__(self) -> None:
        within("size", self.size, least=1)
        check_inner(self.merge)

    def fitted(self, task: Task, seed: int, /) -> Bucketing:
        return replace(self, merge=self.merge.fitted(task, seed), seed=seed)

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return self.merge.init(params, clients)

    @property
    def least_chains(self) -> int:
        return (self.merge.least_chains - 1) * self.size + 1

    @property
    def condition(self) -> str:
        inner = self.merge.condition or f"n ≥ {self.merge.least_chains}"
        return f"{inner}, where n counts buckets of {self.size} chains"

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        enough(self, state, outcomes, "bucketing")
        if self.size == 1:
            return self.merge(state, outcomes)
        order = seeds.rng(self.seed, "buckets", state.round + 1).permutation(len(outcomes)).tolist()
        buckets = [order[first : first + self.size] for first in range(0, len(order), self.size)]
        return self.merge(state, [mixture([outcomes[number] for number in sorted(bucket)]) for bucket in buckets])


@dataclass(frozen=True)
class NearestNeighbours(Merge):
    """Every model becomes the plain mean of the n - `suspects` models nearest to it, itself among them, before the
    robust `merge` (nearest-neighbour mixing, Allouah et al. 2023).

    Args:
        merge: what the mixed models are merged by.
        suspects: how many chains may lie; fewer than half of them.
    """

    merge: Merge = TrimmedMean()
    suspects: int = 1

    def __post_init__(self) -> None:
        within("suspects", self.suspects, least=0)
        check_inner(self.merge)

    def fitted(self, task: Task, seed: int, /) -> NearestNeighbours:
        return replace(self, merge=self.merge.fitted(task, seed))

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return self.merge.init(params, clients)

    @property
    def least_chains(self) -> int:
        return max(2 * self.suspects + 1, self.merge.least_chains)

    @property
    def condition(self) -> str:
        inner = f", and {self.merge.condition}" if self.merge.condition else ""
        return f"n > 2f for f = {self.suspects} suspects{inner}"

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        enough(self, state, outcomes, "nearest_neighbours")
        squares = squared_distances([outcome.baton.params for outcome in outcomes])
        nearest = squares.argsort(dim=1, stable=True)[:, : len(outcomes) - self.suspects].tolist()
        mixtures = [
            replace(outcome, baton=mixture([outcomes[number] for number in sorted(near)]).baton)
            for outcome, near in zip(outcomes, nearest, strict=True)
        ]
        return self.merge(state, mixtures)


def check_inner(merge: Merge) -> None:
    """Refuse a merge that compares chains with the server's own training: it needs them as they are."""
    if isinstance(merge, Trust):
        raise BadInput("trust compares every chain with the server's own training, so chains are not mixed before it")


def mixture(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome that stands for these: the plain means of their models and of where they began."""
    first, equal = outcomes[0], [1.0] * len(outcomes)
    start = mean([outcome.chain.start.params for outcome in outcomes], equal)
    clients = tuple(client for outcome in outcomes for client in outcome.chain.clients)
    return Outcome(
        replace(first.chain, start=Baton(start), clients=clients, weight=None),
        Baton(mean([outcome.baton.params for outcome in outcomes], equal), sum(o.baton.weight for o in outcomes)),
        tuple(report for outcome in outcomes for report in outcome.reports),
    )
