"""Several batons at a time, each of which goes on from group to group without being merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedrelay.plans import sampling
from fedrelay.plans.chains import Superclients, in_order, undescribed
from fedrelay.plans.sampling import Draw, Drawn, Sampler, Usually, taking_part
from fedrelay.types import Baton, Chain, Outcome, Plan, Planned, State, Survey, Tree, Work
from fedrelay.vectors import blend


@dataclass(frozen=True)
class Handover(Plan):
    """Every slot whose chain is done hands its baton to another random group at once; there is one slot for every group
    that takes part in a round (FedSeq 2022, Section III-C2; FedSeq journal 2024, Fig. 5)."""

    groups: Superclients

    @property
    def sampler(self) -> Sampler:
        return self.groups.sampler

    @property
    def laps(self) -> int:
        return self.groups.laps

    def fitted(self, *, fraction: float | Usually, sampler: Sampler, local: Work) -> Handover:
        return replace(self, groups=self.groups.fitted(fraction=fraction, sampler=sampler, local=local))

    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return {**self.groups.init(survey, sizes, rng), "at": {}}

    def grown(self, state: State, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return {**self.groups.grown(state, survey, sizes, rng), "at": {}}  # groups have other numbers now

    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        select, order = rng.spawn(2)
        groups, at = state.memo["groups"], state.memo["at"]
        running = {outcome.chain.slot for outcome in state.waiting}
        idle = [slot for slot in range(taking_part(self.groups.fraction, groups)) if slot not in running]
        avoid = {at[slot] for slot in running}
        if len(idle) == 1 and len(groups) > len(avoid) + 1:
            avoid.add(came_from(state, idle[0]))
        found = self.draw(state.memo, [g for g in range(len(groups)) if g not in avoid], len(idle), select)
        drawn = found.draws
        # Samplers may draw fewer (who is drawn twice counts more) or, when all slots are idle, everybody.
        slots = idle[: len(drawn)] if running else range(len(drawn))
        drawn = elsewhere(drawn[: len(slots)], [came_from(state, slot) for slot in slots])
        shuffled = partial(in_order, laps=self.groups.laps, rng=order, reshuffle=self.groups.reshuffle)
        chains = [
            Chain(start_of(state, slot), shuffled(groups[one.index]), slot, one.weight)
            for slot, one in zip(slots, drawn, strict=True)
        ]
        now_at = {slot: one.index for slot, one in zip(slots, drawn, strict=True)}
        memo = {**state.memo, "sampler": found.memo, "at": {**at, **now_at}}
        return Planned(memo, chains, len(groups), found.said, undescribed(state), found.coming)

    def draw(self, memo: Tree, candidates: Sequence[int], count: int, rng: np.random.Generator) -> Drawn:
        """Draw among some of the groups."""
        groups = tuple(memo["groups"][group] for group in candidates)
        sizes = [memo["sizes"][group] for group in candidates]
        drawn = sampling.draw(self.groups.sampler, memo["sampler"], groups, sizes, count, rng)
        # Weights are shares of the draws of this moment, of which there may be few: in the end every draw counts alike.
        part = count / taking_part(self.groups.fraction, memo["groups"])
        placed = [Draw(candidates[d.index], None if d.weight is None else d.weight * part) for d in drawn.draws]
        return replace(drawn, draws=placed)

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        return self.groups.learn(planned, outcomes)


def start_of(state: State, slot: int) -> Baton:
    """The baton of a slot; one that has none of its own yet starts from the model one would use now."""
    return state.batons[slot] if slot < len(state.batons) else Baton(blend(state.batons))


def came_from(state: State, slot: int) -> int | None:
    """The group that a slot's baton was at last; one that has just been merged comes from no group in particular."""
    group: int | None = state.memo["at"].get(slot) if start_of(state, slot).weight else None
    return group


def elsewhere(drawn: Sequence[Draw], last: Sequence[int | None]) -> list[Draw]:
    """The draws in an order in which nobody stays at its last group: those who would exchange theirs among themselves,
    or a single one with its neighbour."""
    staying = [place for place, one in enumerate(drawn) if one.index == last[place]]
    if len(staying) == 1 and len(drawn) > 1:
        staying.append((staying[0] + 1) % len(drawn))
    result = list(drawn)
    for place, other in zip(staying, staying[1:] + staying[:1], strict=True):
        result[place] = drawn[other]
    return result
