"""Loss-level objectives: what is minimised in place of the plain loss. They look at the model that was received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch.nn import functional

from fedrelay.errors import BadInput, within
from fedrelay.models import Network
from fedrelay.task import Desk, Loss, Task, cross_entropy
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


WIDTHS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 5, 10, 15, 20, 25, 30, 35, 100, 1e3, 1e4, 1e5, 1e6)
"""The widths of the Gaussian kernels whose sum is the usual kernel (Bousmalis et al. 2016; FedMMD's authors)."""


@dataclass(frozen=True)
class Discrepancy:
    """Stay close to the received model in what the features look like: cross-entropy plus `weight` times the squared
    maximum mean discrepancy between both models' features of the batch (FedMMD: Yao et al. 2018).

    `between` = "logits" compares outputs instead, as the authors' code does; it works with every model.
    """

    weight: float = 0.1
    between: Literal["features", "logits"] = "features"

    def __post_init__(self) -> None:
        within("weight", self.weight, least=0)
        if self.between not in ("features", "logits"):
            raise BadInput(f"between must be features or logits, not {self.between!r}")

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
            return cross_entropy(logits, y) + self.weight * discrepancy(*(part.flatten(0, -2) for part in pair))

        return loss

    def features_and_logits(self, desk: Desk, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.between == "logits":
            logits = desk.network(x)
            return logits, logits
        features = desk.network.body(x)  # type: ignore[operator]
        return features, desk.network.head(features)  # type: ignore[operator]

    def end(self, received: Vector, trained: Vector, visit: Visit) -> None:
        pass


def discrepancy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The squared maximum mean discrepancy of two samples (one a row): E k(a, a') + E k(b, b') - 2 E k(a, b)."""
    return kernel(a, a).mean() + kernel(b, b).mean() - 2 * kernel(a, b).mean()


def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The sum of Gaussian kernels exp(-d² / 2w) over all widths w, for every pair of rows."""
    # Not as |a|² + |b|² - 2ab: its rounding is large beside the smallest widths, and at first both models are equal.
    squares = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
    return sum((torch.exp(squares / (-2 * width)) for width in WIDTHS), torch.zeros_like(squares))


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
