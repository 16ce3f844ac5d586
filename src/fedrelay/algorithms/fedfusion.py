"""FedFusion: features of the received and the local model are fused by a module that is learned and averaged too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from fedrelay.algorithms.change import Change
from fedrelay.errors import BadInput, within
from fedrelay.kernels.workspace import Forward
from fedrelay.models import Fused
from fedrelay.tasks import Task
from fedrelay.types import Vector, Visit
from fedrelay.visits.loss_terms import check_features, looking_at
from fedrelay.visits.terms import Effect, Term


def fedfusion(*, operator: Literal["conv", "multi", "single"] = "conv", decay: float = 0.9) -> Change:
    """Clients classify by the features of the received and of their own model together.

    When features should be shared although labels are not; every step also runs the received model's convolutions.

    Papers: decay 0.9 (Yao et al. 2019)

    Args:
        operator: how features are fused: a 1x1 convolution, a weight per channel, or one weight.
        decay: how slowly the weights of multi and single follow.

    Reference: [Yao et al. 2019](https://doi.org/10.1109/ICIP.2019.8803001)
    """
    return Change(terms=(Fusing(operator, decay),))


@dataclass(frozen=True)
class Fusing(Term):
    """The model is run on fused features, those of the received model held fast.

    The weights of multi and single follow at `1 - decay` of their pace. Paper: the authors' server averages them over
    rounds so; done by every client, it comes to the same for a mean, and it also works along a chain.
    """

    operator: Literal["conv", "multi", "single"] = "conv"
    decay: float = 0.9
    sole: ClassVar[str] = "how the model is run"
    stacks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        within("decay", self.decay, least=0, most=1)

    def adapt(self, task: Task, /) -> Task:
        if isinstance(task.model, Fused):
            if task.model.operator != self.operator:
                raise BadInput(f"the model fuses by {task.model.operator!r}, but the method by {self.operator!r}")
            return task
        check_features(task, "FedFusion")
        return replace(task, model=Fused(task.model, self.operator))

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        network = visit.workspaces.main.network
        body, head = network.body, network.head
        extractor = looking_at(received, visit).network.body.extractor  # type: ignore[union-attr]

        def run(x: torch.Tensor) -> Forward:
            with torch.no_grad():
                others = extractor(x)  # type: ignore[operator]
            features = body(x, others)  # type: ignore[operator]
            return Forward(features, head(features))  # type: ignore[operator]

        return Effect(run=run)

    def finish(self, received: Vector, trained: Vector, visit: Visit, /) -> None:
        if self.operator != "conv":
            name = "body.fusion.share"
            new, old = (visit.task.layout.pieces(vector)[name] for vector in (trained, received))
            new.lerp_(old, self.decay)
