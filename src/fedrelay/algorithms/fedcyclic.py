"""FedCyclic: one chain, no averaging (FedSeq journal 2024, Section IV: FedSeq with one superclient)."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.plans import Ring


def fedcyclic(*, laps: int = 1) -> Change:
    """A fraction of the clients relay the model in one chain; the last model is the next one.

    When clients can reach one another and rounds may take long: the quickest start, no parallel work.

    Args:
        laps: how often the chain goes through its clients in a round.

    Reference: [Silvi et al. 2024](https://doi.org/10.1109/ACCESS.2024.3387453), Section IV
    """
    return Change(plan=Ring(laps=laps))
