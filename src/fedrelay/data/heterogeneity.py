"""How different the clients of a split are, in figures."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Federation

Floats = NDArray[np.float64]


class Spread(TypedDict):
    """The smallest, the middle and the largest of a number per client."""

    smallest: float
    median: float
    largest: float


class Mix(TypedDict):
    """How far the clients' label mixes are from the mix of all of them together."""

    classes_per_client: Spread
    total_variation: float
    jensen_shannon: float
    earth_mover: float


class Description(TypedDict):
    """What `describe` finds. `mix` is None where an example has no single class (next tokens, numbers)."""

    source: str
    clients: int
    examples: int
    unused: int
    repeated: int
    sizes: Spread
    gini: float
    mix: Mix | None
    fingerprint: str
    notes: list[str]


def describe(federation: Federation) -> Description:
    """Sizes, evenness and label skew of a split, before any training."""
    sizes = np.array(federation.sizes)
    distinct = len(np.unique(federation.order.numpy()))
    train = federation.source.train
    return {
        "source": federation.source.name,
        "clients": len(federation),
        "examples": len(federation.order),
        "unused": len(train) - distinct,
        "repeated": len(federation.order) - distinct,
        "sizes": spread(sizes),
        "gini": gini(sizes),
        "mix": mix_figures(federation.label_counts()) if train.classified else None,
        "fingerprint": federation.fingerprint,
        "notes": list(federation.source.notes),
    }


def mix_figures(counts: NDArray[np.int64]) -> Mix:
    """Means over the clients (each counts the same) of the distance from its label mix to that of all examples."""
    mixes, overall = label_mixes(counts), counts.sum(axis=0) / counts.sum()
    variation = total_variation(mixes, overall)
    return {
        "classes_per_client": spread((counts > 0).sum(axis=1)),
        "total_variation": float(variation.mean()),
        "jensen_shannon": float(jensen_shannon(mixes, overall).mean()),
        "earth_mover": float(2 * variation.mean()),
    }


def label_mixes(counts: NDArray[np.int64]) -> Floats:
    """Every client's share of each class: rows that sum to 1."""
    result: Floats = counts / counts.sum(axis=1, keepdims=True)
    return result


def total_variation(mixes: Floats, overall: Floats) -> Floats:
    """Half the sum of absolute differences: 0 for equal mixes, at most 1.

    Twice this is what Zhao et al. (2018) call the earth mover's distance of a client, so that is not computed again.
    """
    result: Floats = np.abs(mixes - overall).sum(axis=1) / 2
    return result


def jensen_shannon(mixes: Floats, overall: Floats) -> Floats:
    """The Jensen-Shannon divergence in bits: 0 for equal mixes, 1 for mixes without a common class."""
    from scipy.spatial.distance import jensenshannon  # here, because importing it takes a quarter of a second

    result: Floats = jensenshannon(mixes, np.broadcast_to(overall, mixes.shape), base=2, axis=1) ** 2
    return np.nan_to_num(result)  # rounding can leave the root of a number just below 0


def gini(sizes: NDArray[np.int64]) -> float:
    """The Gini coefficient of the client sizes: 0 when all are equal, towards 1 when one has nearly everything."""
    ordered = np.sort(sizes)
    count = len(ordered)
    ranks = np.arange(1, count + 1)
    return float(2 * (ranks * ordered).sum() / (count * ordered.sum()) - (count + 1) / count)


def spread(values: NDArray[np.int64]) -> Spread:
    return {"smallest": float(values.min()), "median": float(np.median(values)), "largest": float(values.max())}
