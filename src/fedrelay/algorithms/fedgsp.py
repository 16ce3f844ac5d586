"""FedGSP: dynamic sequential-to-parallel training, and the two simpler forms it was compared with (FedGSP 2022)."""

from __future__ import annotations

from fedrelay.merges import Mean, PlainMean
from fedrelay.merges.barriers import everyone
from fedrelay.plans import Fixed, Grouper, Grouping, Growth, Icg, Logarithmic, Moment, Regrouped, Trait, criteria
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd
from fedrelay.visits.traits import ClassHistogram


def fedgsp(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.3,
    growth: Growth = Logarithmic(beta=10, alpha=2.0),
    regroup: Moment = "every_round",
    traits: Trait | None = ClassHistogram(),
    grouper: Grouper | None = None,
    equal: bool = False,
    relayed: bool = True,
) -> Algorithm:
    """Groups with like class mixes, made anew every round and more and more of them, train in sequence (Alg. 1).

    Clients tell the server how many examples of each class they have. What one client sends to the next is `relayed` by
    the server's group managers. Models are averaged by examples, or all alike if `equal`.
    """
    # Paper: line 14 divides the sum over the sampled groups by the number of all groups, which is a mean only if all
    # are sampled; a plain mean is `equal`. By examples is the default, because groups of one are FedAvg then.
    grouper = Icg() if grouper is None and traits is not None else grouper
    plan = Regrouped(growth, criteria(traits, None, grouper, local), fraction, when=regroup)
    merge = PlainMean() if equal else Mean()
    return Algorithm(plan=plan, update=local, merge=merge, barrier=everyone, relayed=relayed)


def naivegsp(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.3,
    groups: int = 10,
    shuffle: bool = False,
    relayed: bool = True,
) -> Algorithm:
    """Random groups, made once, whose clients always train in the same order: FedGSP without growth and clusters.

    `shuffle` draws a new order every round.
    """
    plan = Regrouped(Fixed(groups), Grouping(), fraction, shuffle=shuffle, exact=True)
    return Algorithm(plan=plan, update=local, merge=Mean(), barrier=everyone, relayed=relayed)


def naivegsp_icg(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.3,
    groups: int = 10,
    shuffle: bool = False,
    traits: Trait = ClassHistogram(),
    relayed: bool = True,
) -> Algorithm:
    """Groups with like class mixes, made once, whose clients always train in the same order: FedGSP without growth.

    `shuffle` draws a new order every round.
    """
    plan = Regrouped(Fixed(groups), criteria(traits, None, Icg(), local), fraction, shuffle=shuffle, exact=True)
    return Algorithm(plan=plan, update=local, merge=Mean(), barrier=everyone, relayed=relayed)
