"""From what is known of candidates to the tree of who is alike: Ward's hierarchical clustering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedrelay.plans.background import in_process
from fedrelay.plans.sampling.kinds import tree_of_kinds
from fedrelay.plans.sampling.urns import Whole

# SciPy is imported where it is used, because that takes a quarter of a second.

Matrix = NDArray[np.float64]
Rows = Sequence[NDArray[np.floating[Any]]] | Matrix
"""Vectors of one length in single or double precision, which need not lie together."""
Similarity = Literal["arccos", "l2", "l1"]
BLOCK = 256
WIDE = 4096
"""So many rows and columns are compared at a time: a copy of all gradients in double precision would take longer to
make than the distances take to compute."""
MANY = 2000
"""Beyond so many, Ward's clustering takes long enough to be given a process of its own."""
FARTHEST = 10_000
"""Beyond so many, there is no room for the distances of every two of them."""
KINDS = 1000
"""Into so many kinds they are put then."""


def ward(
    rows: Rows,
    places: Sequence[int],
    count: int,
    similarity: Similarity,
    *,
    kinds: int | None = None,
    elsewhere: bool = False,
) -> Whole:
    """The tree over `count` candidates, of which those at `places` are described by `rows` and the others by zeros.

    One row per merge, the two nodes that become one: leaves are 0 to count − 1, row j makes node count + j. With a
    number of `kinds`, candidates are put into so many kinds first, of which the tree is made. `elsewhere` has a large
    clustering made in a process of its own; the result is the same.
    """
    if count == 1:
        return np.empty((0, 2), dtype=np.int64)
    rows, seen = without_zeros(rows, places)
    if not seen:  # nobody differs from anybody: one after another
        return np.column_stack([np.r_[0, count : 2 * count - 2], np.arange(1, count)])
    if kinds is not None and similarity != "l1":  # which is refused with kinds
        with threadpool_limits(1, user_api="blas"):
            return tree_of_kinds(np.array(rows, dtype=np.float32), np.array(seen), count, similarity, kinds)
    order = np.array([*seen, *sorted(set(range(count)) - set(seen))])
    # One thread: so the bits do not depend on the machine's cores, of which the training needs the others.
    with threadpool_limits(1, user_api="blas"):
        distances = condensed(rows, count, similarity)
    merges = link(distances, elsewhere=elsewhere and count > MANY)
    return np.where(merges < count, order[np.minimum(merges, count - 1)], merges)


def without_zeros(rows: Rows, places: Sequence[int]) -> tuple[Rows, list[int]]:
    """The rows that are not zero throughout, and their places."""
    kept = [(row, place) for row, place in zip(rows, places, strict=True) if row.any()]
    return [row for row, _ in kept], [place for _, place in kept]


def condensed(rows: Rows, count: int, similarity: Similarity) -> Matrix:
    """All distances between non-zero `rows`, followed by as many zero vectors as make `count`, above the diagonal.

    Paper: the angle to a zero vector is not defined; a right angle keeps those who were never drawn together, and apart
    from everybody else.
    """
    result = np.zeros(count * (count - 1) // 2)
    norms = np.array([np.linalg.norm(row.astype(np.float64), 1 if similarity == "l1" else 2) for row in rows])
    from_zero = np.full(len(rows), np.pi / 2) if similarity == "arccos" else norms
    start = 0
    for first, block in blocks(rows, norms, similarity):
        for offset, distances in enumerate(block):
            known = len(rows) - first - offset - 1
            end = start + known + count - len(rows)
            result[start : start + known] = distances[offset + 1 :]
            result[start + known : end] = from_zero[first + offset]
            start = end
    return result


def blocks(rows: Rows, norms: Matrix, similarity: Similarity) -> Iterator[tuple[int, Matrix]]:
    """The distances of a few rows at a time to themselves and all later ones; `norms` are the rows' lengths."""
    for first, sums in compared(rows, similarity):
        if similarity == "l1":
            yield first, sums
            continue
        one, other = norms[first : first + BLOCK, None], norms[None, first:]
        if similarity == "l2":
            yield first, np.sqrt(np.maximum(one**2 + other**2 - 2 * sums, 0))
        else:
            yield first, np.arccos(np.clip(sums / (one * other), -1, 1))


def compared(rows: Rows, similarity: Similarity) -> Iterator[tuple[int, Matrix]]:
    """The L1 distances, or else the scalar products, of a few rows at a time with themselves and all later ones. What
    is given is written over by the next."""
    from scipy.spatial.distance import cdist

    count, width = len(rows), len(rows[0])
    numbers = np.empty((count, min(WIDE, width)))
    found, part = np.empty((2, min(BLOCK, count) * count))
    for first in range(0, count, BLOCK):
        shape = min(BLOCK, count - first), count - first
        total, more = (space[: shape[0] * shape[1]].reshape(shape) for space in (found, part))
        total[:] = 0
        for start in range(0, width, WIDE):
            there = numbers[first:, : min(WIDE, width - start)]
            if first == 0 or width > WIDE:  # else they are still there
                for place, row in enumerate(rows[first:]):
                    there[place] = row[start : start + WIDE]
            some = there[: shape[0]]
            total += cdist(some, there, "cityblock", out=more) if similarity == "l1" else np.matmul(some, there.T, more)
        yield first, total


def published_ward(rows: Rows, places: Sequence[int], count: int, similarity: Similarity) -> Whole:
    """The tree as the authors' code makes it: Ward's clustering of the *rows of the distance matrix* as if they were
    observations, with angles to zero vectors 0 and L2 distances squared. For comparison only."""
    from scipy.spatial.distance import pdist, squareform

    square = np.zeros((count, count))
    if len(rows) and count > 1:
        whole = np.zeros((count, len(rows[0])))
        whole[list(places)] = np.array(rows)
        seen = whole.any(axis=1)
        square[np.ix_(seen, seen)] = squareform(condensed(whole[seen], int(seen.sum()), similarity))
        if similarity != "arccos":
            from_zero = np.linalg.norm(whole, ord=1 if similarity == "l1" else 2, axis=1)
            square[:, ~seen], square[~seen] = from_zero[:, None], from_zero
        if similarity == "l2":
            square **= 2
    return linked(pdist(square))  # the distances between rows of distances


def link(distances: Matrix, *, elsewhere: bool) -> Whole:
    """Ward's merges. SciPy holds Python's lock while it works, so where training must go on meanwhile it works in
    another process."""
    return in_process(linked, distances) if elsewhere else linked(distances)


def linked(distances: Matrix) -> Whole:
    """SciPy's own clustering of condensed distances, the two nodes of every merge."""
    from scipy.cluster.hierarchy import linkage

    merges: Whole = linkage(distances, "ward")[:, :2].astype(np.int64)
    return merges
