"""FedCyclic: one chain, no averaging (FedSeq journal 2024, Section IV: FedSeq with one superclient)."""

from __future__ import annotations

from fedrelay.merges import Mean
from fedrelay.merges.barriers import everyone
from fedrelay.plans import Ring
from fedrelay.plans.sampling import Sampler, Uniform
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def fedcyclic(*, local: Sgd = Sgd(), fraction: float = 0.2, laps: int = 1, sampler: Sampler = Uniform()) -> Algorithm:
    """A fraction of the clients relay the model in one chain; the last model is the next one."""
    return Algorithm(plan=Ring(fraction, laps, sampler), update=local, merge=Mean(), barrier=everyone)
