"""FedMMD: features must not move away from the received model's."""

from __future__ import annotations

from typing import Literal

from fedrelay.algorithms.change import Change
from fedrelay.visits.loss_terms import Discrepancy


def fedmmd(
    *,
    weight: float = 0.1,
    between: Literal["features", "logits"] = "features",
    widths: tuple[float, ...] = (),
    kernel: Literal["median", "published"] = "median",
) -> Change:
    """Clients keep their features distributed like the received model's (maximum mean discrepancy).

    When weights may move but what they compute should not; every step also runs the received model.

    Papers: weight 0.1 (Yao et al. 2018)

    Args:
        weight: how much the discrepancy counts beside the loss; 0 is FedAvg.
        between: what is compared.
        widths: of the Gaussians that the kernel is a sum of, if you give some.
        kernel: otherwise: one Gaussian, as wide as the median of the squared distances in the batch, or the nineteen
            of the authors' code.

    Reference: [Yao et al. 2018](https://doi.org/10.1109/VCIP.2018.8698609)
    """
    return Change(terms=(Discrepancy(weight, between, widths, kernel),))
