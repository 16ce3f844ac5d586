"""FedAsyncSeq: fast groups do not wait for slow ones (FedSeq journal 2024, Section III-C2)."""

from __future__ import annotations

from dataclasses import replace

from fedrelay.algorithms.change import Change
from fedrelay.algorithms.fedseqinter import fedseqinter
from fedrelay.merges.barriers import first
from fedrelay.plans import Distance, Grouper
from fedrelay.types import Trait


def fedasyncseq(
    *,
    laps: int = 1,
    period: int | None = None,
    traits: Trait | None = None,
    distance: Distance | None = None,
    grouper: Grouper | None = None,
    min_examples: int | None = None,
    max_clients: int | None = None,
    groups: int | None = None,
) -> Change:
    """As fedseqinter, but a group that is done hands its model on at once: a round ends when the first chain does.

    After `period` rounds the latest model of every slot is merged; chains that still run are given up. How long a chain
    takes, [latency] says; without one all take equally long, and this is fedseqinter.

    When you would take fedseqinter, and some clients are far slower than others.

    Papers: period: the number of groups (journal 2024)

    Args:
        laps, period: as fedseqinter's.
        traits: what clients tell of their data; without, groups are random.
        distance: how unlike two clients are; by default what the papers found best for the trait.
        grouper: how groups are made of traits; by default greedily.
        min_examples, max_clients, groups: a group is complete at so many examples or clients, or there is a number of
            groups; if nothing is said, it is complete at 10 clients.

    Reference: [Silvi et al. 2024](https://doi.org/10.1109/ACCESS.2024.3387453), Section III-C2
    """
    waiting = fedseqinter(
        laps=laps,
        period=period,
        traits=traits,
        distance=distance,
        grouper=grouper,
        min_examples=min_examples,
        max_clients=max_clients,
        groups=groups,
    )
    return replace(waiting, barrier=first)
