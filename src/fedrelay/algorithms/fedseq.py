"""FedSeq: unlike clients form groups (superclients) that train one model in sequence (FedSeq 2022, Alg. 1)."""

from __future__ import annotations

from fedrelay.barrier import everyone
from fedrelay.merges import Mean
from fedrelay.plans import Superclients
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def fedseq(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.2,
    laps: int = 1,
    min_examples: int | None = None,
    max_clients: int | None = 10,
) -> Algorithm:
    """Groups of clients relay the model; a fraction of the groups take part, their models are averaged by examples."""
    plan = Superclients(fraction, laps, min_examples, max_clients)
    return Algorithm(plan=plan, update=local, merge=Mean(), barrier=everyone)
