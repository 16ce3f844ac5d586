"""Where models are trained: a network over one flat vector, or several side by side over the rows of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import nn

from fedrelay.errors import BadInput
from fedrelay.kernels.functional import Functional
from fedrelay.kernels.layers import written_out
from fedrelay.kernels.native import Dense, Filtering, Looking, dense_layers, filters
from fedrelay.kernels.views import Views, has_images
from fedrelay.models.network import Network
from fedrelay.system.devices import CPU, find
from fedrelay.types import Vector
from fedrelay.vectors import MOST, Layout, buffers, whole_numbers

BatchLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""The mean loss of a batch: of its output and its targets, or of its inputs and its targets; ready for `backward`."""


Precision: TypeAlias = Literal["float32", "bf16"]
"""In what numbers steps are computed: models are float32 in any case, and so is what becomes of them."""


@dataclass(frozen=True)
class Computing:
    """Where models are computed, and how: all of it shows in the bits."""

    device: torch.device = CPU
    precision: Precision = "float32"
    compiled: bool = False

    @classmethod
    def of(
        cls, device: str, precision: Precision = "float32", *, compiled: bool = False, native: bool = False
    ) -> Computing:
        """As a configuration says it; what there is not, or does not go together, is refused."""
        if precision not in get_args(Precision):
            raise BadInput(f"precision must be {' or '.join(get_args(Precision))}, not {precision!r:.60}")
        found = cls(find(device), precision, compiled)
        if native and found != cls():
            raise BadInput(
                "native = true computes on the processor, in float32, by a library that is compiled already: leave it "
                "out, or leave out device, precision and compile"
            )
        return found

    @property
    def plain(self) -> bool:
        """Whether gradients may be written out: those are float32, and not compiled."""
        return self.precision == "float32" and not self.compiled

    def lower(self) -> AbstractContextManager[object]:
        """Inside, products are computed in the precision that was asked for."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)


class Forward(NamedTuple):
    """What a network makes of a batch: its output, and the features before the last layer where it has a body."""

    features: torch.Tensor | None
    output: torch.Tensor


class Workspace:
    """A network to work with: its tensors are views into `params`, its gradients into `gradient`.

    `weights` is the trainable part of `params`. Whoever works here first puts a model in with `load` and takes a
    copy of the result away with `model`. With `written`, the loss is cross-entropy, and known layers run with
    gradients written out; with `native` too, `dense` trains outside the interpreter, if the network is of dense
    layers, with convolutions or LSTM layers before them or without, and `answer` runs convolutions there. With
    `native`, large convolutions are filtered in the compiled library in any case. Parts of the network that are in
    `.eval()` stay so.
    """

    def __init__(
        self,
        network: nn.Module,
        layout: Layout,
        loss: BatchLoss,
        *,
        written: bool,
        native: bool = False,
        computing: Computing = Computing(),
    ) -> None:
        self.network = network.to(computing.device)
        self.params = torch.empty(layout.size, device=computing.device)
        self.weights = self.params[: layout.trainable]
        self.gradient = torch.zeros(layout.trainable, device=computing.device)
        written = written and computing.plain
        self._resting = [module for module in network.modules() if not module.training]
        self._training: bool | None = None
        self._beside = Beside(network, layout, self.params)
        layout.bind(network, self.params, self.gradient)
        self._loss, self._computing = loss, computing
        self._run: Callable[[torch.Tensor], torch.Tensor] = torch.compile(network) if computing.compiled else network
        rows = self.weights.unsqueeze(0), self.gradient.unsqueeze(0)
        self._layers = written_out(network, layout, *rows) if written else None
        found = dense_layers(network, layout) if written and native else None
        self.dense = None if found is None else Dense(found, self.weights, self.gradient)
        self._looking = Looking(network, found, self.weights) if found is not None and found.stages else None
        large = native and computing == Computing() and filters(network)
        images = not computing.compiled and self._layers is None and has_images(network)
        self._inside: AbstractContextManager[object] = Filtering() if large else Views() if images else nullcontext()

    def load(self, params: Vector, *, training: bool) -> None:
        """Put a model in."""
        self.put(params)
        self.mode(training=training)

    def put(self, params: Vector) -> None:
        """Put a model in, without a change of mode."""
        self.params.copy_(params)
        self._beside.scatter()

    def mode(self, *, training: bool) -> None:
        """Train or only look; what the network's owner has put in `.eval()` stays so."""
        if self._training is training:
            return
        self.network.train(training)
        if training:
            for module in self._resting:
                module.training = False
        self._training = training

    def model(self) -> Vector:
        """A copy of the model that is in here now."""
        self._beside.gather()
        return self.params.clone()

    @property
    def draws(self) -> bool:
        """Whether training may draw random numbers (dropout)."""
        return self._layers is None or self._layers.draws

    def forward(self, x: torch.Tensor) -> Forward:
        """Run the network; the features are those that its head gets."""
        with self._inside:
            if not isinstance(self.network, Network):
                return Forward(None, self.network(x))
            features = self.network.body(x)
            return Forward(features, self.network.head(features))

    def answer(self, x: torch.Tensor) -> torch.Tensor:
        """What the network says of a batch, for whoever only looks."""
        if self._looking is not None and not self._training and self._looking.takes(x):
            return self._looking(x)
        with self._inside:
            output: torch.Tensor = self.network(x)
        return output

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch, ready for `backward`."""
        return self._loss(self._run(x), y)

    def differentiate(self, x: torch.Tensor, y: torch.Tensor, loss_of: BatchLoss | None = None) -> torch.Tensor:
        """Fill `gradient` with the gradient of the batch's mean loss (or another loss), which is returned."""
        if self._layers is not None and loss_of is None and y.ndim == 1:
            return self._layers.differentiate(x, y, training=bool(self._training))
        self.gradient.zero_()
        with self._computing.lower(), self._inside:
            loss = (loss_of or self.loss)(x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def step(self, x: torch.Tensor, y: torch.Tensor, lr: float) -> torch.Tensor:
        """Let the weights take a plain step against the gradient of the batch's mean loss, which is returned; what
        `gradient` is afterwards is not said."""
        if self._layers is not None and y.ndim == 1:
            return self._layers.differentiate(x, y, training=bool(self._training), lr=lr)
        loss = self.differentiate(x, y)
        self.weights.add_(self.gradient, alpha=-lr)
        return loss


class Beside:
    """The buffers that are not, or might not stay, views into the vector: whole numbers, those that a module puts
    another tensor in place of, and those that do not travel, which every visit must find as they were."""

    def __init__(self, network: nn.Module, layout: Layout, params: Vector) -> None:
        places = {entry.name: entry for entry in layout.entries}
        known = list(buffers(network))
        self._travelling = [(b, places[b.name].view(params), places[b.name].whole) for b in known if b.name in places]
        self._fixed = [(b, b.tensor.detach().clone()) for b in known if b.name not in places]

    def scatter(self) -> None:
        """Let the network have what the vector says, and what never changes."""
        for (_, module, key, tensor), view, whole in self._travelling:
            module._buffers[key] = tensor
            if whole:
                tensor.copy_(whole_numbers(view))
        for (_, module, key, tensor), value in self._fixed:
            module._buffers[key] = tensor
            tensor.copy_(value)

    def gather(self) -> None:
        """Let the vector have what the network says."""
        for (_, module, key, tensor), view, whole in self._travelling:
            now = module._buffers[key]
            if whole and now is not None:
                view.copy_(now).div_(MOST)
            elif now is not None and now is not tensor:
                view.copy_(now.detach())
                module._buffers[key] = tensor


class StackedWorkspace:
    """Several workspaces side by side, one model a row of `weights`; only for networks of known layers, or such as work
    example by example (`works_by_example`)."""

    def __init__(self, network: nn.Module, layout: Layout, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        self._network, self._layout = network, layout
        self.weights, self.gradient = weights, gradient
        known = written_out(network, layout, weights, gradient)
        self._known = known is not None
        self._layers = known or Functional(network.to(weights.device), layout, weights, gradient)

    @property
    def params(self) -> torch.Tensor:
        """All numbers of the models: such networks have no buffers."""
        return self.weights

    def put(self, params: torch.Tensor) -> None:
        """Put models in."""
        self.weights.copy_(params)

    def model(self) -> torch.Tensor:
        """A copy of the models."""
        return self.weights.clone()

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
        if self._known and self.weights.shape[0] == 1:  # one model has kernels of its own
            return self._layers.differentiate(x[0], y[0], lr=lr).unsqueeze(0)
        return self._layers.differentiate(x, y, lr=lr)
