"""Robust centres: the geometric median, and the mean of what lies near the last centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedrelay.errors import within
from fedrelay.merges.mean import change, mean_model, merged
from fedrelay.merges.robust import check_limit, share_within, squared_distances
from fedrelay.types import Merge, Outcome, State, Tree, Vector
from fedrelay.vectors import weighted_sum

MOST_STEPS = 10_000
"""Weiszfeld's steps; each is of n² numbers, however large the model is."""
STILL = 1e-13
"""No share moves by more any more."""


@dataclass(frozen=True)
class GeometricMedian(Merge):
    """The model whose distances to all others add up to the least (RFA: Pillutla et al. 2019). If at most a share
    a < 1/2 of the chains is farther than r from some model, it is within r (1 - a) / √(1 - 2a) of that one.

    Paper: they take three smoothed steps of Weiszfeld's; here it is the median itself, because steps cost little among
    distances.
    """

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        models = [outcome.baton.params for outcome in outcomes]
        shares = median_shares(squared_distances(models)).tolist()
        parts = [(model, share) for model, share in zip(models, shares, strict=True) if share]
        return merged(state, weighted_sum(*zip(*parts, strict=True)))


@dataclass(frozen=True)
class CentredClipping(Merge):
    """The last merged change, moved `iterations` times by the mean way from it to every chain's change, none longer
    than `limit` (Karimireddy et al. 2021, Eq. 8); with `limit = inf` the plain mean.

    Paper: their vectors are gradients with momentum, which change little from step to step; here they are the changes
    of a round.

    Args:
        limit: no change counts farther than this from the last merged one; `inf` shortens nothing.
        iterations: how often the centre is moved in a merge.
    """

    limit: float = 10.0
    iterations: int = 1

    def __post_init__(self) -> None:
        check_limit("limit", self.limit)
        within("iterations", self.iterations, least=1)

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return {}, {"centre": torch.zeros_like(params)}

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        steps = [change(outcome)[: state.trainable] for outcome in outcomes]
        plain = mean_model(outcomes, lambda outcome: 1.0)
        centre, exact = centre_of(steps, state.server["centre"][: state.trainable], self.limit, self.iterations)
        params = plain.clone()
        if not exact:  # what was nowhere shortened has the bits of the mean
            params[: state.trainable] = state.batons[0].params[: state.trainable] + centre
        kept = torch.cat([centre, torch.zeros_like(params[len(centre) :])])
        return replace(merged(state, params), server={**state.server, "centre": kept})


def centre_of(steps: Sequence[Vector], centre: Vector, limit: float, iterations: int) -> tuple[Vector, bool]:
    """The centre after so many moves, and whether the last one was to the mean itself."""
    shares: list[float] = []
    for _ in range(iterations):
        shares = [share_within(step - centre, limit) / len(steps) for step in steps]
        centre = weighted_sum([centre, *steps], [1 - sum(shares), *shares])
    return centre, min(shares) == 1 / len(steps)


def median_shares(squares: torch.Tensor) -> torch.Tensor:
    """The geometric median as shares of the points that have these squared distances from one another (Weiszfeld).

    Steps would go on for ever towards a point that is itself the median, so points are tried first: x_k is it if the
    unit vectors from it to all others add up to no more than the number of points there (Vardi and Zhang 2000).
    """
    distances = squares.sqrt()
    pulls = torch.where(distances > 0, 1 / distances, 0.0)
    pulls -= torch.diag(pulls.sum(1))
    # Σ b_i x_i with Σ b_i = 0 has the squared length -½ Σ b_i b_j |x_i - x_j|².
    lengths = (-((pulls @ squares) * pulls).sum(1) / 2).clamp(min=0).sqrt()
    held = lengths <= (distances == 0).sum(1) * (1 + 1e-9)
    if held.any():
        totals = torch.where(held, distances.sum(1), torch.inf)
        return torch.nn.functional.one_hot(totals.argmin(), len(squares)).double()
    shares = torch.full((len(squares),), 1 / len(squares), dtype=torch.float64)
    for _ in range(MOST_STEPS):
        towards = squares @ shares
        apart = (towards - shares @ towards / 2).clamp(min=torch.finfo(torch.float64).tiny).sqrt()
        moved = 1 / apart
        moved /= moved.sum()
        still = float((moved - shares).abs().max()) <= STILL
        shares = moved
        if still:
            break
    return shares
