"""FedProx: a spring to the model received (FedSeq 2022, Eqs. 4-5)."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.visits.terms import Proximal


def fedprox(*, mu: float = 0.01) -> Change:
    """A spring holds clients to the model they received, so that nobody drifts far.

    When local training is long or clients do unequal amounts of it; it keeps nothing and costs nothing.

    Papers: mu 0.01; with fedseqinter 1 (FedSeq 2022)

    Args:
        mu: how strong the spring is; 0 is FedAvg.

    Reference: [Li et al. 2020](https://arxiv.org/abs/1812.06127)
    """
    return Change(terms=(Proximal(mu),))
