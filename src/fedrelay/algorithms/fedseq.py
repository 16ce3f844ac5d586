"""FedSeq: unlike clients form groups (superclients) that train one model in sequence (FedSeq 2022, Alg. 1)."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.plans import Distance, Grouper, Superclients, criteria, limits_of
from fedrelay.types import Trait


def fedseq(
    *,
    laps: int = 1,
    reshuffle: bool = False,
    traits: Trait | None = None,
    distance: Distance | None = None,
    grouper: Grouper | None = None,
    min_examples: int | None = None,
    max_clients: int | None = None,
    groups: int | None = None,
) -> Change:
    """Groups of clients relay the model; a fraction of the groups take part, their models are averaged by examples.

    When clients are unlike and can reach one another: every chain sees a mix that is like the whole.

    Papers: min_examples 800, max_clients 11, laps 1 (FedSeq 2022, 500 clients of CIFAR)

    Args:
        laps: how often a chain goes through its group in a round.
        reshuffle: whether every lap has an order of its own, as in the published code.
        traits: what clients tell of their data; without, groups are random.
        distance: how unlike two clients are; by default what the papers found best for the trait.
        grouper: how groups are made of traits; by default greedily.
        min_examples, max_clients, groups: a group is complete at so many examples or clients, or there is a number of
            groups; if nothing is said, it is complete at 10 clients.

    Reference: [Zaccone et al. 2022](https://arxiv.org/abs/2201.10899), Alg. 1
    """
    limits = limits_of(min_examples, max_clients, groups)
    return Change(
        plan=Superclients(laps=laps, reshuffle=reshuffle, limits=limits, grouping=criteria(traits, distance, grouper))
    )
