"""Examples made again from one step of training: in closed form, or by looking for inputs with the same gradient.

Whoever has the model before a step and the one after it has the step's gradient. In a layer W x + b the gradient of one
example is δ xᵀ for W and δ for b, so x is one divided by the other (Phong et al. 2018). Of several examples there is
only the sum, and inputs are looked for whose gradient is that sum (deep leakage: Zhu et al. 2019), with known labels
(Zhao et al. 2020 read them off the gradient; clients with one class have no others).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.func import functional_call

from fedrelay import seeds
from fedrelay.tasks import Task
from fedrelay.types import Vector

STEPS = 400
"""Of L-BFGS, in one attempt."""
ATTEMPTS = 5
"""From other beginnings; the one whose gradient comes nearest counts."""
FOUND = 1e-9
"""As near as rounding lets a gradient come: no other attempt is needed."""


def first_dense(task: Task) -> tuple[slice, slice] | None:
    """Where the weights and the biases of the first layer are, if it takes whole inputs: W x + b; else None."""
    first = [entry for entry in task.layout.entries[:2] if entry.start < task.layout.trainable]
    if len(first) < 2 or not isinstance(task.shape, tuple):
        return None
    (weights, biases), inputs = first, math.prod(task.shape)
    if len(weights.shape) != 2 or weights.shape[1] != inputs or biases.shape != weights.shape[:1]:
        return None
    end = biases.start + biases.shape[0]
    return slice(weights.start, biases.start), slice(biases.start, end)


def in_closed_form(change: Vector, task: Task) -> torch.Tensor | None:
    """The input of the one example that has made this change, as all units of the first layer tell it together (least
    squares); None where the first layer is none of W x + b, or has not moved."""
    places = first_dense(task)
    if places is None:
        return None
    bias = change[places[1]].double()
    weights = change[places[0]].double().view(len(bias), -1)
    length = float(bias @ bias)
    return (bias @ weights / length).float().view(1, *task.shape) if length else None


def by_matching(gradient: Vector, received: Vector, task: Task, y: torch.Tensor, *, seed: int) -> torch.Tensor:
    """Inputs with these targets whose gradient, at the model received, comes nearest to this one."""
    away = distance_to(gradient, received, task, y)
    found, least = torch.zeros(len(y), *task.shape), math.inf
    for attempt in range(ATTEMPTS):
        draw = seeds.rng(seed, "inversion", attempt)
        x = torch.from_numpy(draw.normal(0.0, 1.0, (len(y), *task.shape))).float()
        x, length = nearest(away, x)
        if length < least:
            found, least = x, length
        if least < FOUND:
            break
    return found


def distance_to(
    gradient: Vector, received: Vector, task: Task, y: torch.Tensor
) -> Callable[[torch.Tensor], torch.Tensor]:
    """How far the gradient of inputs is from this one, as a share of its squared length."""
    network, trainable = task.network(), task.layout.trainable
    pieces = {name: piece.clone() for name, piece in task.layout.pieces(received).items()}
    names = [entry.name for entry in task.layout.entries if entry.start < trainable]
    wanted, total = gradient[:trainable], float(gradient[:trainable].square().sum()) or 1.0
    weights = [pieces[name].requires_grad_() for name in names]

    def away(x: torch.Tensor) -> torch.Tensor:
        loss = task.loss(functional_call(network, pieces, (x,)), y)
        found = torch.autograd.grad(loss, weights, create_graph=True)
        flat = torch.cat([part.reshape(-1) for part in found])
        return (flat - wanted).square().sum() / total

    return away


def nearest(away: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Go downhill from these inputs."""
    x = x.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [x], max_iter=STEPS, history_size=50, line_search_fn="strong_wolfe", tolerance_change=0
    )

    def again() -> torch.Tensor:
        optimiser.zero_grad()
        loss = away(x)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(again)  # type: ignore[no-untyped-call]
    length = float(away(x).detach())
    return x.detach(), length if math.isfinite(length) else math.inf
