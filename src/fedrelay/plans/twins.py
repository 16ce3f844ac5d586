"""Every chain as two, through one half of its clients each, so that a merge can compare them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrelay.errors import BadInput
from fedrelay.plans.sampling import Sampler, Usually
from fedrelay.types import Chain, Outcome, Plan, Planned, State, Survey, Tree, Work


@dataclass(frozen=True)
class TwoChains(Plan):
    """The chains of another plan, each cut into two that begin with the same model and share no client. Both have the
    slot of their pair."""

    plan: Plan

    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return self.plan.init(survey, sizes, rng)

    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        planned = self.plan(state, rng)
        pairs = [halves(chain, number) for number, chain in enumerate(planned.chains)]
        return replace(planned, chains=[chain for pair in pairs for chain in pair])

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        return self.plan.learn(planned, outcomes)

    def fitted(self, *, fraction: float | Usually, sampler: Sampler, local: Work) -> TwoChains:
        return replace(self, plan=self.plan.fitted(fraction=fraction, sampler=sampler, local=local))

    @property
    def sampler(self) -> Sampler | None:
        return self.plan.sampler

    @property
    def laps(self) -> int:
        return self.plan.laps

    @property
    def asks_again(self) -> bool:
        return self.plan.asks_again

    @property
    def rounds(self) -> int | None:
        return self.plan.rounds


def halves(chain: Chain, slot: int) -> tuple[Chain, Chain]:
    """Every other client, and the rest, each as often and in the order in which the chain has them."""
    members = list(dict.fromkeys(chain.clients))
    if len(members) < 2:
        raise BadInput(
            f"two chains are compared that share no client, and client {members[0]} is a chain of its own: longer "
            "chains can be cut in two (fedseq with max_clients of 2 or more), or leave agreement out"
        )
    first = set(members[::2])
    weight = None if chain.weight is None else chain.weight / 2
    one, other = (tuple(client for client in chain.clients if (client in first) is wanted) for wanted in (True, False))
    return replace(chain, clients=one, slot=slot, weight=weight), replace(
        chain, clients=other, slot=slot, weight=weight
    )
