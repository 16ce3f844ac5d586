"""Ward's clustering of very many candidates, by way of kinds: few clusters of k-means, which Ward's then joins.

The distances of every two of 100,000 candidates would take 40 GB. Those of every two of 1,000 kinds do not, and a kind
counts in Ward's criterion as all the candidates that it has.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay import seeds

Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]
Whole = NDArray[np.int64]
ITERATIONS = 4
BLOCK = 4096
"""So many candidates are compared with all kinds at a time."""


def tree_of_kinds(rows: Floats, places: Whole, count: int, similarity: Literal["arccos", "l2"], kinds: int) -> Whole:
    """The tree over `count` candidates: those at `places`, none of them zero, and the others, which are all alike.

    Angles are those between lengths of one. The others are a kind of their own: at a right angle to everybody, or
    where zero is.
    """
    points = rows if similarity == "l2" else rows / np.linalg.norm(rows, axis=1, keepdims=True)
    labels, centres = kinds_of(points, min(kinds, len(points)))
    members = [places[labels == kind] for kind in range(len(centres))]
    others = np.setdiff1d(np.arange(count), places)
    if len(others):
        members.append(others)
    distances = between(centres.astype(np.float64), similarity, zero=bool(len(others)))
    merges = Merges(count)
    nodes = [merges.paired(one) for one in members]
    for left, right in weighted_ward(distances, np.array([float(len(one)) for one in members])):
        nodes.append(merges.add(nodes[left], nodes[right]))
    return merges.rows()


def kinds_of(points: Floats, count: int) -> tuple[Whole, Floats]:
    """The kind of every point, and the mean of every kind, by a few turns of k-means; none of them is empty."""
    if count == len(points):
        return np.arange(count), points
    chosen = seeds.rng(0, "kinds", len(points), count).choice(len(points), count, replace=False)
    centres = points[np.sort(chosen)]
    for _ in range(ITERATIONS):
        labels = nearest(points, centres)
        kept, labels = np.unique(labels, return_inverse=True)
        order, starts = np.argsort(labels, kind="stable"), np.searchsorted(np.sort(labels), np.arange(len(kept)))
        sums = np.add.reduceat(points[order], starts, axis=0)
        centres = (sums / np.bincount(labels)[:, None]).astype(np.float32)
    return labels.astype(np.int64), centres


def nearest(points: Floats, centres: Floats) -> Whole:
    """The centre next to every point."""
    lengths = np.einsum("ij,ij->i", centres, centres)
    found = [
        np.argmin(lengths - 2 * (points[start : start + BLOCK] @ centres.T), axis=1)
        for start in range(0, len(points), BLOCK)
    ]
    return np.concatenate(found)


def between(centres: Matrix, similarity: Literal["arccos", "l2"], *, zero: bool) -> Matrix:
    """The distances of every two kinds; with `zero`, also of the one that is zero, the last."""
    products = centres @ centres.T
    lengths = np.sqrt(np.diagonal(products))
    if similarity == "arccos":
        with np.errstate(invalid="ignore", divide="ignore"):  # opposite clients may have no direction in common
            cosines = np.nan_to_num(products / np.outer(lengths, lengths), nan=0.0)
        found, from_zero = np.arccos(np.clip(cosines, -1, 1)), np.full(len(centres), np.pi / 2)
    else:
        squares = lengths**2
        found, from_zero = np.sqrt(np.maximum(squares[:, None] + squares - 2 * products, 0)), lengths
    if zero:
        found = np.block([[found, from_zero[:, None]], [from_zero[None], np.zeros((1, 1))]])
    np.fill_diagonal(found, 0)
    return np.asarray(found, dtype=np.float64)


def weighted_ward(distances: Matrix, sizes: Matrix) -> list[tuple[int, int]]:
    """Ward's merges of points that stand for so many each, in an order in which parts come before what they make.

    By chains of nearest neighbours (Murtagh 1983), with the recurrence of Lance and Williams. Of points that stand for
    one each it is the tree that SciPy makes.
    """
    count = len(sizes)
    # What a merge adds to the sum of squares, twice: of two points, the square of their distance.
    cost = distances**2 * 2 * sizes[:, None] * sizes / (sizes[:, None] + sizes)
    np.fill_diagonal(cost, np.inf)
    size, node = sizes.copy(), list(range(count))
    merges, chain = list[tuple[int, int]](), list[int]()
    left = np.ones(count, dtype=bool)
    while len(merges) < count - 1:
        if not chain:
            chain.append(int(np.argmax(left)))
        while True:
            last = chain[-1]
            best = int(np.argmin(cost[last]))
            if len(chain) > 1 and cost[last, best] >= cost[last, chain[-2]]:
                best = chain[-2]
                break
            chain.append(best)
        last = chain.pop()
        chain.pop()
        merges.append((node[best], node[last]))
        total = size[best] + size[last] + size
        joined = (size[best] + size) * cost[best] + (size[last] + size) * cost[last] - size * cost[best, last]
        joined = np.where(left, joined / total, np.inf)
        joined[[best, last]] = np.inf
        cost[best], cost[:, best] = joined, joined
        cost[last], cost[:, last] = np.inf, np.inf
        size[best] += size[last]
        left[last], node[best] = False, count + len(merges) - 1
    return merges


class Merges:
    """The rows of a tree over so many leaves, as they are added."""

    def __init__(self, leaves: int) -> None:
        self._next = leaves
        self._rows: list[Whole] = []

    def add(self, left: int, right: int) -> int:
        """Join two nodes; the new one."""
        self._rows.append(np.array([[left, right]]))
        self._next += 1
        return self._next - 1

    def paired(self, nodes: Whole) -> int:
        """Join all of these, who are alike: neighbours first, then pairs of neighbours, and so on; the last one. So a
        kind that is too heavy for an urn falls into few parts."""
        while len(nodes) > 1:
            pairs = nodes[: len(nodes) // 2 * 2].reshape(-1, 2)
            made = np.arange(self._next, self._next + len(pairs))
            self._rows.append(pairs)
            self._next += len(pairs)
            nodes = np.concatenate([made, nodes[2 * len(pairs) :]])
        return int(nodes[0])

    def rows(self) -> Whole:
        return np.concatenate(self._rows)
