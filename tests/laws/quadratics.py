"""The three quadratic clients of the laws: f_i(w) = ½ (w - b_i)' A_i (w - b_i), and how to run a method on them."""

from __future__ import annotations

import numpy as np
import torch

from fedrelay import Federation, Sgd, Task, deployed, train
from fedrelay.data import Natural, quadratic_of
from fedrelay.data.federation import Source
from fedrelay.engines import Inline
from fedrelay.models import Quadratic
from fedrelay.tasks import Workspaces
from fedrelay.types import Algorithm, Visit

MATRICES = [np.diag([1.0, 4.0]), np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([[2.0, -0.5], [-0.5, 1.0]])]
CENTRES = [np.array([1.0, 0.0]), np.array([-1.0, 2.0]), np.array([3.0, -2.0])]
SIZES = (10, 20, 30)
FULL_STEPS = Sgd(steps=5, batch=0, lr=0.1)

# Computed outside this project, in float64, from the formulas.
OPTIMUM_BY_SIZE = (1.5569176883, -0.4798598949)
OPTIMUM = (1.1796407186, -0.1556886228)  # every client counts the same
FEDAVG_ENDS_AT = (1.1769319933, -0.0688884878)  # every client counts the same


def engine_on(source: Source, seed: int = 0) -> Inline:
    federation = Federation.split(source, Natural(), None, seed)
    return Inline(federation, Task.of(Quadratic(), federation), seed)


def three() -> Inline:
    return engine_on(quadratic_of(MATRICES, CENTRES, SIZES))


def two() -> Inline:
    """In one dimension: f_0 = ½ (w - 1)², f_1 = 3/2 (w + 1)², whose sum is least at -½."""
    return engine_on(quadratic_of([[[1.0]], [[3.0]]], [[1.0], [-1.0]], [1, 1]))


def models_of(algorithm: Algorithm, engine: Inline, rounds: int) -> np.ndarray:
    """The model after every round."""
    return torch.stack([deployed(state).params for state in train(algorithm, engine, rounds=rounds)]).numpy()


def visit_to(engine: Inline, client: int = 0) -> Visit:
    """The first visit of a run to this client, who remembers nothing."""
    task = engine.task
    return Visit(engine.federation.client(client), task, {}, {}, 1, 0, 0, Workspaces(task))
