"""Who trains after whom."""

from fedrelay.plans.chains import Ring, Singles, Superclients
from fedrelay.plans.grouping.criteria import Grouping, criteria
from fedrelay.plans.grouping.distances import DISTANCES, Distance
from fedrelay.plans.grouping.groupers import GROUPERS, Grouper
from fedrelay.plans.grouping.groups import Groups, Limits, limits_of
from fedrelay.plans.grouping.icg import Icg
from fedrelay.plans.grouping.traits import Traits
from fedrelay.plans.growth import GROWTHS, Exponential, Fixed, Growth, Linear, Logarithmic
from fedrelay.plans.handover import Handover
from fedrelay.plans.regroup import Moment, Regrouped

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
    "Traits",
    "criteria",
    "limits_of",
]
