"""From sequential to parallel: the clients are grouped anew as rounds go by, into more and more groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from fedrelay import seeds
from fedrelay.errors import within
from fedrelay.plans.background import in_process, in_thread
from fedrelay.plans.chains import chains_of_groups, grown_groups, learn_from_groups, start
from fedrelay.plans.grouping.criteria import Grouping
from fedrelay.plans.grouping.groups import Groups, Limits, canonical, joined, sizes_of
from fedrelay.plans.grouping.traits import Traits
from fedrelay.plans.growth import Growth
from fedrelay.plans.sampling import Original, Sampler, Uniform, Usually, check, check_fraction
from fedrelay.system.sequences import Integers
from fedrelay.types import Chain, Outcome, Plan, Planned, State, Survey, Tree, Work

Moment = Literal["every_round", "growth"]
MANY = 500
"""Clients from which on grouping takes so long that it is worth a process of its own."""


@dataclass(frozen=True)
class Regrouped(Plan):
    """As many groups as `growth` says, but no more than clients; every round a `fraction` of them train (FedGSP 2022,
    Alg. 1; FedSeq journal 2024, Alg. 1).

    Groups are made anew `when` their number changes, or in every round. Without `shuffle` the clients of a group always
    train in the same order. With `exact`, more groups than clients are refused. With `equal`, all groups of a round
    count alike in the merge, and not by examples, where the sampler does not say otherwise. The next groups are made
    beside the round, so they cost no time where a core is free.
    """

    growth: Growth
    grouping: Grouping = Grouping()
    fraction: float | Usually = Usually()
    laps: int = 1
    when: Moment = "growth"
    shuffle: bool = True
    sampler: Sampler = Uniform()
    exact: bool = False
    equal: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check(self.sampler)
        within("laps", self.laps, least=1)

    def fitted(self, *, fraction: float | Usually, sampler: Sampler, local: Work) -> Regrouped:
        return replace(self, fraction=fraction, sampler=sampler, grouping=self.grouping.trained_like(local))

    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        if self.exact:
            Limits(groups=self.growth(1)).check(sizes)
        return self.made(survey, sizes, rng, 1)

    def grown(self, state: State, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return grown_groups(self.made(survey, sizes, rng, state.round + 1), state, self.sampler, survey)

    def made(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, round: int) -> Tree:
        """The memo with the groups of this round."""
        self.grouping.check(len(sizes))
        traits = self.grouping.learn(survey, sizes, rng)
        seed = int(rng.integers(2**62))
        groups = self.groups(traits, sizes, seed, round)
        known = {"traits": traits.tree(), "clients": Integers.of(sizes), "seed": seed, "undescribed": traits.missing}
        return {**start(groups, sizes, self.sampler, survey), **known}

    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        planned, memo = chains_of_groups(state, self.fraction, self.laps, self.sampler, rng), state.memo
        if not self.shuffle:
            rank = seeds.rng(memo["seed"], "order").permutation(len(memo["clients"])).tolist()
            chains = [replace(chain, clients=in_fixed_order(chain.clients, rank)) for chain in planned.chains]
            planned = replace(planned, chains=chains)
        if self.equal and not isinstance(self.sampler, Original):  # which counts everybody's examples, there or not
            planned = replace(planned, chains=[counting_alike(chain, planned.chains) for chain in planned.chains])
        upcoming = state.round + 2
        if self.regroups(len(joined(memo["clients"])), upcoming):
            make = partial(self.groups, Traits.of(memo["traits"]), memo["clients"], memo["seed"], upcoming)
            groups = in_thread(in_process, make) if len(memo["clients"]) >= MANY else in_thread(make)
            planned = replace(planned, coming={**planned.coming, "groups": groups})
        return planned

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        known = learn_from_groups(planned, self.sampler, outcomes)
        if "groups" not in planned.coming:
            return known
        groups: Groups = planned.coming["groups"].result()
        made = canonical(groups)
        return {**known, "groups": made, "sizes": sizes_of(made, known["clients"])}

    def regroups(self, clients: int, round: int) -> bool:
        """Whether the groups of this round are not those of the round before."""
        count, before = self.count(clients, round), self.count(clients, round - 1)
        # Everybody alone is the same however it is come by.
        return count != before or (self.when == "every_round" and count < clients)

    def groups(self, traits: Traits, sizes: Sequence[int], seed: int, round: int) -> Groups:
        """The groups that are made for this round: the same whenever and wherever they are made."""
        limits = Limits(groups=self.count(len(joined(sizes)), round))
        return self.grouping(traits, sizes, limits, seeds.rng(seed, "groups", round))

    def count(self, clients: int, round: int) -> int:
        """How many groups there are in this round."""
        wanted = self.growth(round)
        within(f"the number of groups that {type(self.growth).__name__} wants in round {round}", wanted, least=1)
        return min(wanted, clients)


def counting_alike(chain: Chain, chains: Sequence[Chain]) -> Chain:
    """One of these chains, with the same weight as the others, unless the sampler has said one."""
    return chain if chain.weight is not None else replace(chain, weight=1 / len(chains))


def in_fixed_order(clients: Sequence[int], rank: Sequence[int]) -> tuple[int, ...]:
    """The hops of a chain sorted by a rank, lap after lap."""
    order = sorted(set(clients), key=rank.__getitem__)
    return tuple(order) * (len(clients) // len(order))
