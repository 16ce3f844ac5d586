"""Plans: which clients train this round, and who after whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrelay.errors import within
from fedrelay.plans.groups import random_groups
from fedrelay.types import Chain, Probe, State, Tree


@dataclass(frozen=True)
class Singles:
    """Every drawn client is a chain of its own: a `fraction` of all, uniformly without replacement (FedAvg)."""

    fraction: float = 0.2

    def __post_init__(self) -> None:
        within("fraction", self.fraction, above=0, most=1)

    def init(self, probe: Probe, sizes: Sequence[int], rng: np.random.Generator) -> Tree:
        return {"clients": len(sizes)}

    def __call__(self, state: State, rng: np.random.Generator) -> tuple[Tree, list[Chain]]:
        select, _ = rng.spawn(2)
        drawn = draw(self.fraction, state.memo["clients"], select)
        return state.memo, [Chain(state.batons[0], (client,)) for client in drawn]


@dataclass(frozen=True)
class Ring:
    """One chain through a random `fraction` of all clients, in a new random order every lap (FedCyclic)."""

    fraction: float = 0.2
    laps: int = 1

    def __post_init__(self) -> None:
        within("fraction", self.fraction, above=0, most=1)
        within("laps", self.laps, least=1)

    def init(self, probe: Probe, sizes: Sequence[int], rng: np.random.Generator) -> Tree:
        return {"clients": len(sizes)}

    def __call__(self, state: State, rng: np.random.Generator) -> tuple[Tree, list[Chain]]:
        select, order = rng.spawn(2)
        group = sorted(draw(self.fraction, state.memo["clients"], select))
        return state.memo, [Chain(state.batons[0], in_order(group, self.laps, order))]


@dataclass(frozen=True)
class Superclients:
    """Groups are made once; every round a `fraction` of them train, each a chain in a new random order every lap
    (FedSeq 2022, Alg. 1)."""

    fraction: float = 0.2
    laps: int = 1
    min_examples: int | None = None
    max_clients: int | None = 10

    def __post_init__(self) -> None:
        within("fraction", self.fraction, above=0, most=1)
        within("laps", self.laps, least=1)

    def init(self, probe: Probe, sizes: Sequence[int], rng: np.random.Generator) -> Tree:
        groups = random_groups(sizes, rng, min_examples=self.min_examples, max_clients=self.max_clients)
        return {"groups": groups}

    def __call__(self, state: State, rng: np.random.Generator) -> tuple[Tree, list[Chain]]:
        select, order = rng.spawn(2)
        groups = state.memo["groups"]
        drawn = draw(self.fraction, len(groups), select)
        return state.memo, [Chain(state.batons[0], in_order(groups[g], self.laps, order)) for g in drawn]


def draw(fraction: float, total: int, rng: np.random.Generator) -> list[int]:
    """max(⌊fraction · total⌋, 1) of `total`, uniformly without replacement."""
    # The small term keeps 0.29 * 100 at 29: the papers mean the number, not its rounding in binary.
    count = max(int(fraction * total + 1e-9), 1)
    return [int(i) for i in rng.choice(total, count, replace=False)]


def in_order(group: Sequence[int], laps: int, rng: np.random.Generator) -> tuple[int, ...]:
    """The hops of a chain: the group, shuffled anew for every lap."""
    return tuple(int(client) for _ in range(laps) for client in rng.permutation(group))
