"""FedGSP: dynamic sequential-to-parallel training, and the two simpler forms it was compared with (FedGSP 2022)."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.plans import Fixed, Grouper, Grouping, Growth, Icg, Logarithmic, Moment, Regrouped, criteria
from fedrelay.types import Trait
from fedrelay.visits.traits import ClassHistogram

FRACTION = 0.3


def fedgsp(
    *,
    growth: Growth = Logarithmic(beta=10, alpha=2.0),
    regroup: Moment = "every_round",
    traits: Trait | None = ClassHistogram(),
    grouper: Grouper | None = None,
    equal: bool = True,
    relayed: bool = True,
) -> Change:
    """Groups with like class mixes, made anew every round and more and more of them, train in sequence (Alg. 1).

    When you would take fedseq2par, and clients may tell how many examples of each class they have.

    Papers: fraction 0.3, logarithmic growth, alpha 2, beta 10 (FedGSP 2022, FEMNIST)

    Args:
        growth: the number of groups in a round.
        regroup: when groups are made anew.
        traits: what clients tell of their data: how many examples of each class they have.
        grouper: how groups are made of traits; by default by inter-cluster grouping (icg).
        equal: whether all groups of a round count alike in the merge (line 14), and not by examples.
        relayed: whether what one client sends to the next goes through the server's group managers.

    Reference: [Zeng et al. 2022](https://arxiv.org/abs/2201.12976), Alg. 1
    """
    # Paper: line 14 divides the sum over the sampled groups by the number of all groups, which is a mean only if all
    # are sampled; here it is the mean of those that are.
    grouper = Icg() if grouper is None and traits is not None else grouper
    plan = Regrouped(growth, criteria(traits, None, grouper), when=regroup, equal=equal)
    return Change(plan=plan, relayed=relayed, fraction=FRACTION)


def naivegsp(*, groups: int = 10, shuffle: bool = False, equal: bool = True, relayed: bool = True) -> Change:
    """Random groups, made once, whose clients always train in the same order: FedGSP without growth and clusters.

    When you want to see what growth and like groups add to FedGSP.

    Args:
        groups: how many.
        shuffle: whether a new order is drawn every round.
        equal: whether all groups of a round count alike in the merge, and not by examples.
        relayed: whether what one client sends to the next goes through the server.

    Reference: [Zeng et al. 2022](https://arxiv.org/abs/2201.12976), Section 5
    """
    plan = Regrouped(Fixed(groups), Grouping(), shuffle=shuffle, exact=True, equal=equal)
    return Change(plan=plan, relayed=relayed, fraction=FRACTION)


def naivegsp_icg(
    *,
    groups: int = 10,
    shuffle: bool = False,
    traits: Trait = ClassHistogram(),
    equal: bool = True,
    relayed: bool = True,
) -> Change:
    """Groups with like class mixes, made once, whose clients always train in the same order: FedGSP without growth.

    When you want to see what growth adds to FedGSP.

    Args:
        groups: how many.
        shuffle: whether a new order is drawn every round.
        traits: what clients tell of their data.
        equal: whether all groups of a round count alike in the merge, and not by examples.
        relayed: whether what one client sends to the next goes through the server.

    Reference: [Zeng et al. 2022](https://arxiv.org/abs/2201.12976), Section 5
    """
    plan = Regrouped(Fixed(groups), criteria(traits, None, Icg()), shuffle=shuffle, exact=True, equal=equal)
    return Change(plan=plan, relayed=relayed, fraction=FRACTION)
