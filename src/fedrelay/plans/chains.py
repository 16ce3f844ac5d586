"""Plans: which clients train this round, and who after whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrelay.errors import within
from fedrelay.plans.groups import Groups, held, random_groups
from fedrelay.plans.sampling import Sampler, Uniform, share
from fedrelay.types import Chain, Outcome, Probe, State, Tree


@dataclass(frozen=True)
class Superclients:
    """Groups are made once; every round a `fraction` of them train, each a chain in a new random order every lap
    (FedSeq 2022, Alg. 1)."""

    fraction: float = 0.2
    laps: int = 1
    min_examples: int | None = None
    max_clients: int | None = 10
    sampler: Sampler = Uniform()

    def __post_init__(self) -> None:
        within("fraction", self.fraction, above=0, most=1)
        within("laps", self.laps, least=1)

    def init(self, probe: Probe, sizes: Sequence[int], rng: np.random.Generator) -> Tree:
        groups = random_groups(sizes, rng, min_examples=self.min_examples, max_clients=self.max_clients)
        return start_sampling(groups, sizes, self.fraction, self.sampler)

    def __call__(self, state: State, rng: np.random.Generator) -> tuple[Tree, list[Chain]]:
        return chains_of_groups(state, self.fraction, self.laps, self.sampler, rng)

    def learn(self, memo: Tree, outcomes: Sequence[Outcome]) -> Tree:
        return learn_from_groups(memo, self.sampler, outcomes)


@dataclass(frozen=True)
class Singles:
    """Every drawn client is a chain of its own (FedAvg): groups of one."""

    fraction: float = 0.2
    sampler: Sampler = Uniform()

    def __post_init__(self) -> None:
        within("fraction", self.fraction, above=0, most=1)

    def init(self, probe: Probe, sizes: Sequence[int], rng: np.random.Generator) -> Tree:
        return start_sampling(tuple((client,) for client in range(len(sizes))), sizes, self.fraction, self.sampler)

    def __call__(self, state: State, rng: np.random.Generator) -> tuple[Tree, list[Chain]]:
        return chains_of_groups(state, self.fraction, 1, self.sampler, rng)

    def learn(self, memo: Tree, outcomes: Sequence[Outcome]) -> Tree:
        return learn_from_groups(memo, self.sampler, outcomes)


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
        total = state.memo["clients"]
        group = sorted(select.choice(total, share(self.fraction, total), replace=False).tolist())
        return state.memo, [Chain(state.batons[0], in_order(group, self.laps, order))]

    def learn(self, memo: Tree, outcomes: Sequence[Outcome]) -> Tree:
        return memo


def start_sampling(groups: Groups, sizes: Sequence[int], fraction: float, sampler: Sampler) -> Tree:
    """The memo of a plan that draws among groups."""
    held_by = tuple(held(group, sizes) for group in groups)
    return {"groups": groups, "sizes": held_by, "sampler": sampler.init(held_by, share(fraction, len(groups)))}


def chains_of_groups(
    state: State, fraction: float, laps: int, sampler: Sampler, rng: np.random.Generator
) -> tuple[Tree, list[Chain]]:
    """Draw groups; each becomes a chain that starts from the current model."""
    select, order = rng.spawn(2)
    groups, sizes = state.memo["groups"], state.memo["sizes"]
    drawn = sampler(state.memo["sampler"], sizes, share(fraction, len(groups)), select)
    chains = [Chain(state.batons[0], in_order(groups[d.index], laps, order), weight=d.weight) for d in drawn]
    return {**state.memo, "drawn": tuple(d.index for d in drawn)}, chains


def learn_from_groups(memo: Tree, sampler: Sampler, outcomes: Sequence[Outcome]) -> Tree:
    """Tell the sampler what came back from each group that was drawn."""
    drawn = tuple(zip(memo["drawn"], outcomes, strict=True))
    return {**memo, "sampler": sampler.learn(memo["sampler"], drawn)}


def in_order(group: Sequence[int], laps: int, rng: np.random.Generator) -> tuple[int, ...]:
    """The hops of a chain: the group, shuffled anew for every lap."""
    return tuple(int(client) for _ in range(laps) for client in rng.permutation(group))
