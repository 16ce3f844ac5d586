"""Plans: which clients train this round, and who after whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrelay.errors import BadInput, within
from fedrelay.plans import sampling
from fedrelay.plans.grouping.criteria import Grouping
from fedrelay.plans.grouping.groups import Alone, Groups, Limits, canonical, joined, sizes_of
from fedrelay.plans.order import Order, fixed_order
from fedrelay.plans.sampling import Drawn, Original, Sampler, Uniform, Usually, taking_part
from fedrelay.types import Chain, Outcome, Plan, Planned, State, Survey, Tree, Work


@dataclass(frozen=True)
class Superclients(Plan):
    """Groups are made once; every round a `fraction` of them train, each a chain in a new random order (FedSeq 2022,
    Alg. 1, line 7). With `reshuffle` every lap has an order of its own, as in the published code."""

    fraction: float | Usually = Usually()
    laps: int = 1
    limits: Limits = Limits(max_clients=10)
    grouping: Grouping = Grouping()
    sampler: Sampler = Uniform()
    reshuffle: bool = False

    def __post_init__(self) -> None:
        sampling.check_fraction(self.fraction)
        sampling.check(self.sampler)
        within("laps", self.laps, least=1)

    def fitted(self, *, fraction: float | Usually, sampler: Sampler, local: Work) -> Superclients:
        return replace(self, fraction=fraction, sampler=sampler, grouping=self.grouping.trained_like(local))

    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        self.limits.check(sizes)  # before the clients are put to work
        self.grouping.check(len(sizes))
        traits = self.grouping.learn(survey, sizes, rng)
        groups = self.grouping(traits, sizes, self.limits, rng)
        return {**start(groups, sizes, self.sampler, survey), "undescribed": traits.missing}

    def grown(self, state: State, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return grown_groups(self.init(survey, sizes, rng), state, self.sampler, survey)

    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        return chains_of_groups(state, self.fraction, self.laps, self.sampler, rng, reshuffle=self.reshuffle)

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        return learn_from_groups(planned, self.sampler, outcomes)


@dataclass(frozen=True)
class Singles(Plan):
    """Every drawn client is a chain of its own (FedAvg): groups of one."""

    fraction: float | Usually = Usually()
    sampler: Sampler = Uniform()

    def __post_init__(self) -> None:
        sampling.check_fraction(self.fraction)
        sampling.check(self.sampler)

    def fitted(self, *, fraction: float | Usually, sampler: Sampler, local: Work) -> Singles:
        return replace(self, fraction=fraction, sampler=sampler)

    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return start(singles(sizes), sizes, self.sampler, survey)

    def grown(self, state: State, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return grown_groups(self.init(survey, sizes, rng), state, self.sampler, survey)

    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        return chains_of_groups(state, self.fraction, 1, self.sampler, rng)

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        return learn_from_groups(planned, self.sampler, outcomes)


@dataclass(frozen=True)
class Ring(Plan):
    """One chain through a `fraction` of all clients, in a new random order (FedCyclic) or in a fixed one.

    Uniform unless another sampler says who; being drawn twice or with another weight makes no difference in one chain.
    """

    fraction: float | Usually = Usually()
    laps: int = 1
    sampler: Sampler = Uniform()
    order: Order = "random"
    least: int = 1
    """How many clients there must be."""

    def __post_init__(self) -> None:
        sampling.check_fraction(self.fraction)
        sampling.check(self.sampler)
        within("laps", self.laps, least=1)
        if isinstance(self.sampler, Original):
            raise BadInput(
                "the sampler original needs the merge with_absent, but one chain of all replaces the model: use "
                "uniform, which draws the same"
            )

    @property
    def one_chain(self) -> bool:
        return True

    def fitted(self, *, fraction: float | Usually, sampler: Sampler, local: Work) -> Ring:
        return replace(self, fraction=fraction, sampler=sampler)

    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        if len(sizes) < self.least:
            raise BadInput(
                f"this method passes one model from client to client, and there is {len(sizes)} client: use more "
                "clients, or centralized, which trains on all data in one place"
            )
        memo = start(singles(sizes), sizes, self.sampler, survey)
        return memo if self.order == "random" else {**memo, "order": fixed_order(self.order, sizes, survey)}

    def grown(self, state: State, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return grown_groups(self.init(survey, sizes, rng), state, self.sampler, survey)

    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        select, order = rng.spawn(2)
        drawn = draw(state.memo, self.fraction, self.sampler, select)
        chosen = {one.index for one in drawn.draws}
        if self.order == "random":
            clients = in_order(sorted(chosen), self.laps, order)
        else:
            clients = tuple(client for client in state.memo["order"] if client in chosen) * self.laps
        chains = [Chain(state.batons[0], clients, holder=state.memo.get("holder"))]
        return Planned({**state.memo, "sampler": drawn.memo}, chains, 1, drawn.said, coming=drawn.coming)

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        memo = learn_from_groups(planned, self.sampler, outcomes)
        return {**memo, "holder": last_holder(outcomes[0])} if outcomes else memo


def singles(sizes: Sequence[int]) -> Groups:
    """Everybody alone, who has joined."""
    there = joined(sizes)
    return Alone(len(sizes)) if len(there) == len(sizes) else canonical([(client,) for client in there])


def start(groups: Groups, sizes: Sequence[int], sampler: Sampler, survey: Survey) -> Tree:
    """The memo of a plan that draws among groups."""
    known = groups if isinstance(groups, Alone) else canonical(groups)
    return {"groups": known, "sizes": sizes_of(known, sizes), "sampler": sampler.init(survey)}


def grown_groups(made: Tree, state: State, sampler: Sampler, survey: Survey) -> Tree:
    """The memo with groups that were made anew because clients have joined; what was learned of clients is kept."""
    known = {"sampler": sampler.grown(state.memo["sampler"], survey), "made": state.round}
    return {**state.memo, **made, **known}


def draw(memo: Tree, fraction: float | Usually, sampler: Sampler, rng: np.random.Generator) -> Drawn:
    """Draw among the groups of the memo."""
    groups = memo["groups"]
    return sampling.draw(sampler, memo["sampler"], groups, memo["sizes"], taking_part(fraction, groups), rng)


def chains_of_groups(
    state: State,
    fraction: float | Usually,
    laps: int,
    sampler: Sampler,
    rng: np.random.Generator,
    *,
    reshuffle: bool = False,
) -> Planned:
    """Draw groups; each becomes a chain that starts from the current model."""
    (select,) = rng.spawn(1)
    groups, drawn = state.memo["groups"], draw(state.memo, fraction, sampler, select)
    members = [groups[one.index] for one in drawn.draws]
    # To make a generator takes longer than all else here, and nothing is drawn for those that are alone.
    order = rng.spawn(1)[0] if any(len(group) > 1 for group in members) else rng
    chains = [
        Chain(state.batons[0], in_order(group, laps, order, reshuffle=reshuffle), weight=one.weight)
        for one, group in zip(drawn.draws, members, strict=True)
    ]
    return Planned(
        {**state.memo, "sampler": drawn.memo},
        chains,
        len(groups),
        drawn.said,
        undescribed(state),
        drawn.coming,
    )


def undescribed(state: State) -> tuple[tuple[int, str], ...]:
    """Who could not be described, and so is grouped at random: said once, in the first round of these groups."""
    first = state.round == state.memo.get("made", 0)
    missing: tuple[tuple[int, str], ...] = state.memo.get("undescribed", ()) if first else ()
    return missing


def learn_from_groups(planned: Planned, sampler: Sampler, outcomes: Sequence[Outcome]) -> Tree:
    """Tell the sampler what came back."""
    memo, coming = planned.memo, planned.coming.get("sampler")
    return {**memo, "sampler": sampler.learn(memo["sampler"], outcomes, coming)}


def last_holder(outcome: Outcome) -> int | None:
    """The client that has the baton when the chain is done; None: nobody has it but who had it before."""
    return outcome.reports[-1].client if outcome.reports else outcome.chain.holder


def in_order(group: Sequence[int], laps: int, rng: np.random.Generator, *, reshuffle: bool = False) -> tuple[int, ...]:
    """The hops of a chain: the group shuffled, lap after lap in the same order unless every lap is shuffled anew."""
    if len(group) == 1:  # nothing is drawn for it
        return tuple(group) * laps
    orders = [rng.permutation(group).tolist() for _ in range(laps if reshuffle else 1)]
    return tuple(client for order in orders for client in order) * (1 if reshuffle else laps)
