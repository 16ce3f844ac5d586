"""Robust merges: a few bad batons cannot spoil the model. Every chain counts the same in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from fedrelay.errors import RunFailed, within
from fedrelay.merges.mean import change, mean, mean_model, merged, moved, weight
from fedrelay.types import Merge, Outcome, State, Vector
from fedrelay.vectors import doubled, weighted_sum

AT_ONCE = 2**22
"""How many numbers are sorted at a time: 16 MB, whatever the size of the model."""


@dataclass(frozen=True)
class Median(Merge):
    """The median of every number (Yin et al. 2018); of an even count, the mean of the two in the middle."""

    @property
    def least_chains(self) -> int:
        return 3

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        enough(self, state, outcomes, "median")
        half = (len(outcomes) - 1) // 2
        return merged(state, middle(outcomes, half))


@dataclass(frozen=True)
class TrimmedMean(Merge):
    """The mean of every number after the `trim` share at each end was left out (Yin et al. 2018)."""

    trim: float = 0.1

    def __post_init__(self) -> None:
        within("trim", self.trim, above=0)
        within("trim", self.trim, most=0.49)

    @property
    def least_chains(self) -> int:
        return 3

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        enough(self, state, outcomes, "trimmed_mean")
        # At least one at each end: a share that rounds to nobody would leave every liar in.
        return merged(state, middle(outcomes, max(int(self.trim * len(outcomes) + 1e-9), 1)))


@dataclass(frozen=True)
class Krum(Merge):
    """The model whose nearest neighbours are nearest, if up to `suspects` chains lie (Blanchard et al. 2017); with
    `keep` above 1 the mean of that many best ones (multi-Krum)."""

    suspects: int = 1
    keep: int = 1

    def __post_init__(self) -> None:
        within("suspects", self.suspects, least=0)
        within("keep", self.keep, least=1)

    @property
    def least_chains(self) -> int:
        return max(2 * self.suspects + 3, self.keep + self.suspects + 2)

    @property
    def condition(self) -> str:
        return f"n ≥ 2f + 3 and n ≥ f + 2 + keep, for f = {self.suspects} suspects and keep = {self.keep}"

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        enough(self, state, outcomes, "krum")
        models = [outcome.baton.params for outcome in outcomes]
        best = torch.argsort(krum_scores(models, self.suspects), stable=True)[: self.keep].tolist()
        return merged(state, mean([models[index] for index in best], [1.0] * len(best)))


@dataclass(frozen=True)
class Clipped(Merge):
    """The mean by examples of the changes, none longer than `limit` (norm thresholding: Sun et al. 2019); where none
    is, or with `limit = inf`, it is the mean."""

    limit: float = 1.0

    def __post_init__(self) -> None:
        check_limit("limit", self.limit)

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        steps = [change(outcome)[: state.trainable] for outcome in outcomes]
        shares = [share_within(step, self.limit) for step in steps]
        if min(shares) == 1.0:
            return merged(state, mean_model(outcomes))
        total = sum(weight(outcome) for outcome in outcomes)
        factors = [weight(outcome) / total * share for outcome, share in zip(outcomes, shares, strict=True)]
        return moved(state, state.batons[0].params[: state.trainable] + weighted_sum(steps, factors), outcomes)


def check_limit(name: str, limit: float) -> None:
    """Refuse a length that is none; without end is one."""
    if limit != math.inf:
        within(name, limit, above=0)


def share_within(step: Vector, limit: float) -> float:
    """The factor that makes a step no longer than the limit: 1 if it is not."""
    norm = float(torch.linalg.vector_norm(step))
    return min(1.0, limit / norm) if norm else 1.0


def middle(outcomes: Sequence[Outcome], cut: int) -> Vector:
    """The mean of every number without the `cut` smallest and the `cut` largest."""
    models = [outcome.baton.params for outcome in outcomes]
    parts = [rows.sort(dim=0).values[cut : len(outcomes) - cut].mean(0) for rows in slices(models)]
    return torch.cat(parts)


def slices(models: Sequence[Vector]) -> Iterator[torch.Tensor]:
    """The models one a row, a range of columns at a time."""
    width = max(AT_ONCE // len(models), 1)
    for first in range(0, len(models[0]), width):
        yield torch.stack([model[first : first + width] for model in models])


def squared_distances(models: Sequence[Vector]) -> torch.Tensor:
    """Between all pairs of models, in float64 and main memory: points between models are found from them alone."""
    count = len(models)
    upper = torch.triu_indices(count, count, offset=1)
    squares = torch.zeros((count, count), dtype=torch.float64)
    for rows in slices(models):
        squares[upper[0], upper[1]] += torch.pdist(doubled(rows)).square().cpu()
    return squares + squares.T


def krum_scores(models: Sequence[Vector], suspects: int) -> torch.Tensor:
    """For every model the sum of squared distances to its n - suspects - 2 nearest others."""
    nearest = squared_distances(models).sort(dim=1).values
    return nearest[:, 1 : len(models) - suspects - 1].sum(1)


def enough(merge: Merge, state: State, outcomes: Sequence[Outcome], name: str) -> None:
    """A promise that needs more chains than came back cannot be kept."""
    if len(outcomes) < merge.least_chains:
        needs = f" ({merge.condition})" if merge.condition else ""
        raise RunFailed(
            f"round {state.round + 1}: {name} needs at least {merge.least_chains} chains that came back{needs}, there "
            f"are {len(outcomes)}: a larger fraction (or fewer suspects) gives enough"
        )
