"""DFedAvgM: FedAvg with momentum at the clients and no server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from fedrelay.algorithms.change import Change
from fedrelay.algorithms.decentralised import Which, decentralised
from fedrelay.errors import BadInput
from fedrelay.merges import Graph, Mixing
from fedrelay.merges.graphs import Complete
from fedrelay.types import Work
from fedrelay.visits.optimisers import Sgd

USUAL = 0.9


def dfedavgm(
    *,
    momentum: float | None = None,
    graph: Graph = Complete(),
    mixing_steps: int = 1,
    weights: Literal["metropolis", "sizes"] = "metropolis",
    tested: Which = "mean",
    same_start: bool = True,
) -> Change:
    """No server: everybody trains its own model with momentum, then takes the mean of its own and its neighbours'.

    When clients reach one another and nobody is to be in the middle; a sparse graph sends little and agrees slowly.

    Papers: momentum 0.9 (Sun et al. 2021)

    Args:
        momentum: of the steps of one visit, from rest at every visit. If it is not said, 0.9, unless [local] says one
            or has another optimiser than SGD.
        graph: who exchanges models with whom.
        mixing_steps: how often models are mixed in a round.
        weights: "metropolis", by which the mean of all models stays; or "sizes", by examples among neighbours.
        tested: what is tested: "mean" of all models, "each" (the mean of their figures), or the number of one client.
        same_start: whether all begin with the same model; if not, each with a random one of its own.

    Reference: [Sun et al. 2021](https://arxiv.org/abs/2104.11375), Alg. 1
    """
    mixing = Mixing(graph, mixing_steps, weights)
    return decentralised(mixing, tested, visit=WithMomentum(momentum), same_start=same_start)


@dataclass(frozen=True)
class WithMomentum:
    """The local training with this momentum, y(k+1) = y(k) - lr g + momentum (y(k) - y(k-1)); the velocity is 0 when a
    visit begins. None: what [local] has, or else the usual one."""

    momentum: float | None = None

    def __call__(self, local: Work, /) -> Work:
        wanted = self.momentum
        if not isinstance(local, Sgd):
            if wanted is not None:
                raise BadInput(
                    f"momentum = {wanted:g} is of SGD, and clients train by {type(local).__name__}, which has its own: "
                    "leave momentum out, or take the optimiser sgd"
                )
            return local
        if wanted is None:
            return local if local.momentum else replace(local, momentum=USUAL)
        if local.momentum not in (0, wanted):
            raise BadInput(f"[algorithm] says momentum {wanted:g}, [local] {local.momentum:g}: say it in one of them")
        return replace(local, momentum=wanted)
