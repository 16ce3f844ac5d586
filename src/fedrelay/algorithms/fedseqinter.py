"""FedSeqInter: groups hand their models on to other groups for many rounds before they merge (FedSeq 2022, Alg. 1)."""

from __future__ import annotations

from fedrelay.errors import BadInput
from fedrelay.merges import Every, Mean
from fedrelay.merges.barriers import everyone
from fedrelay.plans import Distance, Grouper, Handover, Superclients, Trait, criteria, limits_of
from fedrelay.plans.sampling import Original, Sampler, Uniform
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def fedseqinter(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.2,
    laps: int = 1,
    period: int | None = None,
    traits: Trait | None = None,
    distance: Distance | None = None,
    grouper: Grouper | None = None,
    min_examples: int | None = None,
    max_clients: int | None = None,
    groups: int | None = None,
    sampler: Sampler = Uniform(),
) -> Algorithm:
    """As fedseq, but every model goes on to another group round after round, and they are merged every `period` rounds.

    Without a `period` it is the number of groups: by then a model has probably seen most of the data. In between, what
    is evaluated is the mean of all models by the examples they have seen since.
    """
    if isinstance(sampler, Original):
        raise BadInput(
            "the sampler original needs the merge with_absent, but here models of many rounds are merged: use uniform, "
            "or fedseq"
        )
    limits = limits_of(min_examples, max_clients, groups)
    plan = Superclients(fraction, laps, limits, criteria(traits, distance, grouper, local), sampler)
    return Algorithm(plan=Handover(plan), update=local, merge=Every(Mean(), period), barrier=everyone)
