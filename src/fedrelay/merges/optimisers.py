"""Server optimisers: the mean change of a round is a gradient, of which the server makes a better step.

All follow (Reddi et al. 2021, Alg. 2): no bias correction, and v starts at tau². Δ is the mean change, by examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedrelay.errors import BadInput, within
from fedrelay.merges.mean import mean_change, moved
from fedrelay.types import Merge, Outcome, State, Tree, Vector


@dataclass(frozen=True)
class Momentum(Merge):
    """Server momentum: v ← momentum · v + Δ, x ← x + lr · v (FedAvgM: Hsu et al. 2019)."""

    lr: float = 1.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        within("lr", self.lr, above=0)
        below_one("momentum", self.momentum)

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return {}, {"velocity": torch.zeros_like(params)}

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        velocity = self.momentum * state.server["velocity"] + mean_change(outcomes)
        after = moved(state, state.batons[0].params + self.lr * velocity, outcomes)
        return replace(after, server={**state.server, "velocity": velocity})


@dataclass(frozen=True)
class Adagrad(Merge):
    """FedAdagrad: v ← v + Δ² (Reddi et al. 2021, Alg. 2; they use no momentum with it)."""

    lr: float = 0.1
    beta1: float = 0.0
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check(self.lr, self.beta1, self.tau)

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return {}, start(params, self.tau)

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        change = mean_change(outcomes)
        v = state.server["v"] + change.square()
        return adaptive_step(state, outcomes, change, v, lr=self.lr, beta1=self.beta1, tau=self.tau)


@dataclass(frozen=True)
class Adam(Merge):
    """FedAdam: v ← beta2 · v + (1 - beta2) · Δ² (Reddi et al. 2021, Alg. 2)."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check(self.lr, self.beta1, self.tau)
        below_one("beta2", self.beta2)

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return {}, start(params, self.tau)

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        change = mean_change(outcomes)
        v = self.beta2 * state.server["v"] + (1 - self.beta2) * change.square()
        return adaptive_step(state, outcomes, change, v, lr=self.lr, beta1=self.beta1, tau=self.tau)


@dataclass(frozen=True)
class Yogi(Merge):
    """FedYogi: v ← v - (1 - beta2) · Δ² · sign(v - Δ²) (Reddi et al. 2021, Alg. 2)."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check(self.lr, self.beta1, self.tau)
        below_one("beta2", self.beta2)

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return {}, start(params, self.tau)

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        change = mean_change(outcomes)
        squares, v = change.square(), state.server["v"]
        v = v - (1 - self.beta2) * squares * torch.sign(v - squares)
        return adaptive_step(state, outcomes, change, v, lr=self.lr, beta1=self.beta1, tau=self.tau)


def start(params: Vector, tau: float) -> Tree:
    """The moments before the first round."""
    return {"m": torch.zeros_like(params), "v": torch.full_like(params, tau**2)}


def adaptive_step(
    state: State, outcomes: Sequence[Outcome], change: Vector, v: Vector, *, lr: float, beta1: float, tau: float
) -> State:
    """m ← beta1 · m + (1 - beta1) · Δ, x ← x + lr · m / (√v + tau)."""
    m = beta1 * state.server["m"] + (1 - beta1) * change
    after = moved(state, state.batons[0].params + lr * m / (v.sqrt() + tau), outcomes)
    return replace(after, server={**state.server, "m": m, "v": v})


def check(lr: float, beta1: float, tau: float) -> None:
    within("lr", lr, above=0)
    below_one("beta1", beta1)
    within("tau", tau, above=0)


def below_one(name: str, value: float) -> None:
    within(name, value, least=0)
    if value >= 1:
        raise BadInput(f"{name} must be below 1, not {value:g}")
