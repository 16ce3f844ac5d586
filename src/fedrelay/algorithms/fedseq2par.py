"""FedSeq2Par: few long chains first, more and shorter ones later (FedSeq journal 2024, Section III-C3)."""

from __future__ import annotations

from fedrelay.algorithms.fedavg import merge_for
from fedrelay.merges.barriers import everyone
from fedrelay.plans import Distance, Exponential, Grouper, Growth, Icg, Moment, Regrouped, Trait, criteria
from fedrelay.plans.sampling import Sampler, Uniform
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def fedseq2par(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.2,
    laps: int = 1,
    growth: Growth = Exponential(beta=5, alpha=0.015),
    regroup: Moment = "growth",
    traits: Trait | None = None,
    distance: Distance | None = None,
    grouper: Grouper | None = None,
    sampler: Sampler = Uniform(),
) -> Algorithm:
    """As fedseq, with a number of groups that grows: clients are regrouped whenever it does.

    Without `traits` the groups are random; with traits they are made by inter-cluster grouping (icg) unless another
    `grouper` is named. A growth that has everybody alone by the last round is a good one to begin with.
    """
    grouper = Icg() if grouper is None and traits is not None else grouper
    plan = Regrouped(growth, criteria(traits, distance, grouper, local), fraction, laps, regroup, sampler=sampler)
    return Algorithm(plan=plan, update=local, merge=merge_for(sampler), barrier=everyone)
