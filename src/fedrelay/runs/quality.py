"""How good a model is, beyond one number: how clients differ, which classes are confused, whether it is too sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 15
"""As many as (Guo et al. 2017, On calibration of modern neural networks) has."""


@dataclass(frozen=True)
class Spread:
    """How a figure is spread over clients, each counted once however many examples it has."""

    clients: int
    mean: float
    worst: float
    p10: float
    p50: float
    p90: float
    best: float
    deviation: float
    """The standard deviation over these clients."""

    @classmethod
    def of(cls, values: Sequence[float], *, higher_is_better: bool) -> Spread | None:
        """None if there is no value. A percentile between two clients lies on the line between them."""
        if not values:
            return None
        found = np.asarray(values, dtype=np.float64)
        low, middle, high = (float(each) for each in np.percentile(found, (10, 50, 90)))
        ends = (float(found.min()), float(found.max()))
        worst, best = ends if higher_is_better else reversed(ends)
        return cls(len(found), float(found.mean()), worst, low, middle, high, best, float(found.std()))


@dataclass(frozen=True)
class Bin:
    """The examples of which the model was about equally sure."""

    examples: int
    confidence: float
    """The mean chance that it gave its answer."""
    accuracy: float
    """How often it was right."""


@dataclass(frozen=True)
class Calibration:
    """Whether a model is as often right as it is sure: the expected calibration error, and what it is made of."""

    error: float
    bins: tuple[Bin, ...]
    """From unsure to sure; those without an example are left out."""


def confusion(target: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """How many examples of each class (rows) were taken for which one (columns)."""
    counts = np.bincount(target * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.int64)


def calibration(confidence: NDArray[np.float64], right: NDArray[np.bool_], bins: int = BINS) -> Calibration:
    """From the chance that the model gave each of its answers, and whether it was right.

    Bins are equally wide, open below and closed above; the error is the mean gap between confidence and accuracy, by
    the number of examples (Guo et al. 2017, Eq. 3).
    """
    if not len(confidence):
        raise ValueError("there are no answers to judge")
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    sure, good = (np.bincount(place, weights=each, minlength=bins) for each in (confidence, right.astype(np.float64)))
    found = tuple(
        Bin(int(counts[each]), float(sure[each] / counts[each]), float(good[each] / counts[each]))
        for each in np.flatnonzero(counts)
    )
    return Calibration(float(np.abs(sure - good).sum() / len(confidence)), found)
