"""Outliers found along the direction in which changes differ most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.errors import RunFailed, within
from fedrelay.merges.mean import mean, merged
from fedrelay.merges.robust import enough
from fedrelay.tasks import Task
from fedrelay.types import GIVEN, Merge, Outcome, State, Vector
from fedrelay.vectors import doubled


@dataclass(frozen=True)
class DivideAndConquer(Merge):
    """Looks `iterations` times at `sample` numbers of the models drawn at random, leaves out the `cut` times `suspects`
    chains farthest along the direction of most variance, and takes the plain mean of those that were never left out
    (DnC: Shejwalkar and Houmansadr 2021, Alg. 2).

    Args:
        suspects: how many chains may lie; 0 is the plain mean.
        cut: how many are left out in a look, for every suspect.
        iterations: how many looks there are.
        sample: how many numbers of the models a look is at.
    """

    suspects: int = 1
    cut: float = 1.0
    iterations: int = 1
    sample: int = 10_000
    seed: int = field(default=0, metadata={GIVEN: True})

    def __post_init__(self) -> None:
        within("suspects", self.suspects, least=0)
        within("cut", self.cut, above=0)
        within("iterations", self.iterations, least=1)
        within("sample", self.sample, least=1)

    @property
    def least_chains(self) -> int:
        return max(2 * self.suspects, self.leaves_out) + 1

    @property
    def leaves_out(self) -> int:
        """How many chains one look leaves out."""
        return int(self.cut * self.suspects + 1e-9)

    @property
    def condition(self) -> str:
        return f"n > 2f and n > cut · f, for f = {self.suspects} suspects and cut = {self.cut:g}"

    def fitted(self, task: Task, seed: int, /) -> DivideAndConquer:
        return replace(self, seed=seed)

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        enough(self, state, outcomes, "dnc")
        models = [outcome.baton.params for outcome in outcomes]
        good = set(range(len(models)))
        for number in range(self.iterations):
            good &= self.looked(models, state.trainable, seeds.rng(self.seed, "dnc", state.round + 1, number))
        if not good:
            raise RunFailed(
                f"round {state.round + 1}: dnc left out every chain in one of its {self.iterations} looks: fewer "
                "iterations, or fewer suspects, leave some"
            )
        return merged(state, mean([models[number] for number in sorted(good)], [1.0] * len(good)))

    def looked(self, models: Sequence[Vector], trainable: int | None, draw: np.random.Generator) -> set[int]:
        """Those whom one look leaves in."""
        size = len(models[0][:trainable])
        places = torch.from_numpy(np.sort(draw.choice(size, min(self.sample, size), replace=False)))
        places = places.to(models[0].device)
        rows = doubled(torch.stack([model[places] for model in models]))
        rows -= rows.mean(0)
        # The projections on the first right singular vector are the first left one, times its singular value.
        gram = (rows @ rows.T).cpu()
        scores = torch.linalg.eigh(gram).eigenvectors[:, -1].square()
        return set(scores.argsort(stable=True)[: len(models) - self.leaves_out].tolist())
