"""The weighted mean of the batons that came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedrelay.types import Baton, Outcome, State, Tree, Vector
from fedrelay.vectors import weighted_sum


@dataclass(frozen=True)
class Mean:
    """Every chain counts with the examples its baton has seen, or with the weight its plan gave it (FedAvg, Eq. 2 of
    FedSeq 2022)."""

    def init(self, params: Vector, clients: int) -> tuple[Tree, Tree]:
        return {}, {}

    def __call__(self, state: State, outcomes: Sequence[Outcome]) -> State:
        params = mean([o.baton.params for o in outcomes], [weight(o) for o in outcomes])
        return replace(state, batons=(Baton(params),))


def weight(outcome: Outcome) -> float:
    """What a chain counts in a merge."""
    given = outcome.chain.weight
    return outcome.baton.weight if given is None else given


def mean(vectors: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """The mean of vectors under weights that need not sum to one."""
    total = sum(weights)
    return weighted_sum(vectors, (w / total for w in weights))
