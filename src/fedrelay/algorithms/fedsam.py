"""FedSAM: clients look for flat minima (Qu et al. 2022; Caldarola et al. 2022)."""

from __future__ import annotations

from dataclasses import replace

from fedrelay.algorithms.fedavg import fedavg
from fedrelay.errors import BadInput, within
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def fedsam(*, local: Sgd = Sgd(), fraction: float = 0.2, rho: float = 0.05) -> Algorithm:
    """Every step follows the gradient found a little uphill, so that models end in flat places, where means are good.

    When the mean of good models is bad; every step costs two.
    """
    within("rho", rho, least=0)
    if local.sam not in (0, rho):
        raise BadInput(f"the radius is said twice: rho = {rho:g} of fedsam and sam = {local.sam:g} of [local]; say one")
    return fedavg(local=replace(local, sam=rho), fraction=fraction)
