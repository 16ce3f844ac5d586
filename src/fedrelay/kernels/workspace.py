"""Where models are trained: a network over one flat vector, or several side by side over the rows of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import nn

from fedrelay.errors import BadInput
from fedrelay.kernels.layers import written_out
from fedrelay.models.network import Network
from fedrelay.types import Vector
from fedrelay.vectors import Layout

BatchLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""The mean loss of a batch: of its output and its targets, or of its inputs and its targets; ready for `backward`."""


class Forward(NamedTuple):
    """What a network makes of a batch: its output, and the features before the last layer where it has a body."""

    features: torch.Tensor | None
    output: torch.Tensor


class Workspace:
    """A network to work with: its tensors are views into `params`, its gradients into `gradient`.

    `weights` is the trainable part of `params`. Whoever works here first puts a model in with `load` and takes a copy
    of the result away. With `written`, the loss is cross-entropy, and known layers run with gradients written out.
    """

    def __init__(self, network: nn.Module, layout: Layout, loss: BatchLoss, *, written: bool) -> None:
        self.network = network
        self.params = torch.empty(layout.size)
        self.weights = self.params[: layout.trainable]
        self.gradient = torch.zeros(layout.trainable)
        layout.bind(network, self.params, self.gradient)
        self._loss = loss
        rows = self.weights.unsqueeze(0), self.gradient.unsqueeze(0)
        self._layers = written_out(network, layout, *rows) if written else None

    def load(self, params: Vector, *, training: bool) -> None:
        """Put a model in."""
        self.params.copy_(params)
        if self.network.training is not training:
            self.network.train(training)

    @property
    def draws(self) -> bool:
        """Whether training may draw random numbers (dropout)."""
        return self._layers is None or self._layers.draws

    def forward(self, x: torch.Tensor) -> Forward:
        """Run the network; the features are those that its head gets."""
        if not isinstance(self.network, Network):
            return Forward(None, self.network(x))
        features = self.network.body(x)
        return Forward(features, self.network.head(features))

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch, ready for `backward`."""
        return self._loss(self.network(x), y)

    def differentiate(self, x: torch.Tensor, y: torch.Tensor, loss_of: BatchLoss | None = None) -> torch.Tensor:
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


class StackedWorkspace:
    """Several workspaces side by side, one model a row of `weights`; only for networks of known layers."""

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

    def first(self, rows: int) -> StackedWorkspace:
        """The first rows alone, at the same place in memory."""
        if rows == len(self.weights):
            return self
        return StackedWorkspace(self._network, self._layout, self.weights[:rows], self.gradient[:rows])

    def differentiate(self, x: torch.Tensor, y: torch.Tensor, loss_of: BatchLoss | None = None) -> torch.Tensor:
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
