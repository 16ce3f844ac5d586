"""FedAvg: chains of one (McMahan et al. 2017)."""

from __future__ import annotations

from fedrelay.barrier import everyone
from fedrelay.merges import Mean
from fedrelay.plans import Singles
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def fedavg(*, local: Sgd = Sgd(), fraction: float = 0.2) -> Algorithm:
    """A fraction of the clients train alone; their models are averaged by examples."""
    return Algorithm(plan=Singles(fraction), update=local, merge=Mean(), barrier=everyone)
