"""The reference that federated methods are measured against: all data in one place."""

from __future__ import annotations

from fedrelay.merges import Mean
from fedrelay.merges.barriers import everyone
from fedrelay.plans import Ring
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def centralized(*, local: Sgd = Sgd()) -> Algorithm:
    """Ordinary training on the pooled data; a round is one visit to all of it. The upper reference, not federated."""
    return Algorithm(plan=Ring(1.0), update=local, merge=Mean(), barrier=everyone, pooled=True)
