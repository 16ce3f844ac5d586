"""IDA: models far from the others count less (Yeganeh et al. 2020)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from fedrelay.algorithms.fedavg import fedavg
from fedrelay.merges import InverseDistance
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def ida(*, local: Sgd = Sgd(), fraction: float = 0.2, norm: Literal[1, 2] = 1, by_examples: bool = False) -> Algorithm:
    """FedAvg whose weights are the inverse distances of the models from their mean.

    When some clients are noisy or very different, and those are not the ones that matter.
    """
    return replace(fedavg(local=local, fraction=fraction), merge=InverseDistance(norm, by_examples))
