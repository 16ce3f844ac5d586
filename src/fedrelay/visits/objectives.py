"""Loss-level objectives: what is minimised in place of the plain loss. They look at the model that was received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch.nn import functional

from fedrelay.errors import BadInput, within
from fedrelay.models import Network
from fedrelay.tasks.task import Desk, Loss, Task, cross_entropy
from fedrelay.types import Vector, Visit


class Objective(Protocol):
    """What a visit minimises. A frozen, picklable dataclass."""

    def adapt(self, task: Task) -> Task:
        """The task it needs: this one, one whose model has more, or a refusal. Adapting twice changes nothing."""
        ...

    def begin(self, received: Vector, visit: Visit) -> Loss:
        """The loss of this visit's batches; the model in training is on the task's desk."""
        ...

    def end(self, received: Vector, trained: Vector, visit: Visit) -> None:
        """Once per visit: what is still to be done to the trained model, in place."""
        ...


@dataclass(frozen=True)
class Distillation:
    """Learn from the received model as well as from the labels: cross-entropy plus `weight` times the divergence of the
    softened predictions from the received model's (Hinton et al. 2015; in a chain the teacher is the previous client).
    """

    weight: float = 1.0
    temperature: float = 2.0

    def __post_init__(self) -> None:
        within("weight", self.weight, least=0)
        within("temperature", self.temperature, above=0)

    def adapt(self, task: Task) -> Task:
        if task.model.loss != "cross_entropy":
            raise BadInput(f"distillation softens logits, and the model {task.model} has none; mlp or lenet5 have")
        return task

    def begin(self, received: Vector, visit: Visit) -> Loss:
        desk, teacher = visit.task.desk, looked_at(received, visit)

        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                taught = self.soften(teacher.network(x))
            logits = desk.network(x)
            divergence = functional.kl_div(self.soften(logits), taught, log_target=True, reduction="batchmean")
            # The square of the temperature keeps the gradient's scale, whatever the temperature.
            return cross_entropy(logits, y) + self.weight * self.temperature**2 * divergence

        return loss

    def soften(self, logits: torch.Tensor) -> torch.Tensor:
        """Log-probabilities at the temperature, one row per prediction."""
        return functional.log_softmax(logits.reshape(-1, logits.shape[-1]) / self.temperature, dim=-1)

    def end(self, received: Vector, trained: Vector, visit: Visit) -> None:
        pass


SMALL = 0.01
"""Beside a width below this, distances must be exact."""
AUTHORS_WIDTHS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 5, 10, 15, 20, 25, 30, 35, 100, 1e3, 1e4, 1e5, 1e6)
"""The Gaussians that are added up in the code of FedMMD's authors (they come from Bousmalis et al. 2016)."""


@dataclass(frozen=True)
class Discrepancy:
    """Stay close to the received model in what the features look like: cross-entropy plus `weight` times the squared
    maximum mean discrepancy between both models' features of the batch (FedMMD: Yao et al. 2018).

    `between` = "logits" compares outputs instead, as the authors' code does; it works with every model. The kernel is a
    sum of Gaussians of these `widths` (σ²). Paper: a radial basis function kernel whose width is left open, so 1 here;
    the authors' code has nineteen from 1e-6 to 1e6, whose gradient is so steep that it wants a tiny lr.
    """

    weight: float = 0.1
    between: Literal["features", "logits"] = "features"
    widths: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        within("weight", self.weight, least=0)
        if self.between not in ("features", "logits"):
            raise BadInput(f"between must be features or logits, not {self.between!r}")
        if not self.widths:
            raise BadInput("widths must have at least one width; [1.0] works")
        for width in self.widths:
            within("every one of widths", width, above=0)

    def adapt(self, task: Task) -> Task:
        if task.model.loss != "cross_entropy":
            raise BadInput(f"FedMMD compares features or logits, and the model {task.model} has neither; mlp has both")
        if self.between == "features":
            check_features(task, "FedMMD")
        return task

    def begin(self, received: Vector, visit: Visit) -> Loss:
        desk, reference = visit.task.desk, looked_at(received, visit)

        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                before, seen = self.features_and_logits(reference, x)
            now, logits = self.features_and_logits(desk, x)
            pair = (now, before) if self.between == "features" else (logits, seen)
            apart = discrepancy(pair[0].flatten(0, -2), pair[1].flatten(0, -2), self.widths)
            return cross_entropy(logits, y) + self.weight * apart

        return loss

    def features_and_logits(self, desk: Desk, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.between == "logits":
            logits = desk.network(x)
            return logits, logits
        features = desk.network.body(x)  # type: ignore[operator]
        return features, desk.network.head(features)  # type: ignore[operator]

    def end(self, received: Vector, trained: Vector, visit: Visit) -> None:
        pass


def discrepancy(a: torch.Tensor, b: torch.Tensor, widths: Sequence[float] = (1.0,)) -> torch.Tensor:
    """The squared maximum mean discrepancy of two samples (one a row): E k(a, a') + E k(b, b') - 2 E k(a, b).

    The kernel k is the sum of the Gaussians exp(-d² / 2w) over all widths w.
    """
    rows, size = torch.cat((a, b)), len(a)
    squares = squared_distances(rows, exact=min(widths) < SMALL)
    k = torch.zeros_like(squares)
    for width in widths:
        k = k + torch.exp(squares / (-2 * width))
    return k[:size, :size].mean() + k[size:, size:].mean() - 2 * k[:size, size:].mean()


def squared_distances(rows: torch.Tensor, *, exact: bool) -> torch.Tensor:
    """Of every row from every other: exactly, or by a matrix product, which is several times faster."""
    if exact:  # the product's rounding is large beside small widths, and at first both models are equal
        return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    centred = rows - rows.detach().mean(0)
    lengths = centred.square().sum(1)
    return (lengths.unsqueeze(1) + lengths - 2 * centred @ centred.T).clamp(min=0)


def looked_at(received: Vector, visit: Visit) -> Desk:
    """The side desk with the received model on it: no dropout, running statistics, no gradient."""
    desk = visit.task.side_desk
    desk.load(received, training=False)
    return desk


def check_features(task: Task, method: str) -> Network:
    """Refuse a model whose features cannot be looked at; the network that is returned has shapes but no numbers."""
    with torch.device("meta"):
        network = task.model(task.shape, task.classes)
    if not isinstance(network, Network):
        raise BadInput(
            f"{method} needs a model with features, and {type(network).__name__} has no body and head: "
            "mlp, lenet5 and the other networks here have, and so has your own fedrelay.models.Network(body, head)"
        )
    return network


OBJECTIVES = {"distillation": Distillation, "discrepancy": Discrepancy}
