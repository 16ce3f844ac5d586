"""Robust merges: a few bad batons cannot spoil the model. Every chain counts the same in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from fedrelay.errors import RunFailed, within
from fedrelay.merges.mean import change, mean, merged, moved, weight
from fedrelay.types import Merge, Outcome, State, Vector
from fedrelay.vectors import weighted_sum

AT_ONCE = 2**22
"""How many numbers are sorted at a time: 16 MB, whatever the size of the model."""


@dataclass(frozen=True)
class Median(Merge):
    """The median of every number (Yin et al. 2018); of an even count, the mean of the two in the middle."""

    @property
    def least_chains(self) -> int:
        return 3

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        enough(state, outcomes, self.least_chains, "median")
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
        enough(state, outcomes, self.least_chains, "trimmed_mean")
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

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        enough(state, outcomes, self.least_chains, "krum")
        best = torch.argsort(krum_scores(outcomes, self.suspects), stable=True)[: self.keep].tolist()
        return merged(state, mean([outcomes[index].baton.params for index in best], [1.0] * len(best)))


@dataclass(frozen=True)
class Clipped(Merge):
    """The mean by examples of the changes, none longer than `limit` (norm thresholding: Sun et al. 2019)."""

    limit: float = 1.0

    def __post_init__(self) -> None:
        within("limit", self.limit, above=0)

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        steps = [change(outcome)[: state.trainable] for outcome in outcomes]
        norms = [float(torch.linalg.vector_norm(step)) for step in steps]
        total = sum(weight(outcome) for outcome in outcomes)
        factors = [
            weight(outcome) / total * min(1.0, self.limit / norm if norm else 1.0)
            for outcome, norm in zip(outcomes, norms, strict=True)
        ]
        return moved(state, state.batons[0].params[: state.trainable] + weighted_sum(steps, factors), outcomes)


def middle(outcomes: Sequence[Outcome], cut: int) -> Vector:
    """The mean of every number without the `cut` smallest and the `cut` largest."""
    parts = [rows.sort(dim=0).values[cut : len(outcomes) - cut].mean(0) for rows in slices(outcomes)]
    return torch.cat(parts)


def slices(outcomes: Sequence[Outcome]) -> Iterator[torch.Tensor]:
    """The models one a row, a range of columns at a time."""
    width = max(AT_ONCE // len(outcomes), 1)
    for first in range(0, len(outcomes[0].baton.params), width):
        yield torch.stack([outcome.baton.params[first : first + width] for outcome in outcomes])


def krum_scores(outcomes: Sequence[Outcome], suspects: int) -> torch.Tensor:
    """For every model the sum of squared distances to its n - suspects - 2 nearest others."""
    count = len(outcomes)
    upper = torch.triu_indices(count, count, offset=1)
    squares = torch.full((count, count), float("inf"))
    squares[upper[0], upper[1]] = torch.stack([torch.pdist(rows).square() for rows in slices(outcomes)]).sum(0)
    squares = torch.minimum(squares, squares.T)
    return squares.sort(dim=1).values[:, : count - suspects - 2].sum(1)


def enough(state: State, outcomes: Sequence[Outcome], least: int, name: str) -> None:
    """A promise that needs more chains than came back cannot be kept."""
    if len(outcomes) < least:
        raise RunFailed(
            f"round {state.round + 1}: {name} needs at least {least} chains that came back, there are {len(outcomes)}: "
            "a larger fraction (or fewer suspects) gives enough"
        )
