"""FedFusion: the features of the received and the local model are fused by a module that is learned and averaged too
(Yao et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from fedrelay.algorithms.fedavg import fedavg
from fedrelay.errors import BadInput, within
from fedrelay.models import Fused
from fedrelay.tasks.task import Loss, Task, cross_entropy
from fedrelay.types import Algorithm, Vector, Visit
from fedrelay.visits.objectives import check_features, looked_at
from fedrelay.visits.sgd import Sgd, minimising


def fedfusion(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.2,
    operator: Literal["conv", "multi", "single"] = "conv",
    decay: float = 0.9,
) -> Algorithm:
    """Clients classify by the features of the received and of their own model together.

    When features should be shared although labels are not; every step also runs the received model's convolutions.
    """
    return fedavg(local=minimising(local, FusedLoss(operator, decay)), fraction=fraction)


@dataclass(frozen=True)
class FusedLoss:
    """The loss on fused features, those of the received model held fast.

    The weights of multi and single follow at `1 - decay` of their pace. Paper: the authors' server averages them over
    rounds so; done by every client, it comes to the same for a mean, and it also works along a chain.
    """

    operator: Literal["conv", "multi", "single"] = "conv"
    decay: float = 0.9

    def __post_init__(self) -> None:
        within("decay", self.decay, least=0, most=1)

    def adapt(self, task: Task) -> Task:
        if isinstance(task.model, Fused):
            if task.model.operator != self.operator:
                raise BadInput(f"the model fuses by {task.model.operator!r}, but the method by {self.operator!r}")
            return task
        check_features(task, "FedFusion")
        return replace(task, model=Fused(task.model, self.operator))

    def begin(self, received: Vector, visit: Visit) -> Loss:
        body, head = visit.task.desk.network.body, visit.task.desk.network.head
        extractor = looked_at(received, visit).network.body.extractor  # type: ignore[union-attr]

        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                features = extractor(x)  # type: ignore[operator]
            return cross_entropy(head(body(x, features)), y)  # type: ignore[operator]

        return loss

    def end(self, received: Vector, trained: Vector, visit: Visit) -> None:
        if self.operator != "conv":
            name = "body.fusion.share"
            new, old = (visit.task.layout.pieces(vector)[name] for vector in (trained, received))
            new.lerp_(old, self.decay)
