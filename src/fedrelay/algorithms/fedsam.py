"""FedSAM: clients look for flat minima."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.visits.terms import Sharpness


def fedsam(*, rho: float = 0.05) -> Change:
    """Every step follows the gradient found a little uphill, so that models end in flat places, where means are good.

    When the mean of good models is bad; every step costs two.

    Papers: rho 0.05 (Foret et al. 2021)

    Args:
        rho: how far uphill; 0 is FedAvg.

    Reference: [Qu et al. 2022](https://arxiv.org/abs/2206.02618), [Caldarola et al. 2022](https://arxiv.org/abs/2203.11834)
    """
    return Change(terms=(Sharpness(rho),))
