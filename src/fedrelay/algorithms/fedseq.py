"""FedSeq: unlike clients form groups (superclients) that train one model in sequence (FedSeq 2022, Alg. 1)."""

from __future__ import annotations

from fedrelay.algorithms.fedavg import merge_for
from fedrelay.merges.barriers import everyone
from fedrelay.plans import Distance, Grouper, Superclients, Trait, criteria, limits_of
from fedrelay.plans.sampling import Sampler, Uniform
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def fedseq(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.2,
    laps: int = 1,
    traits: Trait | None = None,
    distance: Distance | None = None,
    grouper: Grouper | None = None,
    min_examples: int | None = None,
    max_clients: int | None = None,
    groups: int | None = None,
    sampler: Sampler = Uniform(),
) -> Algorithm:
    """Groups of clients relay the model; a fraction of the groups take part, their models are averaged by examples.

    Without `traits` the groups are random; with traits they are greedy unless another `grouper` is named. A group is
    complete at `min_examples` or `max_clients`, or there is a number of `groups`; if nothing is said, at 10 clients.
    """
    limits = limits_of(min_examples, max_clients, groups)
    plan = Superclients(fraction, laps, limits, criteria(traits, distance, grouper, local), sampler)
    return Algorithm(plan=plan, update=local, merge=merge_for(sampler), barrier=everyone)
