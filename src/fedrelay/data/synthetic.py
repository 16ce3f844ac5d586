"""Data made from a seed: of any shape and size for measurements, and quadratic clients whose optimum is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fedrelay import seeds
from fedrelay.data.federation import Examples, Source
from fedrelay.errors import LARGEST, BadInput, within

Floats = NDArray[np.float64]


def synthetic(
    *,
    examples: int = 1000,
    shape: Sequence[int] = (3, 32, 32),
    classes: int = 10,
    test_examples: int = 200,
    separation: float = 4.0,
    seed: int = 0,
) -> Source:
    """Unit noise around one mean per class, `separation` away from zero; an image is (channels, height, width)."""
    for name, value in (("examples", examples), ("classes", classes), ("test_examples", test_examples)):
        if value < 1:
            raise BadInput(f"synthetic data needs {name} of at least 1, found {value}")
    within("the separation of synthetic data", separation)
    if not shape or min(shape) < 1:
        raise BadInput(f"synthetic data needs a shape of positive sides such as (3, 32, 32), found {tuple(shape)}")
    if max(examples, test_examples, classes) * math.prod(shape) >= LARGEST // 8:
        raise BadInput(f"synthetic data of {examples:,} examples of shape {tuple(shape)} is too large for any machine")
    stored = (shape[1], shape[2], shape[0]) if len(shape) == 3 else tuple(shape)
    means = seeds.rng(seed, "synthetic", "means").standard_normal((classes, math.prod(stored)), dtype=np.float32)
    means *= separation / np.linalg.norm(means, axis=1, keepdims=True)

    def part(name: str, size: int) -> Examples:
        rng = seeds.rng(seed, "synthetic", name)
        labels = rng.permutation(np.arange(size) % classes)
        x = rng.standard_normal((size, means.shape[1]), dtype=np.float32)
        for label in range(classes):  # class by class, so that the means are never as large as the data
            x[labels == label] += means[label]
        return Examples(torch.from_numpy(x).view(size, *stored), torch.from_numpy(labels))

    return Source("synthetic", train=part("train", examples), test=part("test", test_examples), classes=classes)


def quadratic(
    *, clients: int = 3, dimension: int = 2, examples: int = 10, spread: float = 1.0, seed: int = 0
) -> Source:
    """Clients with the loss ½ (w - b)ᵀ A (w - b); `spread` = 0 makes them equal, a larger one more different.

    The eigenvalues of every A lie between 1 and 4 whatever the spread, so plain steps below 0.5 never diverge.
    """
    for name, value in (("clients", clients), ("dimension", dimension), ("examples", examples)):
        if value < 1:
            raise BadInput(f"quadratic data needs {name} of at least 1, found {value}")
    if not (math.isfinite(spread) and spread >= 0):
        raise BadInput(f"the spread of quadratic clients must be 0 or more, found {spread}")
    row = dimension * (dimension + 1)
    if clients * examples * row >= LARGEST // 8:
        raise BadInput(f"{clients:,} quadratic clients of {row:,} numbers each are too large for any machine")
    np.empty((clients * examples, row), dtype=np.float32)  # what memory cannot hold is refused before the work
    rng = seeds.rng(seed, "quadratic")
    matrix, centre = _curvature(dimension, rng), rng.standard_normal(dimension)
    own = spread / (1 + spread)
    matrices = [(1 - own) * matrix + own * _curvature(dimension, rng) for _ in range(clients)]
    centres = [centre + spread * rng.standard_normal(dimension) for _ in range(clients)]
    return quadratic_of(matrices, centres, [examples] * clients)


def quadratic_of(matrices: Sequence[ArrayLike], centres: Sequence[ArrayLike], sizes: Sequence[int]) -> Source:
    """Client i has `sizes[i]` equal rows (b_i, A_i row by row); the test part is all rows, so its mean loss is the
    objective weighted by size."""
    if not len(matrices) == len(centres) == len(sizes) or not len(sizes):
        raise BadInput(
            f"quadratic clients need one matrix, one centre and one size each, "
            f"found {len(matrices)}, {len(centres)} and {len(sizes)}"
        )
    if min(sizes) < 1:
        raise BadInput(f"quadratic client {int(np.argmin(sizes))} has {min(sizes)} examples: at least 1 is needed")
    rows = np.stack([_row(client, a, b) for client, (a, b) in enumerate(zip(matrices, centres, strict=True))])
    owners = np.repeat(np.arange(len(sizes)), sizes)
    examples = Examples(torch.from_numpy(rows[owners].astype(np.float32)), torch.zeros(len(owners), dtype=torch.int64))
    return Source("quadratic", train=examples, test=examples, classes=1, owners=owners)


def optimum(matrices: Sequence[ArrayLike], centres: Sequence[ArrayLike], weights: Sequence[float]) -> Floats:
    """Where the weighted sum of the quadratic clients is smallest: (Σ p A)⁻¹ Σ p A b."""
    a, b = np.asarray(matrices, dtype=np.float64), np.asarray(centres, dtype=np.float64)
    p = np.asarray(weights, dtype=np.float64)
    result: Floats = np.linalg.solve(np.einsum("i,ijk->jk", p, a), np.einsum("i,ijk,ik->j", p, a, b))
    return result


def _row(client: int, matrix: ArrayLike, centre: ArrayLike) -> Floats:
    a, b = np.asarray(matrix, dtype=np.float64), np.asarray(centre, dtype=np.float64)
    if b.ndim != 1 or a.shape != (len(b), len(b)):
        raise BadInput(
            f"quadratic client {client} has a matrix of shape {a.shape} and a centre of shape {b.shape}: "
            "expected (d, d) and (d,)"
        )
    return np.concatenate([b, a.ravel()])


def _curvature(dimension: int, rng: np.random.Generator) -> Floats:
    """A random symmetric matrix with eigenvalues between 1 and 4."""
    basis, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    matrix: Floats = (basis * rng.uniform(1, 4, dimension)) @ basis.T
    return (matrix + matrix.T) / 2
