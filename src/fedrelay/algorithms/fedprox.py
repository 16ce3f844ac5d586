"""FedProx: a pull towards the model received (Li et al. 2020; FedSeq 2022, Eqs. 4-5)."""

from __future__ import annotations

from dataclasses import replace

from fedrelay.algorithms.fedavg import fedavg
from fedrelay.types import Algorithm
from fedrelay.visits.pulls import Proximal, stacked
from fedrelay.visits.sgd import Sgd


def fedprox(*, local: Sgd = Sgd(), fraction: float = 0.2, mu: float = 0.01) -> Algorithm:
    """A spring holds clients to the model they received, so that nobody drifts far.

    When local training is long or clients do unequal amounts of it; it keeps nothing and costs nothing.
    """
    return fedavg(local=replace(local, pull=stacked(local.pull, Proximal(mu))), fraction=fraction)
