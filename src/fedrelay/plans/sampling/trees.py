"""From what is known of candidates to the tree of who is alike: Ward's hierarchical clustering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedrelay.plans.aside import aside
from fedrelay.plans.sampling.urns import Whole

# SciPy is imported where it is used, because that takes a quarter of a second.

Matrix = NDArray[np.float64]
Similarity = Literal["arccos", "l2", "l1"]
BLOCK = 256
MANY = 2000
"""Beyond so many, Ward's clustering takes long enough to be given a process of its own."""


def ward(rows: Matrix, places: Sequence[int], count: int, similarity: Similarity, *, elsewhere: bool = False) -> Whole:
    """The tree over `count` candidates, of which those at `places` are described by `rows` and the others by zeros.

    One row per merge, the two nodes that become one: leaves are 0 to count − 1, row j makes node count + j.
    `elsewhere` has a large clustering made in a process of its own; the result is the same.
    """
    if count == 1:
        return np.empty((0, 2), dtype=np.int64)
    rows, seen = without_zeros(rows, places)
    if not seen:  # nobody differs from anybody: one after another
        return np.column_stack([np.r_[0, count : 2 * count - 2], np.arange(1, count)])
    order = np.array([*seen, *sorted(set(range(count)) - set(seen))])
    # One thread: so the bits do not depend on the machine's cores, of which the training needs the others.
    with threadpool_limits(1, user_api="blas"):
        distances = condensed(rows, count, similarity)
    merges = link(distances, elsewhere=elsewhere and count > MANY)
    return np.where(merges < count, order[np.minimum(merges, count - 1)], merges)


def without_zeros(rows: Matrix, places: Sequence[int]) -> tuple[Matrix, list[int]]:
    """The rows that are not zero throughout, and their places."""
    kept = np.array([row.any() for row in rows], dtype=np.bool_)
    return rows if kept.all() else rows[kept], [place for place, keep in zip(places, kept, strict=True) if keep]


def condensed(rows: Matrix, count: int, similarity: Similarity) -> Matrix:
    """All distances between non-zero `rows`, followed by as many zero vectors as make `count`, above the diagonal.

    Paper: the angle to a zero vector is not defined; a right angle keeps those who were never drawn together, and apart
    from everybody else.
    """
    result = np.zeros(count * (count - 1) // 2)
    squares = np.einsum("ij,ij->i", rows, rows)
    if similarity == "arccos":
        from_zero = np.full(len(rows), np.pi / 2)
    else:
        from_zero = np.sqrt(squares) if similarity == "l2" else np.array([np.abs(row).sum() for row in rows])
    start = 0
    for first, block in blocks(rows, squares, similarity):
        for offset, distances in enumerate(block):
            known = len(rows) - first - offset - 1
            end = start + known + count - len(rows)
            result[start : start + known] = distances[offset + 1 :]
            result[start + known : end] = from_zero[first + offset]
            start = end
    return result


def blocks(rows: Matrix, squares: Matrix, similarity: Similarity) -> Iterator[tuple[int, Matrix]]:
    """The distances of a few rows at a time to themselves and all later ones; `squares` are the rows' squared norms."""
    from scipy.spatial.distance import cdist

    for first in range(0, len(rows), BLOCK):
        some, later = rows[first : first + BLOCK], rows[first:]
        if similarity == "l1":
            yield first, cdist(some, later, "cityblock")
            continue
        products = some @ later.T
        one, other = squares[first : first + BLOCK, None], squares[None, first:]
        if similarity == "l2":
            yield first, np.sqrt(np.maximum(one + other - 2 * products, 0))
        else:
            yield first, np.arccos(np.clip(products / (np.sqrt(one) * np.sqrt(other)), -1, 1))


def published_ward(rows: Matrix, places: Sequence[int], count: int, similarity: Similarity) -> Whole:
    """The tree as the authors' code makes it: Ward's clustering of the *rows of the distance matrix* as if they were
    observations, with angles to zero vectors 0 and L2 distances squared. For comparison only."""
    from scipy.spatial.distance import pdist, squareform

    square = np.zeros((count, count))
    if len(rows) and count > 1:
        whole = np.zeros((count, rows.shape[1]))
        whole[list(places)] = rows
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
    return aside(linked, distances) if elsewhere else linked(distances)


def linked(distances: Matrix) -> Whole:
    """SciPy's own clustering of condensed distances, the two nodes of every merge."""
    from scipy.cluster.hierarchy import linkage

    merges: Whole = linkage(distances, "ward")[:, :2].astype(np.int64)
    return merges
