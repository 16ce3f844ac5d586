"""Chains that were cut in two count only if both halves went the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedrelay.data.examples import Store
from fedrelay.merges.mean import change
from fedrelay.tasks import Task
from fedrelay.types import DISAGREED, Merge, Outcome, State, Tree, Vector, Work


@dataclass(frozen=True)
class Agreeing(Merge):
    """The merge of those chains whose twin, the other chain of the same slot, went the same way: the cosine between
    both changes is at least `agreement`. It cannot be told which of two that differ lies, so neither counts; and one
    whose twin was lost does not. Where nobody counts, or fewer than the merge needs, the model stays as it was."""

    merge: Merge
    agreement: float

    def fitted(self, task: Task, seed: int, /) -> Agreeing:
        return replace(self, merge=self.merge.fitted(task, seed))

    def trained_like(self, local: Work, /) -> Agreeing:
        return replace(self, merge=self.merge.trained_like(local))

    def with_root(self, held_out: Store | None, /) -> Agreeing:
        return replace(self, merge=self.merge.with_root(held_out))

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return self.merge.init(params, clients)

    @property
    def least_chains(self) -> int:
        return self.merge.least_chains

    @property
    def condition(self) -> str:
        return self.merge.condition

    @property
    def needs_everyone(self) -> bool:
        return self.merge.needs_everyone

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        good = self.agreeing(state, outcomes)
        counted = [outcome for outcome in outcomes if outcome.chain.slot in good]
        if len(counted) < max(self.merge.least_chains, 1):
            return replace(state, batons=(replace(state.batons[0], weight=0.0),))
        return self.merge(state, counted)

    def tells(self, state: State, outcomes: Sequence[Outcome], /) -> Mapping[str, float]:
        slots = {outcome.chain.slot for outcome in outcomes}
        return {**self.merge.tells(state, outcomes), DISAGREED: float(len(slots - self.agreeing(state, outcomes)))}

    def agreeing(self, state: State, outcomes: Sequence[Outcome]) -> set[int]:
        """The slots whose two chains went the same way."""
        pairs: dict[int, list[Outcome]] = {}
        for outcome in outcomes:
            pairs.setdefault(outcome.chain.slot, []).append(outcome)
        return {
            slot
            for slot, pair in pairs.items()
            if len(pair) == 2 and cosine(*(change(one)[: state.trainable] for one in pair)) >= self.agreement
        }


def cosine(one: Vector, other: Vector) -> float:
    """Between two ways; no way at all is at right angles to every other."""
    lengths = float(torch.linalg.vector_norm(one)) * float(torch.linalg.vector_norm(other))
    return float(one @ other) / lengths if lengths else 0.0
