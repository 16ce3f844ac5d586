"""What is learned: a model, its loss and its metrics, and the layout of its vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from fedrelay import seeds
from fedrelay.data.federation import Examples, Federation
from fedrelay.errors import BadInput
from fedrelay.kernels.layers import written_out
from fedrelay.models import Model
from fedrelay.types import Vector
from fedrelay.vectors import Layout

EVALUATION_BATCH = 1024


Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""The loss of a batch of inputs and targets, ready for `backward`."""


class Desk:
    """A network to work at: its tensors are views into `params`, its gradients into `gradient`.

    `weights` is the trainable part of `params`. There is one desk per task and process; whoever works at it first
    puts a model on it with `load` and takes a copy of the result away.
    """

    def __init__(self, network: nn.Module, layout: Layout, loss: str) -> None:
        self.network = network
        self.params = torch.empty(layout.size)
        self.weights = self.params[: layout.trainable]
        self.gradient = torch.zeros(layout.trainable)
        layout.bind(network, self.params, self.gradient)
        self._loss = loss
        self._layers = (
            written_out(network, layout, self.weights.unsqueeze(0), self.gradient.unsqueeze(0))
            if loss == "cross_entropy"
            else None
        )

    def load(self, params: Vector, *, training: bool) -> None:
        """Put a model on the desk."""
        self.params.copy_(params)
        if self.network.training is not training:
            self.network.train(training)

    @property
    def draws(self) -> bool:
        """Whether training may draw random numbers (dropout)."""
        return self._layers is None or self._layers.draws

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch, ready for `backward`."""
        output = self.network(x)
        return output.mean() if self._loss == "output" else cross_entropy(output, y)

    def differentiate(self, x: torch.Tensor, y: torch.Tensor, loss_of: Loss | None = None) -> torch.Tensor:
        """Fill `gradient` with the gradient of the batch's mean loss (or another loss), which is returned."""
        if self._layers is not None and loss_of is None and y.ndim == 1:
            return self._layers.differentiate(x, y, training=self.network.training)
        self.gradient.zero_()
        loss = (loss_of or self.loss)(x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def step(self, x: torch.Tensor, y: torch.Tensor, lr: float) -> torch.Tensor:
        """Let the weights take a plain step against the gradient of the batch's mean loss, which is returned; what
        `gradient` is afterwards is not said."""
        if self._layers is not None and y.ndim == 1:
            return self._layers.differentiate(x, y, training=self.network.training, lr=lr)
        loss = self.differentiate(x, y)
        self.weights.add_(self.gradient, alpha=-lr)
        return loss


class Stack:
    """Several desks side by side, one model a row of `weights`; only for networks of known layers (`Task.stacks`)."""

    def __init__(self, network: nn.Module, layout: Layout, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        self._network, self._layout = network, layout
        self.weights, self.gradient = weights, gradient
        layers = written_out(network, layout, weights, gradient)
        if layers is None:
            raise BadInput(f"{type(network).__name__} cannot be stacked: it is not a plain sequence of known layers")
        self._layers = layers

    @property
    def params(self) -> torch.Tensor:
        """All numbers of the models: such networks have no buffers."""
        return self.weights

    def first(self, rows: int) -> Stack:
        """The first rows alone, at the same place in memory."""
        whole = rows == len(self.weights)
        return self if whole else Stack(self._network, self._layout, self.weights[:rows], self.gradient[:rows])

    def differentiate(self, x: torch.Tensor, y: torch.Tensor, loss_of: Loss | None = None) -> torch.Tensor:
        """Fill `gradient` from one batch a model, (rows, batch, ...); the mean losses, one a row, are returned."""
        if loss_of is not None:
            raise BadInput("another loss than the model's own cannot be stacked")
        return self._run(x, y, None)

    def step(self, x: torch.Tensor, y: torch.Tensor, lr: float) -> torch.Tensor:
        """Let the weights of every model take a plain step; the mean losses, one a row, are returned."""
        return self._run(x, y, lr)

    def _run(self, x: torch.Tensor, y: torch.Tensor, lr: float | None) -> torch.Tensor:
        if self.weights.shape[0] == 1:  # one model has kernels of its own
            return self._layers.differentiate(x[0], y[0], lr=lr).unsqueeze(0)
        return self._layers.differentiate(x, y, lr=lr)


def cross_entropy(output: torch.Tensor, y: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Over classes, or over every position of a sequence; targets of -100 (padding) do not count."""
    return functional.cross_entropy(output.reshape(-1, output.shape[-1]), y.reshape(-1), reduction=reduction)


@dataclass(frozen=True)
class Task:
    """Model, input shape and number of classes. It can be pickled; the desk is made anew in every process."""

    model: Model
    shape: tuple[int, ...]
    classes: int
    public: Examples | None = field(default=None, compare=False, repr=False)
    """Exemplars that everybody may look at (never train on), where the data has some."""

    @classmethod
    def of(cls, model: Model, federation: Federation) -> Task:
        """The task of learning this federation's data with this model; a model that does not fit is refused here."""
        source = federation.source
        task = cls(model, source.train.shape, source.classes, source.public)
        x, y = source.train.take(slice(0, 2))
        try:
            with torch.no_grad():
                task.desk.load(task.init(0), training=False)
                task.desk.loss(x, y)
        except BadInput:
            raise
        except Exception as error:
            raise BadInput(
                f"model {model} does not take the inputs of {source.name!r}, "
                f"{tuple(x.shape)} {x.dtype} with targets {tuple(y.shape)}: {error}"
            ) from error
        return task

    @cached_property
    def desk(self) -> Desk:
        return self._new_desk()

    @cached_property
    def side_desk(self) -> Desk:
        """A second desk, for a model that is only looked at while another one is trained."""
        return self._new_desk()

    @cached_property
    def stacks(self) -> bool:
        """Whether several models of this kind can be trained at once."""
        two = torch.empty(2, self.layout.trainable, device="meta")
        loss = self.model.loss == "cross_entropy"
        return loss and written_out(self.desk.network, self.layout, two, two) is not None

    def stack(self, rows: int) -> Stack:
        """Room for this many models at once; whoever works there first fills `weights`. There is one per process."""
        known: Stack | None = self.__dict__.get("_stack")
        if known is None or len(known.weights) < rows:
            # Two pieces, so that both begin where memory is aligned however many rows there are: bits depend on it.
            weights, gradient = (torch.empty(rows, self.layout.trainable) for _ in range(2))
            known = self.__dict__["_stack"] = Stack(self.desk.network, self.layout, weights, gradient)
        return known.first(rows)

    def _new_desk(self) -> Desk:
        with seeds.torch_seed(0, "layout"):
            network = self.model(self.shape, self.classes)
        return Desk(network, self.layout_of(network), self.model.loss)

    @cached_property
    def layout(self) -> Layout:
        with torch.device("meta"):
            return self.layout_of(self.model(self.shape, self.classes))

    @staticmethod
    def layout_of(network: nn.Module) -> Layout:
        layout = Layout.of(network)
        if not layout.trainable:
            raise BadInput("the model has no trainable parameter")
        return layout

    def __getstate__(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def init(self, seed: int) -> Vector:
        """A fresh model: the network's own initialisation, drawn from the seed."""
        with seeds.torch_seed(seed, "init"):
            network = self.model(self.shape, self.classes)
        layout = self.layout_of(network)
        params = torch.empty(layout.size)
        layout.bind(network, params, torch.empty(layout.trainable))
        return params

    @torch.no_grad()
    def evaluate(self, params: Vector, examples: Examples, batch: int = EVALUATION_BATCH) -> dict[str, float]:
        """Mean loss and (for classes) accuracy on these examples."""
        self.desk.load(params, training=False)
        loss = correct = count = 0.0
        for x, y in examples.batches(batch):
            output = self.desk.network(x)
            if self.model.loss == "output":
                loss += float(output.sum())
                count += len(y)
            else:
                loss += float(cross_entropy(output, y, "sum"))
                correct += int((output.argmax(-1) == y).sum())
                count += int((y != -100).sum())
        if not count:
            raise BadInput("there are no examples to evaluate on")
        metrics = {"loss": loss / count}
        if self.model.loss != "output":
            metrics["accuracy"] = correct / count
        return metrics
