"""What is learned: a model, its loss and its metrics, and the layout of its vector. A value that can be sent."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import torch
from torch import nn

from fedrelay import seeds
from fedrelay.data.examples import Store, nested
from fedrelay.data.federation import Federation
from fedrelay.data.nests import Shape, form
from fedrelay.errors import BadInput
from fedrelay.kernels.layers import written_out
from fedrelay.models import Model
from fedrelay.models.inputs import spread
from fedrelay.tasks.losses import LOSSES, CrossEntropy, Loss
from fedrelay.tasks.parts import Parts, parts_of, places
from fedrelay.types import Vector
from fedrelay.vectors import Layout


@dataclass(frozen=True)
class Task:
    """Model, input shape and number of classes; the loss is the model's own."""

    model: Model
    shape: Shape
    classes: int
    public: Store | None = field(default=None, compare=False, repr=False)
    """Exemplars that everybody may look at (never train on), where the data has some."""

    @classmethod
    def of(cls, model: Model, federation: Federation) -> Task:
        """The task of learning this federation's data with this model; a model that does not fit is refused here."""
        source = federation.source
        task = cls(model, source.train.shape, source.classes, source.public)
        x, y = source.train.take(slice(0, 2))
        try:
            with torch.no_grad():
                task.loss(task.network().eval()(x), y)
        except BadInput:
            raise
        except Exception as error:
            raise BadInput(
                f"model {model} does not take the inputs of {source.name!r}, {form(x)} with targets {form(y)}: {error}"
            ) from error
        return task

    @cached_property
    def loss(self) -> Loss:
        """What training makes small."""
        return LOSSES[self.model.loss]

    @property
    def headline(self) -> tuple[str, bool]:
        """The figure to judge models by, and whether higher is better."""
        first = next(iter(self.loss.metrics), None)
        return ("loss", False) if first is None else (first.name, first.higher_is_better)

    def network(self) -> nn.Module:
        """A network of this task, the same one every time."""
        with seeds.torch_seed(0, "layout"):
            return spread(self.model(self.shape, self.classes), self.shape)

    @cached_property
    def layout(self) -> Layout:
        with torch.device("meta"):
            return layout_of(self.model(self.shape, self.classes))

    @cached_property
    def parts(self) -> Parts:
        """Which parts of the network have a role."""
        with torch.device("meta"):
            return parts_of(self.model(self.shape, self.classes))

    def places(self, patterns: tuple[str, ...]) -> tuple[slice, ...]:
        """Where these parts (`norm`, `head` or patterns for names) are in a model's vector."""
        if patterns not in self._found:
            self._found[patterns] = places(self.layout, self.parts, patterns)
        return self._found[patterns]

    @cached_property
    def _found(self) -> dict[tuple[str, ...], tuple[slice, ...]]:
        return {}

    @cached_property
    def stacks(self) -> bool:
        """Whether several models of this kind can be trained at once."""
        if nested(self.shape):
            return False
        two = torch.empty(2, self.layout.trainable, device="meta")
        return isinstance(self.loss, CrossEntropy) and written_out(self.network(), self.layout, two, two) is not None

    def init(self, seed: int) -> Vector:
        """A fresh model: the network's own initialisation, drawn from the seed."""
        with seeds.torch_seed(seed, "init"):
            network = self.model(self.shape, self.classes)
        layout = layout_of(network)
        params = torch.empty(layout.size)
        layout.bind(network, params, torch.empty(layout.trainable))
        return params

    def __getstate__(self) -> dict[str, Any]:
        """With the loss itself, which may be in no table of the process that it is sent to."""
        return {part.name: getattr(self, part.name) for part in fields(self)} | {"loss": self.loss}


def layout_of(network: nn.Module) -> Layout:
    """Where the network's tensors are in its vector."""
    layout = Layout.of(network)
    if not layout.trainable:
        raise BadInput("the model has no trainable parameter")
    return layout
