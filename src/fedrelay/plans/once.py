"""Clients are asked once: whatever follows, the server does alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrelay.plans.chains import Singles
from fedrelay.plans.sampling import Sampler, Usually
from fedrelay.types import Outcome, Plan, Planned, State, Survey, Tree, Work


@dataclass(frozen=True)
class Once(Plan):
    """The first round is that of another plan; in all others only the server works."""

    plan: Plan = Singles()

    @property
    def sampler(self) -> Sampler | None:
        return self.plan.sampler

    @property
    def asks_again(self) -> bool:
        return False

    def fitted(self, *, fraction: float | Usually, sampler: Sampler, local: Work) -> Once:
        return replace(self, plan=self.plan.fitted(fraction=fraction, sampler=sampler, local=local))

    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        return self.plan.init(survey, sizes, rng)

    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        return Planned(state.memo, [], state.groups, server_only=True) if state.round else self.plan(state, rng)

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        return planned.memo if planned.server_only else self.plan.learn(planned, outcomes)
