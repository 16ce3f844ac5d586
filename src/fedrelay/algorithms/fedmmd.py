"""FedMMD: features must not move away from the received model's (Yao et al. 2018)."""

from __future__ import annotations

from typing import Literal

from fedrelay.algorithms.fedavg import fedavg
from fedrelay.types import Algorithm
from fedrelay.visits.objectives import Discrepancy
from fedrelay.visits.sgd import Sgd, minimising


def fedmmd(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.2,
    weight: float = 0.1,
    between: Literal["features", "logits"] = "features",
    widths: tuple[float, ...] = (1.0,),
) -> Algorithm:
    """Clients keep their features distributed like the received model's (maximum mean discrepancy).

    When weights may move but what they compute should not; every step also runs the received model.
    """
    return fedavg(local=minimising(local, Discrepancy(weight, between, widths)), fraction=fraction)
