"""What clients and the server do inside chains against somebody who lies, with any method."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedrelay.errors import BadInput, within
from fedrelay.merges.agreement import Agreeing
from fedrelay.merges.every import Every
from fedrelay.plans.sampling import Full, Uniform
from fedrelay.plans.twins import TwoChains
from fedrelay.types import Algorithm
from fedrelay.visits.defended import Defended
from fedrelay.visits.private import AtHome


@dataclass(frozen=True)
class Defence:
    """What is done inside chains against a client that lies. Shuffled orders and shorter chains are settings of the
    methods themselves (`max_clients`, `reshuffle`, `order`).

    Args:
        bound: how far one hop may move the model (Euclidean length over all weights); the server, which has to relay
            then, shortens a longer step. `inf`: any distance.
        tolerance: a client that gets a model whose loss on the client's own examples is more than so many times that
            of the last global model goes on from the last global model, which is sent along. `inf`: it never does.
        agreement: every chain is cut into two that share no client, and both count only if the cosine between the ways
            they went is at least this; without it chains stay whole.
    """

    bound: float = math.inf
    tolerance: float = math.inf
    agreement: float | None = None

    def __post_init__(self) -> None:
        for name in ("bound", "tolerance"):
            if getattr(self, name) != math.inf:
                within(name, getattr(self, name), above=0)
        if self.agreement is not None:
            within("agreement", self.agreement, least=-1, most=1)


def defended(algorithm: Algorithm, defence: Defence) -> Algorithm:
    """The method with this defence; with one that does nothing it is the method itself."""
    bounded, checks = defence.bound < math.inf, defence.tolerance < math.inf
    if algorithm.pooled or algorithm.serverless:
        if defence == Defence():
            return algorithm
        why = "has no clients" if algorithm.pooled else "has no server that could relay, send the last model or compare"
        raise BadInput(f"defence is for chains of clients around a server, and this method {why}")
    if checks or defence.agreement is not None:
        refuse_slots(algorithm, "tolerance" if checks else "agreement")
    if checks and algorithm.privacy is not None and algorithm.privacy.noise:
        raise BadInput(
            "whether a client goes on with a model depends on its examples, and noise does not hide that: leave out "
            "tolerance, or privacy"
        )
    if checks and isinstance(algorithm.update, AtHome):
        raise BadInput(
            "tolerance compares whole models on a client's examples, and here parts of them stay at home: leave out "
            "tolerance, or keep nothing at home"
        )
    if bounded or checks:
        update = Defended(algorithm.update, defence.bound if bounded else None, defence.tolerance)
        algorithm = replace(algorithm, update=update, relayed=algorithm.relayed or bounded)
    if defence.agreement is None:
        return algorithm
    if not isinstance(algorithm.plan.sampler, Uniform | Full | None):
        raise BadInput("agreement cuts chains in two, and the sampler learns from whole ones: use uniform or full")
    return replace(algorithm, plan=TwoChains(algorithm.plan), merge=Agreeing(algorithm.merge, defence.agreement))


def refuse_slots(algorithm: Algorithm, name: str) -> None:
    """Refuse methods in which a chain does not begin with the last merged model."""
    if isinstance(algorithm.merge, Every) or algorithm.barrier is not None:
        raise BadInput(
            f"{name} compares with the last global model, from which every chain must begin: this method merges only "
            "now and then (fedseq, fedcyclic and fedavg do in every round)"
        )
