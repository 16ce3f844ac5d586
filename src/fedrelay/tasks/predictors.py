"""How the result of a run predicts: usually as one model, but several can vote, or every client has its own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch

from fedrelay.data.examples import Store
from fedrelay.errors import BadInput, within
from fedrelay.system.devices import deterministic
from fedrelay.tasks.losses import CrossEntropy
from fedrelay.tasks.metrics import Form
from fedrelay.tasks.parts import PRIVATE
from fedrelay.tasks.tallies import Mean, Tally
from fedrelay.tasks.task import Task
from fedrelay.tasks.workspaces import Workspaces
from fedrelay.types import Tree, Vector

EVALUATION_BATCH = 1024
MOST_TESTED = 20
"""The models of so many clients are tested where each would have to be tested on everything."""

Outputs: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""From a batch of inputs to what a network would return for them."""


class Predictor(ABC):
    """What one would use now. A frozen dataclass."""

    @property
    @abstractmethod
    def vectors(self) -> tuple[Vector, ...]:
        """Every model it consists of, in a fixed order."""

    @abstractmethod
    def outputs(self, workspaces: Workspaces, /) -> Outputs:
        """The function that predicts, good until somebody else uses these workspaces."""

    def for_client(self, client: int, /) -> Predictor:
        """What this client would use."""
        return self

    @property
    def tests(self) -> str:
        """What is tested of it, in words."""
        return f"{len(self.vectors)} models together"


@dataclass(frozen=True)
class OneModel(Predictor):
    """One model for everybody; `of` says in words which one it is."""

    params: Vector
    of: str = "the model"

    @property
    def tests(self) -> str:
        return self.of

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return (self.params,)

    def outputs(self, workspaces: Workspaces, /) -> Outputs:
        workspaces.main.load(self.params, training=False)
        return workspaces.main.answer


@dataclass(frozen=True)
class Ensemble(Predictor):
    """Several models that vote: the mean of the probabilities they give, all alike or by `shares`."""

    models: tuple[Vector, ...]
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise BadInput("an ensemble needs at least one model")
        if self.shares is None:
            return
        if len(self.shares) != len(self.models) or min(self.shares) < 0 or not 0 < sum(self.shares) < math.inf:
            raise BadInput(
                f"{len(self.models)} models vote, but the shares are {self.shares}: give each one from 0, not all 0"
            )

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return self.models

    @property
    def tests(self) -> str:
        return f"{len(self.models)} models that vote"

    def outputs(self, workspaces: Workspaces, /) -> Outputs:
        if not isinstance(workspaces.task.loss, CrossEntropy):
            raise BadInput(f"models vote on classes, and {workspaces.task.model} tells none apart")
        given = self.shares or (1.0,) * len(self.models)
        shares = [share / sum(given) for share in given]

        def vote(x: torch.Tensor) -> torch.Tensor:
            logs = []
            for params, share in zip(self.models, shares, strict=True):
                if share:
                    workspaces.main.load(params, training=False)
                    logs.append(workspaces.main.answer(x).log_softmax(-1) + math.log(share))
            # The logits whose softmax is the vote. Probabilities themselves would be 0 where all models are sure.
            return torch.logsumexp(torch.stack(logs), 0)

        return vote


@dataclass(frozen=True)
class OpenSetVote:
    """How models vote whose last output is "unknown": those that give an image the least chance to be unknown (the
    `lowest`, or all) add up the chances they give the classes; with `renormalise` each gives away a whole vote."""

    lowest: int | None = None
    renormalise: bool = False

    def __post_init__(self) -> None:
        if self.lowest is not None:
            within("lowest", self.lowest, least=1)

    def __call__(self, outputs: torch.Tensor, /) -> torch.Tensor:
        """From (models, examples, outputs) to the logits whose softmax is the vote."""
        logs = outputs.log_softmax(-1)
        sure = logs[..., -1].argsort(dim=0, stable=True)[: self.lowest]
        known = logs[..., :-1].log_softmax(-1) if self.renormalise else logs[..., :-1]
        return torch.logsumexp(known.gather(0, sure[..., None].expand(*sure.shape, known.shape[-1])), 0)


@dataclass(frozen=True)
class OpenSet(Predictor):
    """Several models that vote and may each say "unknown"; together they always name a class."""

    models: tuple[Vector, ...]
    vote: OpenSetVote = OpenSetVote()

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return self.models

    @property
    def tests(self) -> str:
        return "one model" if len(self.models) == 1 else f"{len(self.models)} models that vote"

    def outputs(self, workspaces: Workspaces, /) -> Outputs:
        def voted(x: torch.Tensor) -> torch.Tensor:
            said = []
            for params in self.models:
                workspaces.main.load(params, training=False)
                said.append(workspaces.main.answer(x))
            return self.vote(torch.stack(said))

        return voted


Tested = Literal["own", "each", "common"]
"""Which models of `PerClient` are tested: everybody's own, on its own test part; every one, on the whole test set; or
the common one."""


@dataclass(frozen=True)
class PerClient(Predictor):
    """A model of its own for every client that has one; `common` for all others, and for the central test set. With
    `beside`, the models that are not `tested` are tested too, and recorded under names of their own."""

    common: Vector
    own: Mapping[int, Vector]
    tested: Tested = "own"
    beside: bool = False

    @property
    def tests(self) -> str:
        some, every = len(self.some), len(self.own)
        whose = "every client's model" if some == every else f"the models of {some} of {every} clients, each"
        return {
            "own": "every client's own model, on its test part if it has one: the mean",
            "each": f"{whose}, on the whole test set: the mean",
            "common": "the model that clients have in common",
        }[self.tested]

    @property
    def some(self) -> Sequence[int]:
        """The clients whose models are tested where each would have to be tested on everything."""
        clients = sorted(self.own)
        return clients[:: max(-(-len(clients) // MOST_TESTED), 1)]

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return (self.common, *(self.own[client] for client in sorted(self.own)))

    def outputs(self, workspaces: Workspaces, /) -> Outputs:
        return OneModel(self.common).outputs(workspaces)

    def for_client(self, client: int, /) -> Predictor:
        return OneModel(self.own.get(client, self.common))


class OwnModels(Mapping[int, Vector]):
    """The common model with every client's own parts, made when one is asked for. Clients that keep none have none."""

    def __init__(self, common: Vector, places: tuple[slice, ...], memories: Mapping[int, Tree]) -> None:
        self._common, self._places, self._memories = common, places, memories
        self._clients = tuple(client for client in memories if PRIVATE in memories[client])

    def __getitem__(self, client: int) -> Vector:
        if client not in self._clients:
            raise KeyError(client)
        model, start, own = self._common.clone(), 0, self._memories[client][PRIVATE]
        for place in self._places:
            model[place] = own[start : start + place.stop - place.start]
            start += place.stop - place.start
        return model

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


def evaluate_clients(
    predictor: Predictor, tests: Iterable[tuple[int, Store]], workspaces: Workspaces
) -> dict[str, float]:
    """The mean, by examples, of what clients' own models are worth, each on its own examples."""
    totals: dict[str, tuple[float, int]] = {}
    for client, examples in tests:
        for name, value in evaluate(predictor.for_client(client), examples, workspaces).items():
            total, count = totals.get(name, (0.0, 0))
            # What a client's examples have no figure of (AUROC, if all are of one class) is not counted.
            known = not math.isnan(value) or name == "loss"
            totals[name] = (total + value * len(examples), count + len(examples)) if known else (total, count)
    if not totals:
        raise BadInput("there are no examples to evaluate on")
    return {name: total / count if count else math.nan for name, (total, count) in totals.items()}


@torch.no_grad()
def evaluate(
    predictor: Predictor | Vector, examples: Store, workspaces: Workspaces, batch: int = EVALUATION_BATCH
) -> dict[str, float]:
    """The mean loss and the task's metrics on these examples, computed where the workspaces are."""
    predictor = OneModel(predictor) if isinstance(predictor, torch.Tensor) else predictor
    with deterministic(workspaces.device):
        return judged(predictor, examples.on(workspaces.device), workspaces, batch)


def judged(predictor: Predictor, examples: Store, workspaces: Workspaces, batch: int) -> dict[str, float]:
    """The same, of examples that are there."""
    outputs, task, loss = predictor.outputs(workspaces), workspaces.task, workspaces.task.loss.tally()
    tallies: dict[str, Tally] = {}
    for x, y in examples.batches(batch):
        output = outputs(x)
        answer = task.loss.answer(output, y)
        if not tallies:
            tallies = {metric.name: metric.tally(form_of(answer, task)) for metric in task.metrics}
        loss.add(output, y)
        for tally in tallies.values():
            tally.add(answer, y)
    found = loss.value()
    if not len(examples) or (isinstance(loss, Mean) and not loss.count):
        raise BadInput("there are no examples to evaluate on")
    return {"loss": found, **{name: tally.value() for name, tally in tallies.items()}}


def form_of(answer: Any, task: Task) -> Form:
    """The form of the task's answers; a network may have scores for more classes than there are examples of."""
    form = task.form
    return replace(form, count=max(form.count, answer.shape[-1])) if form.name == "classes" else form
