"""FedSeq2Par: few long chains first, more and shorter ones later (FedSeq journal 2024, Section III-C3)."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.plans import Distance, Exponential, Grouper, Growth, Icg, Moment, Regrouped, criteria
from fedrelay.types import Trait


def fedseq2par(
    *,
    laps: int = 1,
    growth: Growth = Exponential(beta=5, alpha=0.015),
    regroup: Moment = "growth",
    traits: Trait | None = None,
    distance: Distance | None = None,
    grouper: Grouper | None = None,
) -> Change:
    """As fedseq, with a number of groups that grows: clients are regrouped whenever it does.

    When you would take fedseq, and training is long: the quick start of chains, then the steady end of many models.

    Args:
        laps: how often a chain goes through its group in a round.
        growth: the number of groups in a round. One that has everybody alone by the last round is a good one to begin
            with.
        regroup: when groups are made anew.
        traits: what clients tell of their data; without, groups are random.
        distance: how unlike two clients are; by default what the papers found best for the trait.
        grouper: how groups are made of traits; by default by inter-cluster grouping (icg).

    Reference: [Silvi et al. 2024](https://doi.org/10.1109/ACCESS.2024.3387453), Alg. 1 and Section III-C3
    """
    grouper = Icg() if grouper is None and traits is not None else grouper
    return Change(plan=Regrouped(growth, criteria(traits, distance, grouper), laps=laps, when=regroup))
