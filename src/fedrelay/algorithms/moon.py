"""MOON: features stay near the received model's and leave those of the client's own last model behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from fedrelay.algorithms.change import Change
from fedrelay.errors import BadInput, within
from fedrelay.tasks import CrossEntropy, Task
from fedrelay.types import Tree, Vector, Visit
from fedrelay.visits.loss_terms import check_features, looking_at
from fedrelay.visits.terms import Batch, Effect, Term


def moon(*, mu: float = 1.0, temperature: float = 0.5) -> Change:
    """Features are drawn to those of the received model and away from those of the client's own last one.

    When clients drift apart on images and come back often: each keeps a model, and every step runs two more.

    Papers: mu 5 (CIFAR-10) or 1 (CIFAR-100, Tiny-ImageNet), temperature 0.5 (Li et al. 2021)

    Args:
        mu: how much the contrast counts beside the loss; 0 is FedAvg.
        temperature: how sharp the contrast is.

    Reference: [Li et al. 2021](https://arxiv.org/abs/2103.16257), Eq. 3 and Alg. 1
    """
    return Change(terms=(Contrast(mu, temperature),))


@dataclass(frozen=True)
class Contrast(Term):
    """The loss gets mu · -log(e^(cos(z, z_received)/τ) / (e^(cos(z, z_received)/τ) + e^(cos(z, z_previous)/τ))).

    Paper: a client that comes for the first time has no previous model; the initial one stands in for it in the
    authors' code. Here the received one does, with which the term is constant, so it is left out of that visit.
    Paper: z is the output of a projection head that the authors add to the network; here it is the features before the
    last layer, so that the model stays what the user chose.
    """

    mu: float = 1.0
    temperature: float = 0.5
    stacks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        within("mu", self.mu, least=0)
        within("temperature", self.temperature, above=0)

    @property
    def keeps(self) -> tuple[str, ...]:
        return ("previous",)

    def adapt(self, task: Task, /) -> Task:
        if not isinstance(task.loss, CrossEntropy):
            raise BadInput(f"MOON compares features, and the model {task.model} has none; mlp or lenet5 have")
        check_features(task, "MOON")
        return task

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        previous: Vector | None = visit.memory.get("previous")
        if previous is None or not self.mu:
            return Effect()
        references = looking_at(received, visit), looking_at(previous, visit, "previous")

        def loss(batch: Batch) -> torch.Tensor:
            assert batch.features is not None
            with torch.no_grad():
                others = [reference.network.body(batch.x) for reference in references]  # type: ignore[operator]
            near, far = (functional.cosine_similarity(batch.features, other, dim=-1) for other in others)
            return self.mu * functional.softplus((far - near) / self.temperature).mean()

        return Effect(losses=(loss,))

    def specimen(self, task: Task, /) -> Tree:
        return {}

    def end(self, received: Vector, trained: Vector, visit: Visit, /, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        return {**visit.memory, "previous": trained}, {}
