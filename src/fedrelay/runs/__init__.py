"""A run: the loop that repeats plan, relay and merge, what it costs, and how it is kept on disk."""

from fedrelay.runs.loop import adapted, advance, deployed, start, train
from fedrelay.runs.measures import balance_ratio, group_counts
from fedrelay.runs.surveys import ClientSurvey
from fedrelay.runs.threat import ATTACKS, Threat, When, threatened

__all__ = [
    "ATTACKS",
    "ClientSurvey",
    "Threat",
    "When",
    "adapted",
    "advance",
    "balance_ratio",
    "deployed",
    "group_counts",
    "start",
    "threatened",
    "train",
]
