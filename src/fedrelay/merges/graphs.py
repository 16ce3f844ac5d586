"""Who exchanges models with whom, where there is no server: graphs over the clients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import BadInput, within

Links: TypeAlias = NDArray[np.bool_]
"""(client, other): whether the client gets the other's model; never its own."""
Weights: TypeAlias = NDArray[np.float64]

EXACT = 1e-6
"""Rows of a given matrix sum to 1, and mirror one another, up to this."""


class Graph(ABC):
    """Who exchanges models with whom. A frozen dataclass."""

    @abstractmethod
    def links(self, clients: int, rng: np.random.Generator, /) -> Links:
        """Who gets whose model in a round; one that draws draws from `rng`."""

    def given(self, clients: int, /) -> Weights | None:
        """The mixing matrix, if it is given along with the graph."""
        return None

    @property
    def changes(self) -> bool:
        """Whether it is another one every round, so that one round alone need not connect everybody."""
        return False


@dataclass(frozen=True)
class Complete(Graph):
    """Everybody with everybody: N(N - 1) messages a step."""

    def links(self, clients: int, rng: np.random.Generator, /) -> Links:
        return ~np.eye(clients, dtype=np.bool_)


@dataclass(frozen=True)
class Circle(Graph):
    """Everybody with the client before and the client after it; the last with the first."""

    def links(self, clients: int, rng: np.random.Generator, /) -> Links:
        return at_distances(clients, [1])


@dataclass(frozen=True)
class Torus(Graph):
    """Clients in `rows` of equal length, everybody with those above, below, left and right; the ends are joined.
    Without a number of rows, the torus that is nearest to a square."""

    rows: int | None = None

    def __post_init__(self) -> None:
        if self.rows is not None:
            within("rows", self.rows, least=2)

    def links(self, clients: int, rng: np.random.Generator, /) -> Links:
        rows = self.rows or max(side for side in range(1, math.isqrt(clients) + 1) if clients % side == 0)
        columns, rest = divmod(clients, rows)
        if rest or rows < 2 or columns < 2:
            asked = f"{rows} rows of at least 2" if self.rows else "at least 2 rows of at least 2"
            raise BadInput(f"a torus has {asked} clients, and {clients} clients do not fit: take ring, or exponential")
        place = np.arange(clients).reshape(rows, columns)
        found = np.zeros((clients, clients), dtype=np.bool_)
        for axis in (0, 1):
            for step in (-1, 1):
                found[place.ravel(), np.roll(place, step, axis).ravel()] = True
        return found


@dataclass(frozen=True)
class Exponential(Graph):
    """Everybody with those 1, 2, 4, 8 … places before and after it: few neighbours, and few steps from any client to
    any other (Ying et al. 2021, made symmetric)."""

    def links(self, clients: int, rng: np.random.Generator, /) -> Links:
        return at_distances(clients, [2**power for power in range(clients.bit_length()) if 2**power < clients])


@dataclass(frozen=True)
class Edges(Graph):
    """The pairs of clients in `edges`, such as [[0, 1], [1, 2]]; each goes both ways."""

    edges: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for edge in self.edges:
            if len(edge) != 2 or edge[0] == edge[1]:
                raise BadInput(f"every one of edges is a pair of two different clients, such as [0, 1], not {[*edge]}")

    def links(self, clients: int, rng: np.random.Generator, /) -> Links:
        found = np.zeros((clients, clients), dtype=np.bool_)
        for one, other in self.edges:
            if not 0 <= min(one, other) <= max(one, other) < clients:
                raise BadInput(
                    f"the edge [{one}, {other}] is of other clients than there are: {clients} clients are numbered 0 "
                    f"to {clients - 1}"
                )
            found[one, other] = found[other, one] = True
        return found


@dataclass(frozen=True)
class Matrix(Graph):
    """The mixing matrix itself, in `rows`: row by row, what a client's next model takes of every client's. It must be
    symmetric, not negative, and every row must sum to 1."""

    rows: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        size = len(self.rows)
        odd = next((number for number, row in enumerate(self.rows) if len(row) != size), None)
        if odd is not None or not size:
            found = "it is empty" if odd is None else f"row {odd} has {len(self.rows[odd])} of {size} numbers"
            raise BadInput(f"a mixing matrix has a row, and in it a number, for every client, but {found}")
        weights = np.array(self.rows, dtype=np.float64)
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise BadInput("the mixing matrix has a number that is negative or not finite: shares lie between 0 and 1")
        unlike = np.argwhere(np.abs(weights - weights.T) > EXACT)
        if len(unlike):
            one, other = (int(place) for place in unlike[0])
            raise BadInput(
                f"the mixing matrix is not symmetric: [{one}][{other}] is {weights[one, other]:g}, "
                f"[{other}][{one}] is {weights[other, one]:g}; what two clients take of one another must be the same"
            )
        wrong = np.flatnonzero(np.abs(weights.sum(axis=1) - 1) > EXACT)
        if len(wrong):
            raise BadInput(f"every row of a mixing matrix sums to 1, row {wrong[0]} to {weights[wrong[0]].sum():g}")

    def links(self, clients: int, rng: np.random.Generator, /) -> Links:
        return (self.given(clients) > 0) & ~np.eye(clients, dtype=np.bool_)

    def given(self, clients: int, /) -> Weights:
        if len(self.rows) != clients:
            raise BadInput(f"the mixing matrix is of {len(self.rows)} clients, and there are {clients}")
        return np.array(self.rows, dtype=np.float64)


@dataclass(frozen=True)
class RandomNeighbours(Graph):
    """Everybody draws `neighbours` others anew in every round, and gets their models. With metropolis weights it also
    sends them its own, so that both take the same of one another."""

    neighbours: int = 10

    def __post_init__(self) -> None:
        within("neighbours", self.neighbours, least=1)

    @property
    def changes(self) -> bool:
        return True

    def links(self, clients: int, rng: np.random.Generator, /) -> Links:
        found = np.zeros((clients, clients), dtype=np.bool_)
        for client in range(clients):
            others = np.delete(np.arange(clients), client)
            found[client, rng.permutation(others)[: self.neighbours]] = True
        return found


def at_distances(clients: int, distances: list[int]) -> Links:
    """Clients in a circle, everybody with those so many places before and after it."""
    place = np.arange(clients)
    found = np.zeros((clients, clients), dtype=np.bool_)
    for distance in distances:
        for other in (place + distance, place - distance):
            found[place, other % clients] = True
    np.fill_diagonal(found, val=False)
    return found


def unreached(links: Links) -> list[int]:
    """The clients that nothing of client 0 ever comes to."""
    seen, new = {0}, [0]
    while new:
        new = [int(other) for other in np.flatnonzero(links[:, new].any(axis=1)) if other not in seen]
        seen.update(new)
    return [client for client in range(len(links)) if client not in seen]


GRAPHS: dict[str, type[Graph]] = {
    "full": Complete,
    "ring": Circle,
    "torus": Torus,
    "exponential": Exponential,
    "edges": Edges,
    "matrix": Matrix,
    "random": RandomNeighbours,
}
"""What `graph = …` chooses from."""
