"""What is learned: a model, its loss and its metrics, and the layout of its vector. A value that can be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import nn

from fedrelay import seeds
from fedrelay.data.examples import TARGETS, Store, Target, Transform, nested
from fedrelay.data.federation import Federation
from fedrelay.data.nests import Shape, form
from fedrelay.errors import BadInput
from fedrelay.kernels.functional import works_by_example
from fedrelay.kernels.layers import written_out
from fedrelay.kernels.native import dense_layers, filters
from fedrelay.models import Model
from fedrelay.models.inputs import spread
from fedrelay.tasks.headline import LOSS, Headline
from fedrelay.tasks.loss import Loss
from fedrelay.tasks.losses import LOSSES, USUAL, CrossEntropy, OutputLoss, check_target, loss_of, name_of
from fedrelay.tasks.metrics import Form, Metric, metric_of
from fedrelay.tasks.parts import Parts, parts_of, places
from fedrelay.types import Vector
from fedrelay.vectors import Layout


@dataclass(frozen=True)
class Task:
    """Model, input shape and number of classes; loss and metrics go with them, unless others are said."""

    model: Model
    shape: Shape
    classes: int
    public: Store | None = field(default=None, compare=False, repr=False)
    """Exemplars that everybody may look at (never train on), where the data has some."""
    target: Target = "classes"
    """What is to be learned of an example; `classes` is how many labels or numbers there are, if it is these."""
    loss: Loss = cast(Loss, None)
    """What training makes small. None: the model's own, or the usual one for such targets."""
    metrics: tuple[Metric, ...] = cast(Any, None)
    """The figures besides the loss. None: those that go with the loss."""
    judged_by: str = ""
    """The name of the headline: a metric, or `loss`. Empty: the first metric; without any, the loss."""
    transform: Transform | None = field(default=None, compare=False, repr=False)
    """What stored inputs become before the network takes them; everybody knows it, the server too."""
    outside: bool = field(default=False, compare=False, repr=False)
    """Whether it is asked about for training outside the interpreter, where more networks can be trained at once."""

    def __post_init__(self) -> None:
        if self.loss is None:
            own = self.model.loss
            usual = own == "cross_entropy" and self.target in USUAL
            object.__setattr__(self, "loss", USUAL[self.target] if usual else LOSSES[own]())
        if self.metrics is None:
            object.__setattr__(self, "metrics", self.loss.judged_by(self.target))
        if not self.judged_by:
            object.__setattr__(self, "judged_by", self.metrics[0].name if self.metrics else "loss")

    @classmethod
    def of(
        cls,
        model: Model,
        federation: Federation,
        *,
        loss: Loss | str | Callable[..., Any] | None = None,
        metrics: Iterable[Metric | str | Callable[..., Any]] | None = None,
        headline: str | None = None,
    ) -> Task:
        """The task of learning this federation's data with this model; what does not fit is refused here.

        `loss` and every one of `metrics` is a part, its name, or a function of outputs and targets. `headline` is the
        name of the metric that models are judged by: the first, unless you say another, or "loss".
        """
        source = federation.source
        task = cls(
            model,
            source.train.shape,
            source.classes,
            source.public,
            source.train.target,
            cast(Loss, None if loss is None else loss_of(loss)),
            cast(Any, None if metrics is None else tuple(map(metric_of, metrics))),
            headline or "",
            source.train.transform,
        )
        task.check()
        task.try_out(source.train, source.name)
        return task

    def check(self) -> None:
        """Refuse a loss that cannot learn these targets, and metrics that cannot judge it."""
        check_target(self.loss, self.target)
        self.loss.check(self.target, self.classes)
        names = [metric.name for metric in self.metrics]
        for name in names:
            if names.count(name) > 1 or name == "loss":
                raise BadInput(f"two figures are called {name!r}: give metrics of different names")
        for metric in self.metrics:
            metric.check(self.form)
        if self.judged_by not in (*names, "loss"):
            raise BadInput(
                f"the headline {self.judged_by!r} is not among the figures of this task: {', '.join((*names, 'loss'))}"
            )

    def try_out(self, examples: Store, name: str) -> None:
        """Run the model on two examples, and refuse what the loss cannot take, in our words."""
        x, y = examples.take(slice(0, 2))
        try:
            with torch.no_grad():
                output = self.network().eval()(x)
                self.loss.check_output(output, y, self.classes)
                self.loss(output, y)
        except BadInput:
            raise
        except Exception as error:
            raise BadInput(
                f"model {self.model} does not take the inputs of {name!r}, {form(x)} with targets {form(y)}: {error}"
            ) from error

    @property
    def form(self) -> Form:
        """What the network answers with, as metrics see it."""
        return self.loss.form(self.target, self.classes)

    @property
    def outputs(self) -> int:
        """How many outputs the network needs."""
        return self.loss.outputs(self.target, self.classes)

    @property
    def headline(self) -> Headline:
        """The figure to judge models by."""
        found = next((metric for metric in self.metrics if metric.name == self.judged_by), None)
        return LOSS if found is None else Headline(found.name, found.higher_is_better, found.share)

    def network(self) -> nn.Module:
        """A network of this task, the same one every time."""
        with seeds.torch_seed(0, "layout"):
            return spread(self.model(self.shape, self.outputs), self.shape)

    @cached_property
    def layout(self) -> Layout:
        with torch.device("meta"):
            return layout_of(self.model(self.shape, self.outputs))

    @property
    def plain(self) -> bool:
        """Whether gradients can be written out: one class an example, and every class counts the same."""
        return self.loss == CrossEntropy() and self.target in ("classes", "tokens")

    @cached_property
    def parts(self) -> Parts:
        """Which parts of the network have a role."""
        with torch.device("meta"):
            return parts_of(self.model(self.shape, self.outputs))

    def places(self, patterns: tuple[str, ...]) -> tuple[slice, ...]:
        """Where these parts (`norm`, `head` or patterns for names) are in a model's vector."""
        if patterns not in self._found:
            self._found[patterns] = places(self.layout, self.parts, patterns)
        return self._found[patterns]

    @cached_property
    def _found(self) -> dict[tuple[str, ...], tuple[slice, ...]]:
        return {}

    @cached_property
    def written(self) -> bool:
        """Whether gradients of several models of this kind are written out: plain sequences of known layers."""
        if not self.plain or nested(self.shape):
            return False
        two = torch.empty(2, self.layout.trainable, device="meta")
        return written_out(self.network(), self.layout, two, two) is not None

    @cached_property
    def stacks(self) -> bool:
        """Whether several models of this kind can be trained at once: so, or by `torch.func`."""
        if self.outside and self.trains_natively:
            return True
        if self.written or not self.plain or nested(self.shape):
            return self.written
        with seeds.torch_seed(0, "layout"):
            two = torch.randn(2, *self.shape)
        return works_by_example(self.network(), self.layout, two)

    @cached_property
    def trains_natively(self) -> bool:
        """Whether the compiled library can train models of this kind: plain sequences of dense layers, with
        convolutions or LSTM layers before them or without."""
        return self.plain and not nested(self.shape) and dense_layers(self.network(), self.layout) is not None

    @cached_property
    def native(self) -> bool:
        """Whether it can do something for them: train, or filter for others that have large convolutions."""
        return self.trains_natively or filters(self.network())

    @cached_property
    def natively(self) -> Task:
        """The same, for training outside the interpreter."""
        return replace(self, outside=True)

    def init(self, seed: int) -> Vector:
        """A fresh model: the network's own initialisation, drawn from the seed."""
        with seeds.torch_seed(seed, "init"):
            network = self.model(self.shape, self.outputs)
        layout = layout_of(network)
        params = torch.empty(layout.size)
        layout.bind(network, params, torch.empty(layout.trainable))
        return params

    def __getstate__(self) -> dict[str, Any]:
        """With the loss itself, which may be in no table of the process that it is sent to."""
        return {part.name: getattr(self, part.name) for part in fields(self)}


def unlike(task: Task) -> str:
    """What there is instead of classes, for whoever needs them."""
    if isinstance(task.loss, OutputLoss):
        return "these have none: the model returns its own loss"
    if task.target in ("labels", "numbers"):
        return f"these have {TARGETS[task.target]}"
    return f"here there is {TARGETS[task.target]}, learned by {name_of(task.loss)}"


def layout_of(network: nn.Module) -> Layout:
    """Where the network's tensors are in its vector."""
    layout = Layout.of(network)
    if not layout.trainable:
        raise BadInput("the model has no trainable parameter")
    return layout
