"""Merges of hand-made models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedrelay.types import Baton, Chain, Outcome, Report, State, Work


def state_of(merge, params, examples=0, trainable=None) -> State:
    params = torch.tensor(params, dtype=torch.float32)
    shared, server = merge.init(params, 10)
    return State(0, (Baton(params),), shared, server, {}, examples=examples, trainable=trainable)


def outcome_of(state: State, params, size: float = 1.0, weight: float | None = None) -> Outcome:
    chain = Chain(state.batons[0], (0,), weight=weight)
    return Outcome(chain, Baton(torch.tensor(params, dtype=torch.float32), size), (Report(0, 1),))


def result(merge, start, ends, sizes=None, weights=None, **facts) -> list[float]:
    state = state_of(merge, start, **facts)
    sizes, weights = sizes or [1.0] * len(ends), weights or [None] * len(ends)
    outcomes = [outcome_of(state, *one) for one in zip(ends, sizes, weights, strict=True)]
    return merge(state, outcomes).batons[0].params.tolist()


@dataclass(frozen=True)
class Moves(Work):
    """Moves a model by this much."""

    way: tuple[float, ...]

    def __call__(self, baton, visit):
        return replace(baton, params=baton.params + torch.tensor(self.way)), {}, Report(visit.client.id, 1)
