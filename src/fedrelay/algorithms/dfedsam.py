"""DFedSAM: clients look for flat minima, and there is no server."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from fedrelay.algorithms.change import Change
from fedrelay.algorithms.decentralised import Which, decentralised
from fedrelay.merges import Graph, Mixing
from fedrelay.merges.graphs import Complete
from fedrelay.visits.terms import Sharpness


def dfedsam(
    *,
    rho: float = 0.01,
    graph: Graph = Complete(),
    mixing_steps: int = 1,
    weights: Literal["metropolis", "sizes"] = "metropolis",
    tested: Which = "mean",
    same_start: bool = True,
) -> Change:
    """No server: every step follows the gradient found a little uphill; models are mixed with the neighbours', perhaps
    several times.

    When you would take dfedavgm, and clients are so unlike that their models do not agree; every step costs two.

    Papers: rho 0.01, mixing_steps 4 (DFedSAM-MGS; Shi et al. 2023)

    Args:
        rho: how far uphill; 0 is dfedavgm without momentum.
        graph: who exchanges models with whom.
        mixing_steps: how often models are mixed in a round (multiple gossip steps: 4 is DFedSAM-MGS).
        weights: "metropolis", by which the mean of all models stays; or "sizes", by examples among neighbours.
        tested: what is tested: "mean" of all models, "each" (the mean of their figures), or the number of one client.
        same_start: whether all begin with the same model; if not, each with a random one of its own.

    Reference: [Shi et al. 2023](https://arxiv.org/abs/2302.04083), Alg. 1
    """
    mixing = Mixing(graph, mixing_steps, weights)
    return replace(decentralised(mixing, tested, same_start=same_start), terms=(Sharpness(rho),))
