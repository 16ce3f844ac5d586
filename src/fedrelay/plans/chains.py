"""Plans: which clients train this round, and who after whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrelay.errors import BadInput, within
from fedrelay.plans import sampling
from fedrelay.plans.grouping.criteria import Grouping
from fedrelay.plans.grouping.groups import Groups, Limits, held
from fedrelay.plans.sampling import Draw, Original, Sampler, Uniform, share
from fedrelay.types import Chain, Outcome, Probe, State, Tree


@dataclass(frozen=True)
class Superclients:
    """Groups are made once; every round a `fraction` of them train, each a chain in a new random order every lap
    (FedSeq 2022, Alg. 1)."""

    fraction: float = 0.2
    laps: int = 1
    limits: Limits = Limits(max_clients=10)
    grouping: Grouping = Grouping()
    sampler: Sampler = Uniform()

    def __post_init__(self) -> None:
        within("fraction", self.fraction, above=0, most=1)
        sampling.check(self.sampler)
        within("laps", self.laps, least=1)

    def init(self, probe: Probe, sizes: Sequence[int], rng: np.random.Generator) -> Tree:
        self.limits.check(sizes)  # before the clients are put to work
        traits = self.grouping.learn(probe, sizes, rng)
        groups = self.grouping(traits, sizes, self.limits, rng)
        return {**start_sampling(groups, sizes, self.sampler, probe), "undescribed": traits.missing}

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
        sampling.check(self.sampler)

    def init(self, probe: Probe, sizes: Sequence[int], rng: np.random.Generator) -> Tree:
        return start_sampling(singles(sizes), sizes, self.sampler, probe)

    def __call__(self, state: State, rng: np.random.Generator) -> tuple[Tree, list[Chain]]:
        return chains_of_groups(state, self.fraction, 1, self.sampler, rng)

    def learn(self, memo: Tree, outcomes: Sequence[Outcome]) -> Tree:
        return learn_from_groups(memo, self.sampler, outcomes)


@dataclass(frozen=True)
class Ring:
    """One chain through a `fraction` of all clients, in a new random order every lap (FedCyclic).

    Uniform unless another sampler says who; being drawn twice or with another weight makes no difference in one chain.
    """

    fraction: float = 0.2
    laps: int = 1
    sampler: Sampler = Uniform()

    def __post_init__(self) -> None:
        within("fraction", self.fraction, above=0, most=1)
        sampling.check(self.sampler)
        within("laps", self.laps, least=1)
        if isinstance(self.sampler, Original):
            raise BadInput(
                "the sampler original needs the merge with_absent, but one chain of all replaces the model: use "
                "uniform, which draws the same"
            )

    def init(self, probe: Probe, sizes: Sequence[int], rng: np.random.Generator) -> Tree:
        return start_sampling(singles(sizes), sizes, self.sampler, probe)

    def __call__(self, state: State, rng: np.random.Generator) -> tuple[Tree, list[Chain]]:
        select, order = rng.spawn(2)
        memo, drawn = draw(state.memo, self.fraction, self.sampler, select)
        clients = in_order(sorted(d.index for d in drawn), self.laps, order)
        return {**memo, "log": {**memo["log"], "groups": 1}}, [Chain(state.batons[0], clients)]

    def learn(self, memo: Tree, outcomes: Sequence[Outcome]) -> Tree:
        return learn_from_groups(memo, self.sampler, outcomes)


def singles(sizes: Sequence[int]) -> Groups:
    """Everybody alone."""
    return tuple((client,) for client in range(len(sizes)))


def start_sampling(groups: Groups, sizes: Sequence[int], sampler: Sampler, probe: Probe) -> Tree:
    """The memo of a plan that draws among groups."""
    held_by = tuple(held(group, sizes) for group in groups)
    return {"groups": groups, "sizes": held_by, "sampler": sampling.start(sampler, probe)}


def draw(memo: Tree, fraction: float, sampler: Sampler, rng: np.random.Generator) -> tuple[Tree, list[Draw]]:
    """Draw among the groups of the memo; what there is to say of the draw goes into the round's record."""
    groups, sizes = memo["groups"], memo["sizes"]
    known, drawn, said = sampling.draw(sampler, memo["sampler"], groups, sizes, share(fraction, len(groups)), rng)
    return {**memo, "sampler": known, "log": {"sampling": said, "groups": len(groups)}}, drawn


def chains_of_groups(
    state: State, fraction: float, laps: int, sampler: Sampler, rng: np.random.Generator
) -> tuple[Tree, list[Chain]]:
    """Draw groups; each becomes a chain that starts from the current model."""
    select, order = rng.spawn(2)
    memo, drawn = draw(state.memo, fraction, sampler, select)
    groups = memo["groups"]
    return memo, [Chain(state.batons[0], in_order(groups[d.index], laps, order), weight=d.weight) for d in drawn]


def learn_from_groups(memo: Tree, sampler: Sampler, outcomes: Sequence[Outcome]) -> Tree:
    """Tell the sampler what came back."""
    return {**memo, "sampler": sampling.learn(sampler, memo["sampler"], outcomes)}


def in_order(group: Sequence[int], laps: int, rng: np.random.Generator) -> tuple[int, ...]:
    """The hops of a chain: the group, shuffled anew for every lap."""
    return tuple(int(client) for _ in range(laps) for client in rng.permutation(group))
