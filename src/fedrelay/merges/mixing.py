"""Mixing without a server: every client's next model is a mean of its own and of its neighbours'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.merges.graphs import Complete, Graph, Links, Weights, unreached
from fedrelay.tasks import Task
from fedrelay.types import Baton, Hearing, Merge, Outcome, State, Tree, Vector
from fedrelay.vectors import weighted_sum

ALONE = 1e-9
"""A second eigenvalue this near to 1 (or -1) is one: models would never agree."""


@dataclass(frozen=True)
class Mixing(Merge):
    """Every client's next model is Σ_j w_ij z_j, in `steps` steps one after another (so W^steps); W is symmetric and
    doubly stochastic by Metropolis weights, 1 / (1 + the larger number of neighbours), which keep the mean of all
    models (DFedAvgM: Sun et al. 2021; DFedSAM: Shi et al. 2023).

    There is one slot for every client. Who was lost or not drawn takes part with the model it had.

    Args:
        graph: who exchanges models with whom.
        steps: how often models are mixed in a round.
        weights: "metropolis"; or "sizes", by examples among a client and those it hears, which keeps no mean.
        seed: of the run; graphs that are drawn derive from it.
    """

    graph: Graph = Complete()
    steps: int = 1
    weights: Literal["metropolis", "sizes"] = "metropolis"
    seed: int = 0

    def __post_init__(self) -> None:
        within("mixing_steps", self.steps, least=1)
        if self.weights not in ("metropolis", "sizes"):
            raise BadInput(f"weights must be metropolis or sizes, not {self.weights!r}")

    def fitted(self, task: Task, seed: int, /) -> Mixing:
        return replace(self, seed=seed)

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        self.check(clients)
        return {}, {"sizes": (0.0,) * clients}

    def check(self, clients: int) -> None:
        """Refuse a graph over which not all of these clients can agree."""
        if clients < 2:
            raise BadInput("one client has nobody to mix its model with: without a server there must be two or more")
        links = self.links(clients, 1)
        if self.graph.changes:
            return
        missing = unreached(links)
        if missing:
            some = ", ".join(map(str, missing[:10]))
            raise BadInput(
                f"the graph is not connected: no path leads from client 0 to {some}{' …' if missing[10:] else ''}, so "
                "their models would never mix"
            )
        given = self.graph.given(clients)
        if given is not None and np.linalg.eigvalsh(given)[0] < -1 + ALONE:
            raise BadInput("by this mixing matrix clients swap models for ever: let them keep a share of their own")

    def links(self, clients: int, round: int) -> Links:
        """Who gets whose model in a round; with metropolis weights both do."""
        links = self.graph.links(clients, seeds.rng(self.seed, "graph", round))
        return links | links.T if self.weights == "metropolis" else links

    def exchanges(self, state: State, /) -> Sequence[Hearing]:
        links = self.links(len(state.server["sizes"]), state.round + 1)
        return [[np.flatnonzero(row).tolist() for row in links]] * self.steps

    def matrix(self, round: int, sizes: Sequence[float]) -> Weights:
        """What every client's next model takes of every model, in one step of this round."""
        given, links = self.graph.given(len(sizes)), self.links(len(sizes), round)
        if self.weights == "sizes":
            return by_sizes(links, np.array(sizes))
        return metropolis(links) if given is None else given

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        sizes, before = list(state.server["sizes"]), state.batons
        models = [before[client if len(before) > 1 else 0].params for client in range(len(sizes))]
        for outcome in outcomes:
            models[outcome.chain.slot] = outcome.baton.params
            sizes[outcome.chain.slot] = outcome.baton.weight - outcome.chain.start.weight
        whole = np.linalg.matrix_power(self.matrix(state.round + 1, sizes), self.steps)
        batons = tuple(Baton(params) for params in mixed(models, whole))
        return replace(state, batons=batons, server={"sizes": tuple(sizes)})


def metropolis(links: Links) -> Weights:
    """Symmetric and doubly stochastic: w_ij = 1 / (1 + max(d_i, d_j)) between neighbours (Xiao et al. 2005)."""
    degrees = links.sum(axis=1)
    weights: Weights = links / (1.0 + np.maximum.outer(degrees, degrees))
    return weights + np.diag(1 - weights.sum(axis=1))


def by_sizes(links: Links, sizes: Weights) -> Weights:
    """By examples among oneself and those one hears; who has never trained counts nothing, but to itself alone."""
    weights = (links | np.eye(len(links), dtype=np.bool_)) * sizes
    alone = ~weights.any(axis=1)
    weights[alone, alone] = 1.0
    shares: Weights = weights / weights.sum(axis=1, keepdims=True)
    return shares


def mixed(models: Sequence[Vector], weights: Weights) -> list[Vector]:
    """Every row's mean of the models; rows that are the same (if all hear all) give one vector, once."""
    made: dict[bytes, torch.Tensor] = {}
    for row in weights:
        parts = [(model, float(share)) for model, share in zip(models, row, strict=True) if share]
        if row.tobytes() not in made:
            made[row.tobytes()] = weighted_sum(*zip(*parts, strict=True))
    return [made[row.tobytes()] for row in weights]
