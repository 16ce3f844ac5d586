"""Who trains after whom."""

from fedrelay.plans.chains import Ring, Singles, Superclients
from fedrelay.plans.distances import DISTANCES, Distance
from fedrelay.plans.groupers import GROUPERS, Grouper
from fedrelay.plans.grouping import Grouping, criteria
from fedrelay.plans.groups import Groups, Limits, limits_of
from fedrelay.plans.growth import GROWTHS, Exponential, Fixed, Growth, Linear, Logarithmic
from fedrelay.plans.handover import Handover
from fedrelay.plans.icg import Icg
from fedrelay.plans.regroup import Moment, Regrouped
from fedrelay.plans.traits import Trait, Traits

__all__ = [
    "DISTANCES",
    "GROUPERS",
    "GROWTHS",
    "Distance",
    "Exponential",
    "Fixed",
    "Grouper",
    "Grouping",
    "Groups",
    "Growth",
    "Handover",
    "Icg",
    "Limits",
    "Linear",
    "Logarithmic",
    "Moment",
    "Regrouped",
    "Ring",
    "Singles",
    "Superclients",
    "Trait",
    "Traits",
    "criteria",
    "limits_of",
]
