"""How good a grouping is, and what sequential-to-parallel training costs on paper: formulas, apart from any run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import BadInput, within

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def group_counts(counts: Counts, groups: Sequence[Sequence[int]]) -> Counts:
    """How many examples of each class every group has, from what every client has."""
    return np.stack([counts[list(group)].sum(axis=0) for group in groups])


def balance_ratio(counts: Counts) -> Floats:
    """Examples of the rarest class by those of the most frequent one, per row: 1 is even, 0 lacks a class
    (FedSeq 2022, Section IV-B3)."""
    ratio: Floats = counts.min(axis=1) / filled(counts).max(axis=1)
    return ratio


def covered_classes(counts: Counts) -> Floats:
    """The share of the classes that a row has at least one example of (FedSeq 2022, Section IV-B3)."""
    covered: Floats = (counts > 0).mean(axis=1)
    return covered


def class_distances(counts: Counts, width: float = 1.0) -> Floats:
    """CPD: how unlike the class mixes of every two rows are, row 0 with 1, 0 with 2, … (FedGSP 2022, Eq. 14).

    It is the squared maximum mean discrepancy of classes drawn from the two mixes. Paper: what the Gaussian kernel
    measures is not said; here a class is a unit vector, so that all classes are equally far apart, and then
    E[k(x, x')] - 2 E[k(x, y)] + E[k(y, y')] is (1 - exp(-1/width²)) Σ_c (p_c - q_c)².
    """
    from scipy.spatial.distance import pdist  # here, because importing it takes a quarter of a second

    within("width", width, above=0)
    mixes = counts / filled(counts).sum(axis=1, keepdims=True)
    distances: Floats = -math.expm1(-1 / width**2) * pdist(mixes, "sqeuclidean")
    return distances


@dataclass(frozen=True)
class Box:
    """How numbers are spread, as a box plot has it (FedGSP 2022, Fig. 3a): the quarters, the mean, and the last numbers
    on either side that are within one and a half times the length of the box."""

    low: float
    q1: float
    median: float
    q3: float
    high: float
    mean: float

    @classmethod
    def of(cls, values: Floats) -> Box | None:
        """None if there is no number. A quarter between two numbers lies on the line between them."""
        if not len(values):
            return None
        q1, median, q3 = (float(each) for each in np.percentile(values, (25, 50, 75)))
        reach = 1.5 * (q3 - q1)
        near = values[(values >= q1 - reach) & (values <= q3 + reach)]
        return cls(float(near.min()), q1, median, q3, float(near.max()), float(values.mean()))


def filled(counts: Counts) -> Counts:
    """The rows, if every one has examples."""
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if len(empty):
        raise BadInput(f"row {', '.join(map(str, empty[:10]))} of the label counts has no examples, so it has no mix")
    return counts


@dataclass(frozen=True)
class Machine:
    """The phone and the network that FedGSP 2022 (Section 4.1) estimates with: operations and bits per second."""

    operations: float = 567e9
    inbound: float = 567e6
    outbound: float = 567e6

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            within(name, value, above=0)


def computing_seconds(
    examples: Sequence[float],
    merged: Sequence[float],
    *,
    per_example: float = 96e6,
    per_merge: float = 6.3e6,
    machine: Machine = Machine(),
) -> float:
    """T_comp: chains run side by side, so a round takes as long as one of them; then its models are merged one by one
    (FedGSP 2022, Eq. 15).

    `examples` says for every round how many a chain trains on (neK / min{K, f(r)}), `merged` how many chains took part
    (κf(r)). The costs of an example and of a merge are in operations; the defaults are the paper's model.
    """
    operations = per_example * sum(examples) + per_merge * sum(count - 1 for count in merged)
    return operations / machine.operations


def communication_seconds(visits: float, model_bytes: float, machine: Machine = Machine()) -> float:
    """T_comm: every visit brings the model from the server and back (FedGSP 2022, Eq. 16, where `visits` = κKR)."""
    return 8 * visits * model_bytes * (1 / machine.inbound + 1 / machine.outbound)


def traffic_bytes(visits: float, model_bytes: float) -> float:
    """D_comm: the same in bytes (FedGSP 2022, Eq. 17)."""
    return 2 * visits * model_bytes


def parallelism(groups: Sequence[int]) -> float | None:
    """The mean number of groups over the rounds (FedSeq journal 2024, Table 5)."""
    return sum(groups) / len(groups) if groups else None


def parallelism_ratio(groups: float | None, base: float | None) -> float | None:
    """How many times as many groups train side by side as in the run it is compared with, on average over the rounds
    (FedSeq journal 2024, Table 5: FedSeq2Par against FedSeq)."""
    return None if groups is None or not base else groups / base


def speed_up(rounds: float | None, base: float | None) -> float | None:
    """How many times as fast as the run it is compared with, by the rounds that both took (FedSeq 2022, Table II); None
    where one of them never got there."""
    return None if not rounds or base is None else base / rounds


def rolling_mean(points: Sequence[tuple[int, float]], rounds: int) -> list[tuple[int, float]]:
    """The curve of a figure, each value the mean of all that the last `rounds` rounds have, its own among them.

    Points are a round and its value; rounds without a value count nothing, and at the beginning there are fewer.
    (Clustered sampling 2021, Fig. 2, has 50 rounds; FedSeq's published code 5.)
    """
    within("rounds", rounds, least=1)
    found: list[tuple[int, float]] = []
    recent: deque[tuple[int, float]] = deque()
    for round, value in points:
        recent.append((round, value))
        while recent[0][0] <= round - rounds:
            recent.popleft()
        found.append((round, sum(each for _, each in recent) / len(recent)))
    return found
