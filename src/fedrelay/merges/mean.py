"""Means of the batons that came back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from fedrelay.errors import BadInput, RunFailed, within
from fedrelay.types import Baton, Merge, Outcome, State, Vector
from fedrelay.vectors import weighted_sum


@dataclass(frozen=True)
class Mean(Merge):
    """Every chain counts with the examples its baton has seen, or with the weight its plan gave it (FedAvg, Eq. 2 of
    FedSeq 2022)."""

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        return merged(state, mean_model(outcomes))


@dataclass(frozen=True)
class PlainMean(Merge):
    """Every chain counts the same, however many examples it has seen, unless its plan gave it a weight."""

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        return merged(state, mean_model(outcomes, plain_weight))


@dataclass(frozen=True)
class WithAbsent(Merge):
    """Every chain counts with its share of all examples; for the clients that were not there, the old model does: slow
    and biased, FedAvg as it was first written (Clustered sampling 2021, Eq. 3)."""

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        shares = [
            outcome.baton.weight / state.examples if outcome.chain.weight is None else outcome.chain.weight
            for outcome in outcomes
        ]
        absent = 1 - sum(shares)
        if absent < -1e-9:
            raise RunFailed(
                f"round {state.round + 1}: the chains have seen {1 - absent:.3g} times the examples that there are: "
                "with_absent counts every client once, so it goes with neither laps nor several rounds between merges"
            )
        models = [outcome.baton.params for outcome in outcomes]
        return merged(state, weighted_sum([*models, state.batons[0].params], [*shares, max(absent, 0.0)]))


@dataclass(frozen=True)
class InverseDistance(Merge):
    """Every chain counts with the inverse of its distance from the plain mean of all models, so that outliers count
    little (IDA: Yeganeh et al. 2020); with `by_examples` also with the examples it has seen.

    Paper: a small number is added to the distances, so that a model at the mean does not count for ever.
    """

    norm: Literal[1, 2] = 1
    by_examples: bool = False
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        if self.norm not in (1, 2):
            raise BadInput(f"norm must be 1 or 2, not {self.norm!r}")
        within("epsilon", self.epsilon, above=0)

    @property
    def least_chains(self) -> int:
        return 2

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        middle = mean_model(outcomes, lambda outcome: 1.0)

        def closeness(outcome: Outcome) -> float:
            apart = float(torch.linalg.vector_norm(outcome.baton.params - middle, ord=self.norm))
            return (weight(outcome) if self.by_examples else plain_weight(outcome)) / (apart + self.epsilon)

        return merged(state, mean_model(outcomes, closeness))


def weight(outcome: Outcome) -> float:
    """What a chain counts in a merge by examples."""
    given = outcome.chain.weight
    return outcome.baton.weight if given is None else given


def plain_weight(outcome: Outcome) -> float:
    """What a chain counts in a merge where all count the same."""
    given = outcome.chain.weight
    return 1.0 if given is None else given


def mean_model(outcomes: Sequence[Outcome], weigh: Callable[[Outcome], float] = weight) -> Vector:
    """The mean of the models that came back."""
    return mean([outcome.baton.params for outcome in outcomes], [weigh(outcome) for outcome in outcomes])


def mean_change(outcomes: Sequence[Outcome], weigh: Callable[[Outcome], float] = weight) -> Vector:
    """The mean way from the start of a chain to its end."""
    return mean([change(outcome) for outcome in outcomes], [weigh(outcome) for outcome in outcomes])


def change(outcome: Outcome) -> Vector:
    """The way from the start of a chain to its end."""
    return outcome.baton.params - outcome.chain.start.params


def mean(vectors: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """The mean of vectors under weights that need not sum to one."""
    total = sum(weights)
    return weighted_sum(vectors, (w / total for w in weights))


def merged(state: State, params: Vector) -> State:
    """The state with this model."""
    return replace(state, batons=(Baton(params),))


def moved(state: State, weights: Vector, outcomes: Sequence[Outcome]) -> State:
    """The state with these weights; buffers (running statistics) are no weights, so they are only averaged."""
    if state.trainable in (None, len(outcomes[0].baton.params)):
        return merged(state, weights)
    params = mean_model(outcomes)
    params[: state.trainable] = weights[: state.trainable]
    return merged(state, params)
