"""How well scores tell members from others: pure functions of two lists of numbers.

A score says how much an example looks like one that was trained on; whoever guesses calls those above a threshold
members. TPR is the share of members that are called so, FPR the share of others.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def auc(members: Floats, others: Floats) -> float:
    """The probability that a member has a higher score than another; of equals each counts half (Mann-Whitney)."""
    from scipy.stats import rankdata  # here, because every command would wait for SciPy

    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    return float((ranks.sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others)))


def deviation_of_nothing(members: int, others: int) -> float:
    """The standard deviation that the AUC of so many scores has where both are of one kind."""
    return math.sqrt((members + others + 1) / (12 * members * others))


def rates(members: Floats, others: Floats) -> tuple[Floats, Floats]:
    """FPR and TPR at every threshold there is, from the strictest to none."""
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    above = [len(some) - np.searchsorted(np.sort(some), thresholds, side="left") for some in (others, members)]
    fpr, tpr = (
        np.concatenate([[0.0], count / len(some)]) for count, some in zip(above, (others, members), strict=True)
    )
    return fpr, tpr


def advantage(members: Floats, others: Floats) -> float:
    """The most that TPR is above FPR, over all thresholds (Yeom et al. 2018). Of few scores it is above 0 even where
    both are of one kind: a threshold is chosen among them."""
    fpr, tpr = rates(members, others)
    return float((tpr - fpr).max())


def tpr_at(members: Floats, others: Floats, fpr: float) -> float:
    """The highest TPR at no more than this FPR (Carlini et al. 2022)."""
    false, true = rates(members, others)
    return float(true[false <= fpr].max())


def most_advantage(epsilon: float, delta: float) -> float:
    """The most advantage that anybody has over a mechanism with (epsilon, delta)-differential privacy: where the lines
    TPR = e^ε FPR + δ and 1 - FPR = e^ε (1 - TPR) + δ cross (Kairouz et al. 2015; Humphries et al. 2023)."""
    if not math.isfinite(epsilon):
        return 1.0
    return min(math.tanh(epsilon / 2) + 2 * delta / (1 + math.exp(min(epsilon, 700.0))), 1.0)
