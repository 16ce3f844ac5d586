"""FedAsyncSeq: fast groups do not wait for slow ones (FedSeq journal 2024, Section III-C2)."""

from __future__ import annotations

from dataclasses import replace

from fedrelay.algorithms.fedseqinter import fedseqinter
from fedrelay.errors import BadInput
from fedrelay.merges.barriers import first
from fedrelay.plans import Distance, Grouper, Trait
from fedrelay.plans.sampling import Full, Sampler, Uniform
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def fedasyncseq(
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
    """As fedseqinter, but a group that is done hands its model on at once: a round ends when the first chain does.

    After `period` rounds the latest model of every slot is merged; chains that still run are given up. How long a chain
    takes, [latency] says; without one all take equally long, and this is fedseqinter.
    """
    if isinstance(sampler, Full):
        raise BadInput("the sampler full takes everybody at once, and here groups follow one by one: fraction = 1 does")
    waiting = fedseqinter(
        local=local,
        fraction=fraction,
        laps=laps,
        period=period,
        traits=traits,
        distance=distance,
        grouper=grouper,
        min_examples=min_examples,
        max_clients=max_clients,
        groups=groups,
        sampler=sampler,
    )
    return replace(waiting, barrier=first)
