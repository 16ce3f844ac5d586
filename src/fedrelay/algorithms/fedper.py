"""FedPer: a common body, and a head of its own for every client."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.visits.private import Private


def fedper() -> Change:
    """FedAvg in which the last layer never leaves the client: bodies are averaged, and everybody's own head decides.

    When the same input means something else to every client, and clients come back: each keeps its head, and less
    travels.

    Reference: [Arivazhagan et al. 2019](https://arxiv.org/abs/1912.00818), Algs. 1-2
    """
    return Change(private=Private(("head",)))
