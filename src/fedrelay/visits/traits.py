"""Traits (ψ) at the client: what it tells the server about its data, once, before training, instead of the data.

Each is a Work whose report carries one vector, `trait`. `kind` says what the numbers are (see plans/distances.py).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import nn

from fedrelay.errors import BadInput, within
from fedrelay.tasks import EVALUATION_BATCH, PADDING, OutputLoss, Task, unlike
from fedrelay.types import Baton, Kind, Report, Result, Trait, Visit, Work
from fedrelay.visits.optimisers import Sgd
from fedrelay.visits.schedules import Constant
from fedrelay.visits.task2vec import Task2Vec
from fedrelay.visits.terms import Sharpness
from fedrelay.visits.training import Training


@dataclass(frozen=True)
class ClassifierWeights(Trait):
    """The weights of the linear layers (all, the last two or the last one) after `epochs` of training on the client
    alone, from the common initial model; the server keeps the principal components that hold `variance` of their
    variance (FedSeq 2022, ψ_clf).

    `layers = "model"` takes every weight of the network. `standardise` divides every number by its spread over the
    clients before the components are computed, as the journal's published code does. `local` says how to train; if it
    is not given, as the run trains.
    """

    layers: Literal["all", "last2", "last", "model"] = "all"
    epochs: int = 10
    variance: float = 0.9
    standardise: bool = False
    local: Training | None = None
    kind: ClassVar[Kind] = "weights"

    def __post_init__(self) -> None:
        within("epochs", self.epochs, least=1)
        within("variance", self.variance, above=0, most=1)

    def trained_like(self, local: Work, /) -> ClassifierWeights:
        return replace(self, local=self.local or own(local))

    def check(self, task: Task, /) -> None:
        self.names(task.network(), task)

    def tells(self, task: Task, /) -> tuple[str, ...]:
        if self.layers == "model":
            return tuple(entry.name for entry in task.layout.entries if entry.start < task.layout.trainable)
        return tuple(self.names(task.network(), task))

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        after, examples = trained_alone(self.local, self.epochs, baton, visit)
        return baton, visit.memory, Report(visit.client.id, examples, uplink={"trait": self.of(after, visit)})

    def of(self, trained: Baton, visit: Visit) -> torch.Tensor:
        """The trait of a client whose model this is."""
        if self.layers == "model":
            return visit.weights(trained.params)
        pieces = visit.task.layout.pieces(trained.params)
        return torch.cat([pieces[name].reshape(-1) for name in self.names(visit.workspaces.main.network, visit.task)])

    def names(self, network: nn.Module, task: Task) -> list[str]:
        """The layers whose weights are sent; those that are frozen are the same everywhere, and say nothing."""
        trained = {entry.name for entry in task.layout.entries}
        return linear_layers(network, self.layers, trained)


@dataclass(frozen=True)
class Confidence(Trait):
    """How sure of each class the client's model is, after `epochs` of training on the client alone, on public exemplars
    of that class (FedSeq 2022, ψ_conf; journal 2024, Eq. 2).

    `rule`: `softmax` of the mean output for each class (the equation), or `published`: the mean probability of each
    class, divided by their sum, as the authors' code does. `local` says how to train; if it is not given, as the run
    trains.
    """

    epochs: int = 10
    rule: Literal["softmax", "published"] = "softmax"
    local: Training | None = None
    kind: ClassVar[Kind] = "shares"

    def __post_init__(self) -> None:
        within("epochs", self.epochs, least=1)

    def trained_like(self, local: Work, /) -> Confidence:
        return replace(self, local=self.local or own(local))

    def check(self, task: Task, /) -> None:
        if task.public is None:
            raise BadInput(
                "confidence vectors need public exemplars: exemplars = 10 under [data] holds ten test examples of each "
                "class out for them"
            )
        if task.form.name != "classes":
            raise BadInput(f"confidence vectors need a model that tells classes apart; {unlike(task)}")

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        after, examples = trained_alone(self.local, self.epochs, baton, visit)
        return baton, visit.memory, Report(visit.client.id, examples, uplink={"trait": self.of(after, visit)})

    @torch.no_grad()
    def of(self, trained: Baton, visit: Visit) -> torch.Tensor:
        """The trait of a client whose model this is."""
        task, workspace = visit.task, visit.workspaces.main
        self.check(task)
        assert task.public is not None
        sums, counts = (trained.params.new_zeros(task.classes) for _ in range(2))
        workspace.load(trained.params, training=False)
        for x, y in task.public.on(sums.device).batches(EVALUATION_BATCH):
            output, target = predictions(workspace.answer(x), y)
            scores = output.softmax(-1) if self.rule == "published" else output
            sums.index_add_(0, target, scores.gather(1, target[:, None])[:, 0])
            counts.index_add_(0, target, counts.new_ones(len(target)))
        mean = (sums / counts)[counts > 0]  # classes too rare for an exemplar say nothing of anybody
        return mean / mean.sum() if self.rule == "published" else mean.softmax(0)


@dataclass(frozen=True)
class SeveralTraits(Work):
    """Several traits of one training: every client trains alone once, and tells all of them, as trait0, trait1, …"""

    parts: tuple[ClassifierWeights | Confidence, ...]

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        first = self.parts[0]
        after, examples = trained_alone(first.local, first.epochs, baton, visit)
        uplink = {f"trait{number}": part.of(after, visit) for number, part in enumerate(self.parts)}
        return baton, visit.memory, Report(visit.client.id, examples, uplink=uplink)


@dataclass(frozen=True)
class ClassHistogram(Trait):
    """How many examples of each class the client has (FedGSP 2022, V_k). Nothing is trained, but the client reveals its
    label distribution, and its size, to the server: choose another trait where that is private."""

    kind: ClassVar[Kind] = "counts"

    @property
    def reads_model(self) -> bool:
        return False

    def check(self, task: Task, /) -> None:
        if isinstance(task.loss, OutputLoss) or task.target in ("labels", "numbers", "several"):
            raise BadInput(f"a histogram of classes needs examples with classes; {unlike(task)}")

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        self.check(visit.task)
        y = visit.client.examples.y
        if not isinstance(y, torch.Tensor) or y.is_floating_point():
            raise BadInput("a histogram of classes needs examples with classes; these have other targets")
        y = y[visit.client.rows].reshape(-1).long()
        counts = torch.bincount(y[y != PADDING], minlength=visit.task.classes).float()
        return baton, visit.memory, Report(visit.client.id, 0, uplink={"trait": counts})


def own(local: Work) -> Training | None:
    """How the run trains, without what belongs to its method (terms, schedules, the choice of an epoch)."""
    if not isinstance(local, Training):
        return None
    terms = tuple(term for term in local.terms if isinstance(term, Sharpness))
    return replace(local, terms=terms, schedule=Constant(), keep="last", validation=0.0)


def trained_alone(local: Training | None, epochs: int, baton: Baton, visit: Visit) -> tuple[Baton, int]:
    """The model after this many epochs on the client, and how many examples that took."""
    after, _, report = replace(local or Sgd(), epochs=epochs, steps=None)(baton, visit)
    return after, report.examples


def linear_layers(network: nn.Module, layers: str, trained: Container[str] | None = None) -> list[str]:
    """The names of the weights of the linear layers, from the input on: all, the last two or the last one. Only those
    among `trained`, if that is given."""
    names = [f"{name}.weight" for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    names = [name for name in names if trained is None or name in trained]
    if not names and layers != "model":
        raise BadInput('the model has no linear layer to take weights from: layers = "model" takes all weights')
    return names[{"last": -1, "last2": -2}.get(layers, 0) :]


def predictions(output: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One row per prediction (every position of a sequence) that counts, and its target."""
    output, target = output.reshape(-1, output.shape[-1]), y.reshape(-1).long()
    counts = target != PADDING
    return output[counts], target[counts]


TRAITS = {
    "classifier": ClassifierWeights,
    "confidence": Confidence,
    "task2vec": Task2Vec,
    "histogram": ClassHistogram,
}
