"""FedBN: every client has its own normalisation, so that features of unlike scale meet in one model."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.visits.private import Private


def fedbn() -> Change:
    """FedAvg in which normalisation layers never leave the client: their scales, shifts and running statistics.

    When clients' inputs look unlike (other scanners, other sensors) although labels mean the same; every client has a
    model of its own, and a client that never trained has none yet.

    Reference: [Li et al. 2021](https://arxiv.org/abs/2102.07623), Alg. 1
    """
    return Change(private=Private(("norm",)))
