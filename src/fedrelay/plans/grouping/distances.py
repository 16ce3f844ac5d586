"""Distances (τ): how unlike a client's trait is to another one, or to the mean of a group. The larger, the more unlike.

A distance takes all candidates at once: rows, and the centre they are compared with. `KullbackLeibler` and `Gini` are
not distances but scores of the mix that the two would make together, which is what a group is chosen for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import BadInput
from fedrelay.types import Kind

Floats = NDArray[np.float64]
BLOCK = 2**16
"""How many numbers are worked on at a time: they stay near the processor, which is several times as fast."""


class Distance(Protocol):
    """A frozen dataclass. `takes` says for which kinds of trait it has a meaning."""

    takes: ClassVar[tuple[Kind, ...]]

    def ready(self, rows: Floats) -> Floats:
        """The rows in the form that `__call__` takes; rows it is not defined for are refused with their client."""
        ...

    def __call__(self, rows: Floats, centre: Floats, /) -> Floats:
        """How unlike each row is to the centre."""
        ...


@dataclass(frozen=True)
class Euclidean:
    """The length of the difference."""

    takes: ClassVar[tuple[Kind, ...]] = ("weights", "shares", "counts", "information")

    def ready(self, rows: Floats) -> Floats:
        return finite(rows)

    def __call__(self, rows: Floats, centre: Floats, /) -> Floats:
        return in_blocks(lambda block: np.linalg.norm(block - centre, axis=1), rows)


@dataclass(frozen=True)
class Cosine:
    """One minus the cosine of the angle between: 0 in the same direction, 1 at a right angle, 2 opposite."""

    takes: ClassVar[tuple[Kind, ...]] = ("weights", "shares", "counts", "information")

    def ready(self, rows: Floats) -> Floats:
        zero = np.flatnonzero(~finite(rows).any(axis=1))
        if len(zero):
            raise BadInput(
                f"the trait of client {named(zero)} is all zeros, which has no direction for a cosine distance: "
                "euclidean works"
            )
        return rows

    def __call__(self, rows: Floats, centre: Floats, /) -> Floats:
        length = np.linalg.norm(centre)
        if not length:  # opposite clients cancelled out: nobody is nearer than another
            return np.ones(len(rows))
        return in_blocks(lambda block: 1 - (block @ centre) / (np.linalg.norm(block, axis=1) * length), rows)


@dataclass(frozen=True)
class NormalisedCosine:
    """The cosine distance of a/(a+b) and b/(a+b), so that large entries do not drown the others (Task2Vec 2019;
    FedSeq journal 2024, Table 4). Entries that are 0 in both count nothing."""

    takes: ClassVar[tuple[Kind, ...]] = ("shares", "counts", "information")

    def ready(self, rows: Floats) -> Floats:
        return not_negative(rows, "the normalised cosine distance")

    def __call__(self, rows: Floats, centre: Floats, /) -> Floats:
        def unlike(block: Floats) -> Floats:
            both = block + centre
            there = both > 0
            part = block / np.maximum(both, np.finfo(np.float64).tiny)
            rest: Floats = there - part  # b/(a+b) is 1 - a/(a+b)
            lengths = np.sqrt(np.einsum("ij,ij->i", part, part) * np.einsum("ij,ij->i", rest, rest))
            products = np.einsum("ij,ij->i", part, rest)
            # Two vectors of zeros are alike; a vector of zeros has nothing in common with any other.
            empty = np.where(there.any(axis=1), 0.0, 1.0)
            result: Floats = 1 - np.divide(products, lengths, out=empty, where=lengths > 0)
            return result

        return in_blocks(unlike, rows)


@dataclass(frozen=True)
class Wasserstein:
    """The earth mover's distance between the *values* of two vectors, whatever their places (FedSeq 2022, Table IV).

    Paper: it is not said what is moved where; this is what the published code did. So two clients with one class each
    are alike to it, which explains the paper's result: hardly better than random.
    """

    takes: ClassVar[tuple[Kind, ...]] = ("weights", "shares")

    def ready(self, rows: Floats) -> Floats:
        return finite(rows)

    def __call__(self, rows: Floats, centre: Floats, /) -> Floats:
        ordered = np.sort(centre)
        return in_blocks(lambda block: np.abs(np.sort(block, axis=1) - ordered).mean(axis=1), rows)


class MixScore(ABC):
    """How good the mix is that a candidate and a group would make together, of which the candidate is this `share`."""

    takes: ClassVar[tuple[Kind, ...]] = ("shares", "counts")
    name: ClassVar[str]

    @abstractmethod
    def of(self, mixes: Floats, /) -> Floats:
        """The score of every row of shares that sum to 1."""

    def ready(self, rows: Floats) -> Floats:
        return as_shares(rows, f"the {self.name} score")

    def __call__(self, rows: Floats, centre: Floats, /, share: float = 0.5) -> Floats:
        return in_blocks(lambda block: self.of(block * share + centre * (1 - share)), rows)


@dataclass(frozen=True)
class KullbackLeibler(MixScore):
    """One minus the Kullback-Leibler divergence, from the uniform distribution, of the mix of candidate and group."""

    name: ClassVar[str] = "Kullback-Leibler"

    def of(self, mixes: Floats, /) -> Floats:
        logarithms = np.log(np.maximum(mixes, np.finfo(np.float64).tiny))  # 0 log 0 is 0
        result: Floats = 1 - np.einsum("ij,ij->i", mixes, logarithms) - np.log(mixes.shape[1])
        return result


@dataclass(frozen=True)
class Gini(MixScore):
    """The Gini index, 1 - Σ m², of the mix of candidate and group."""

    name: ClassVar[str] = "Gini"

    def of(self, mixes: Floats, /) -> Floats:
        result: Floats = 1 - np.einsum("ij,ij->i", mixes, mixes)
        return result


DISTANCES: dict[str, type[Distance]] = {
    "cosine": Cosine,
    "euclidean": Euclidean,
    "normalised_cosine": NormalisedCosine,
    "wasserstein": Wasserstein,
    "kl": KullbackLeibler,
    "gini": Gini,
}


def in_blocks(score: Callable[[Floats], Floats], rows: Floats) -> Floats:
    """The scores of all rows, a block of rows at a time."""
    step = max(BLOCK // max(rows.shape[1], 1), 1)
    result = np.empty(len(rows))
    for start in range(0, len(rows), step):
        result[start : start + step] = score(rows[start : start + step])
    return result


def as_points(rows: Floats, distance: Distance) -> Floats:
    """Points whose Euclidean distances say what this distance says, for methods that compute centroids.

    For the cosine these are the directions: the squared distance of two unit vectors is twice their cosine distance.
    """
    rows = distance.ready(rows)
    if isinstance(distance, Euclidean):
        return rows
    if isinstance(distance, Cosine):
        directions: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return directions
    raise BadInput(f"{name_of(distance)} has no centroids: euclidean and cosine work here")


def name_of(distance: Distance) -> str:
    """The name a distance has in a configuration."""
    return next((name for name, kind in DISTANCES.items() if type(distance) is kind), type(distance).__name__)


def finite(rows: Floats) -> Floats:
    """The rows, if all numbers are finite."""
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise BadInput(f"the trait of client {named(bad)} is not finite: leave it out, so that it is grouped at random")
    return rows


def not_negative(rows: Floats, what: str) -> Floats:
    bad = np.flatnonzero((finite(rows) < 0).any(axis=1))
    if len(bad):
        raise BadInput(
            f"the trait of client {named(bad)} has negative numbers, which {what} does not take: cosine works"
        )
    return rows


def as_shares(rows: Floats, what: str) -> Floats:
    """Rows that sum to 1."""
    totals = not_negative(rows, what).sum(axis=1, keepdims=True)
    zero = np.flatnonzero(totals == 0)
    if len(zero):
        raise BadInput(
            f"the trait of client {named(zero)} is all zeros, of which {what} cannot make shares: euclidean works"
        )
    result: Floats = rows / totals
    return result


def named(clients: NDArray[np.intp]) -> str:
    """The first few clients, for a message."""
    return ", ".join(map(str, clients[:10])) + (f" … ({len(clients)} in all)" if len(clients) > 10 else "")
