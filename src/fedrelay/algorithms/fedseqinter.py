"""FedSeqInter: groups hand their models on to other groups for many rounds before they merge (FedSeq 2022, Alg. 1)."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.plans import Distance, Grouper, Handover, Superclients, criteria, limits_of
from fedrelay.types import Trait


def fedseqinter(
    *,
    laps: int = 1,
    reshuffle: bool = False,
    period: int | None = None,
    traits: Trait | None = None,
    distance: Distance | None = None,
    grouper: Grouper | None = None,
    min_examples: int | None = None,
    max_clients: int | None = None,
    groups: int | None = None,
) -> Change:
    """As fedseq, but every model goes on to another group round after round, and they are merged every `period` rounds.

    In between, what is evaluated is the mean of all models by the examples they have seen since.

    When you would take fedseq, and few merges matter more than a model of one piece at any moment.

    Papers: period: the number of groups (FedSeq 2022)

    Args:
        laps: how often a chain goes through its group in a round.
        reshuffle: whether every lap has an order of its own, as in the published code.
        period: rounds between two merges; by default the number of groups: by then a model has probably seen most data.
        traits: what clients tell of their data; without, groups are random.
        distance: how unlike two clients are; by default what the papers found best for the trait.
        grouper: how groups are made of traits; by default greedily.
        min_examples, max_clients, groups: a group is complete at so many examples or clients, or there is a number of
            groups; if nothing is said, it is complete at 10 clients.

    Reference: [Zaccone et al. 2022](https://arxiv.org/abs/2201.10899), Alg. 1 and Section III-C2
    """
    limits = limits_of(min_examples, max_clients, groups)
    plan = Superclients(laps=laps, reshuffle=reshuffle, limits=limits, grouping=criteria(traits, distance, grouper))
    return Change(plan=Handover(plan), every="groups" if period is None else period)
