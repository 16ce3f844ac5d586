"""Who trains after whom."""

from fedrelay.plans import sampling
from fedrelay.plans.attackers import ATTACKERS, Attackers, Few, InGroups, Named, Neighbours, Position, Spread
from fedrelay.plans.chains import Ring, Singles, Superclients
from fedrelay.plans.grouping.criteria import Grouping, criteria
from fedrelay.plans.grouping.distances import (
    DISTANCES,
    Cosine,
    Distance,
    Euclidean,
    Gini,
    KullbackLeibler,
    NormalisedCosine,
    Wasserstein,
)
from fedrelay.plans.grouping.groupers import GROUPERS, Greedy, Grouper, KMeans, Random
from fedrelay.plans.grouping.groups import Groups, Limits, fill, limits_of, random_groups
from fedrelay.plans.grouping.icg import Icg
from fedrelay.plans.grouping.traits import Traits
from fedrelay.plans.growth import GROWTHS, Exponential, Fixed, Growth, Linear, Logarithmic
from fedrelay.plans.handover import Handover
from fedrelay.plans.once import Once
from fedrelay.plans.order import Order
from fedrelay.plans.peers import Peers
from fedrelay.plans.regroup import Moment, Regrouped

__all__ = [
    "ATTACKERS",
    "DISTANCES",
    "GROUPERS",
    "GROWTHS",
    "Attackers",
    "Cosine",
    "Distance",
    "Euclidean",
    "Exponential",
    "Few",
    "Fixed",
    "Gini",
    "Greedy",
    "Grouper",
    "Grouping",
    "Groups",
    "Growth",
    "Handover",
    "Icg",
    "InGroups",
    "KMeans",
    "KullbackLeibler",
    "Limits",
    "Linear",
    "Logarithmic",
    "Moment",
    "Named",
    "Neighbours",
    "NormalisedCosine",
    "Once",
    "Order",
    "Peers",
    "Position",
    "Random",
    "Regrouped",
    "Ring",
    "Singles",
    "Spread",
    "Superclients",
    "Traits",
    "Wasserstein",
    "criteria",
    "fill",
    "limits_of",
    "random_groups",
    "sampling",
]
