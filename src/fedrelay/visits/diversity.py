"""The term that keeps the models of a pool apart from one another and near the one received (FedELMY 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import torch

from fedrelay.errors import BadInput, say_once, within
from fedrelay.types import Vector, Visit
from fedrelay.visits.terms import Effect, Term

Apart: TypeAlias = Literal["norm", "squared", "l1", "cosine"]
Scaling: TypeAlias = Literal["each", "published", "off"]

CHUNK = 1 << 16
"""So many numbers at a time are compared with all models of a pool: they stay in the caches near a core meanwhile."""


@dataclass(frozen=True)
class Diversity(Term):
    """Models of a pool are driven apart, by alpha · d1, and held near the one received, by beta · d2: the loss gets
    - alpha · d1 + beta · d2 (FedELMY 2024, Eqs. 7-9). Where a visit trains only one model, both are its distance to the
    model received.

    Args:
        alpha: how much the mean distance to all models of the pool (d1) counts; 0 leaves it out.
        beta: how much the distance to the model received (d2) counts; 0 leaves it out.
        apart: how far two models are from one another: the length of their difference, its square, the sum of its
            absolute values, or one minus the cosine of the angle between them. Only what is trained counts.
        scaling: a distance is divided by a power of ten so that it is an order of magnitude below the loss of the
            batch: each distance by its own, or both by that of d2 ("published"), or not at all ("off").
    """

    # Paper: the text has the norm, and scales each distance by itself; the published code has squares, and one factor.

    alpha: float = 0.06
    beta: float = 1.0
    apart: Apart = "norm"
    scaling: Scaling = "each"
    stacks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        within("alpha", self.alpha, least=0)
        within("beta", self.beta, least=0)
        if self.apart not in MEASURES:
            raise BadInput(f"apart must be one of {', '.join(MEASURES)}, not {self.apart!r}")
        if self.scaling not in ("each", "published", "off"):
            raise BadInput(f"scaling must be each, published or off, not {self.scaling!r}")

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        if not (self.alpha or self.beta):
            return Effect()
        received = visit.weights(received)
        pool = [received] if visit.pool is None else [visit.weights(model) for model in visit.pool]
        return Effect(guides=(Guided(self, Pool.of(pool, received, self.apart)),))


class Pool(NamedTuple):
    """What a model in training is compared with: d2 is its distance to the first of `models`, d1 the sum of all
    distances by `shares`, and `spread`."""

    models: Sequence[Vector]
    shares: Sequence[float]
    spread: float = 0.0

    @classmethod
    def of(cls, models: Sequence[Vector], mean: Vector, apart: Apart) -> Pool:
        """Squared distances to all models are the squared distance to their mean, and how far they are from it: so two
        vectors do in place of all."""
        if apart != "squared" or len(models) == 1:
            return cls(models, [1 / len(models)] * len(models))
        return cls([models[0], mean], [0.0, 1.0], sum(measured(models, mean, apart)) / len(models))


@dataclass(frozen=True)
class Guided:
    """The term in one training."""

    term: Diversity
    pool: Pool

    def __call__(self, gradient: Vector, weights: Vector, loss: float) -> None:
        """Add the gradient of - alpha · d1 + beta · d2, both as scaled; the factors themselves are constants."""
        models, shares, spread = self.pool
        found = measured(models, weights, self.term.apart)
        d1, d2 = sum(map(float.__mul__, shares, found)) + spread, found[0]
        away, near = factors(loss, d1, d2, self.term.scaling)
        slopes = [-self.term.alpha * away * share for share in shares]
        slopes[0] += self.term.beta * near
        pulls = list(map(Pull, models, found, slopes))
        MEASURES[self.term.apart].climb(gradient, weights, pulls)


def factors(loss: float, d1: float, d2: float, scaling: Scaling) -> tuple[float, float]:
    """What both distances are multiplied by."""
    if scaling == "off":
        return 1.0, 1.0
    if loss == 0 or not math.isfinite(loss):
        # The published code stops here, in the logarithm. An order of magnitude below nothing is nothing.
        say_once(f"a batch has a loss of {loss:g}, to which no distance can be scaled: in its step there is none")
        return 0.0, 0.0
    near = scale(loss, d2)
    return near if scaling == "published" else scale(loss, d1), near


def scale(loss: float, distance: float) -> float:
    """The power of ten by which a distance comes an order of magnitude below the loss; 1 if it is there already."""
    if not (distance > 0 and math.isfinite(distance)):
        return 1.0
    return float(10.0 ** -max(order(distance) - order(abs(loss)) + 1, 0))


def order(number: float) -> int:
    """The order of magnitude: 45 has 1."""
    return math.floor(math.log10(number))


# --- distances, and their gradients


class Pull(NamedTuple):
    """What a model of the pool does to the one in training: by how much a distance counts, and how large it is."""

    model: Vector
    distance: float
    slope: float


def measured(models: Sequence[Vector], weights: Vector, apart: Apart) -> list[float]:
    """The distance to each of the models."""
    return MEASURES[apart].distances(weights, models)


def pieces(length: int) -> Iterator[slice]:
    """A vector in pieces that fit into the caches."""
    return (slice(start, start + CHUNK) for start in range(0, length, CHUNK))


class Squared:
    """‖w - m‖², whose gradient is 2 (w - m)."""

    def distances(self, weights: Vector, models: Sequence[Vector]) -> list[float]:
        found, room = [0.0] * len(models), weights.new_empty(min(CHUNK, len(weights)))
        for place in pieces(len(weights)):
            here = weights[place]
            for number, model in enumerate(models):
                gap = torch.sub(here, model[place], out=room[: len(here)])
                found[number] += float(torch.dot(gap, gap))
        return found

    def climb(self, gradient: Vector, weights: Vector, pulls: Sequence[Pull]) -> None:
        """Add the gradient of Σ slope · distance. Differences first: what has not moved must get exactly nothing, of
        which an optimiser that scales number by number would make steps."""
        room = weights.new_empty(min(CHUNK, len(weights)))
        for place in pieces(len(weights)):
            here = weights[place]
            for model, _, slope in pulls:
                if slope:
                    gradient[place].add_(torch.sub(here, model[place], out=room[: len(here)]), alpha=2 * slope)


class Norm:
    """‖w - m‖, whose gradient is of length 1; where both are the same there is none."""

    def distances(self, weights: Vector, models: Sequence[Vector]) -> list[float]:
        return [math.sqrt(square) for square in SQUARED.distances(weights, models)]

    def climb(self, gradient: Vector, weights: Vector, pulls: Sequence[Pull]) -> None:
        halves = [Pull(model, far, slope / (2 * far) if far else 0.0) for model, far, slope in pulls]
        SQUARED.climb(gradient, weights, halves)


class Absolute:
    """Σ |w - m|, whose gradient is the sign of every difference."""

    def distances(self, weights: Vector, models: Sequence[Vector]) -> list[float]:
        found = [0.0] * len(models)
        for place in pieces(len(weights)):
            for number, model in enumerate(models):
                found[number] += float((weights[place] - model[place]).abs_().sum())
        return found

    def climb(self, gradient: Vector, weights: Vector, pulls: Sequence[Pull]) -> None:
        for place in pieces(len(weights)):
            for model, _, slope in pulls:
                if slope:
                    gradient[place].add_((weights[place] - model[place]).sign_(), alpha=slope)


class Angle:
    """1 - cos(w, m), whose gradient is (cos · w / ‖w‖ - m / ‖m‖) / ‖w‖; a model of zeros has no direction."""

    def distances(self, weights: Vector, models: Sequence[Vector]) -> list[float]:
        length = norm(weights)
        lengths = [length * norm(model) for model in models]
        return [
            1 - float(torch.dot(weights, model)) / both if both else 0.0
            for model, both in zip(models, lengths, strict=True)
        ]

    def climb(self, gradient: Vector, weights: Vector, pulls: Sequence[Pull]) -> None:
        length = norm(weights)
        for model, far, slope in pulls:
            other = norm(model)
            if slope and length and other:
                gradient.add_(weights, alpha=slope * (1 - far) / length**2)
                gradient.sub_(model, alpha=slope / (length * other))


def norm(vector: Vector) -> float:
    return float(torch.linalg.vector_norm(vector))


SQUARED = Squared()
MEASURES: dict[str, Squared | Norm | Absolute | Angle] = {
    "norm": Norm(),
    "squared": SQUARED,
    "l1": Absolute(),
    "cosine": Angle(),
}
"""How far two models are from one another, by name."""
