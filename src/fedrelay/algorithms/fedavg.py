"""FedAvg: chains of one (McMahan et al. 2017)."""

from __future__ import annotations

from fedrelay.merges import Mean, WithAbsent
from fedrelay.merges.barriers import everyone
from fedrelay.plans import Singles
from fedrelay.plans.sampling import Original, Sampler, Uniform
from fedrelay.types import Algorithm, Merge
from fedrelay.visits.sgd import Sgd


def fedavg(*, local: Sgd = Sgd(), fraction: float = 0.2, sampler: Sampler = Uniform()) -> Algorithm:
    """A fraction of the clients train alone; their models are averaged by examples."""
    return Algorithm(plan=Singles(fraction, sampler), update=local, merge=merge_for(sampler), barrier=everyone)


def merge_for(sampler: Sampler) -> Merge:
    """The mean of the models, with the old one for those who were not drawn if the sampler wants it so."""
    return WithAbsent() if isinstance(sampler, Original) else Mean()
