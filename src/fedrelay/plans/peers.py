"""Every client has a model of its own, which stays with it: there is no server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrelay.errors import BadInput
from fedrelay.plans import sampling
from fedrelay.plans.chains import draw, grown_groups, learn_from_groups, singles, start
from fedrelay.plans.handover import start_of
from fedrelay.plans.sampling import Sampler, Uniform, Usually
from fedrelay.types import Chain, Outcome, Plan, Planned, State, Survey, Tree, Work


@dataclass(frozen=True)
class Peers(Plan):
    """Everybody who is drawn trains its own model; there is one slot for every client. `shown` is a client whose model
    is looked at, so that it must be there.

    Who is drawn twice, or with another weight, trains once all the same.
    """

    fraction: float | Usually = Usually(1.0)
    sampler: Sampler = Uniform()
    shown: int = 0

    def __post_init__(self) -> None:
        sampling.check_fraction(self.fraction)
        sampling.check(self.sampler)

    def fitted(self, *, fraction: float | Usually, sampler: Sampler, local: Work) -> Peers:
        return replace(self, fraction=fraction, sampler=sampler)

    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        if not 0 <= self.shown < len(sizes):
            raise BadInput(
                f"the model of client {self.shown} is to be tested, and clients are numbered 0 to {len(sizes) - 1}"
            )
        return start(singles(sizes), sizes, self.sampler, survey)

    def grown(self, state: State, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return grown_groups(self.init(survey, sizes, rng), state, self.sampler, survey)

    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        drawn = draw(state.memo, self.fraction, self.sampler, rng)
        clients = sorted({one.index for one in drawn.draws})
        chains = [Chain(start_of(state, client), (client,), slot=client, holder=client) for client in clients]
        memo = {**state.memo, "sampler": drawn.memo}
        return Planned(memo, chains, len(memo["groups"]), drawn.said, coming=drawn.coming)

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        return learn_from_groups(planned, self.sampler, outcomes)
