"""Metrics: figures to judge a model by, each over a whole set of examples (never the mean of its batches)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, cast

import torch

from fedrelay.errors import BadInput, within
from fedrelay.tasks import from_torchmetrics as measured
from fedrelay.tasks.tallies import PADDING, Mean, Measured, Tally, Whole

FormName: TypeAlias = Literal["classes", "binary", "labels", "numbers", "own"]
FORMS: dict[FormName, str] = {
    "classes": "one of several classes",
    "binary": "yes or no",
    "labels": "any number of labels",
    "numbers": "numbers",
    "own": "whatever your own loss takes",
}
"""In words."""


@dataclass(frozen=True)
class Form:
    """What a model answers with, and how many classes, labels or numbers there are.

    `classes`: scores of all classes, in the last dimension. `binary` and `labels`: one number per target, above 0 for
    yes. `numbers`: as the targets. `own`: the network's output as it is.
    """

    name: FormName
    count: int

    @property
    def two(self) -> bool:
        """Whether there are two classes, of which class 1 is the one that is looked for."""
        return self.name == "binary" or (self.name == "classes" and self.count == 2)


class Metric(ABC):
    """A figure to judge a model by. A frozen dataclass."""

    forms: ClassVar[tuple[FormName, ...]] = tuple(FORMS)
    """The answers that it can judge."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in records; two metrics of a task have different names."""

    @property
    @abstractmethod
    def higher_is_better(self) -> bool: ...

    @property
    def share(self) -> bool:
        """Whether it lies between 0 and 1, and is written in percent."""
        return False

    @abstractmethod
    def tally(self, form: Form, /) -> Tally:
        """Begin to gather answers of this form and their targets."""

    def check(self, form: Form, /) -> None:
        """Refuse answers that it cannot judge."""
        if form.name not in self.forms:
            able = " or ".join(FORMS[name] for name in self.forms if name != "own")
            fit = ", ".join(name for name, one in METRICS.items() if form.name in one.forms)
            raise BadInput(
                f"the metric {self.name} judges {able}, but this loss learns {FORMS[form.name]}: "
                f"{fit or 'your own function'} would fit"
            )


@dataclass(frozen=True)
class Accuracy(Metric):
    """The share of right answers: of classes, of every place or pixel, or of every yes and no."""

    name: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    share: ClassVar[bool] = True
    forms: ClassVar[tuple[FormName, ...]] = ("classes", "binary", "labels")

    def tally(self, form: Form, /) -> Tally:
        return Mean(right_classes if form.name == "classes" else right_signs)


def right_classes(answer: torch.Tensor, target: torch.Tensor) -> tuple[int, int]:
    return int((answer.argmax(-1) == target).sum()), int((target != PADDING).sum())


def right_signs(answer: torch.Tensor, target: torch.Tensor) -> tuple[int, int]:
    return int(((answer > 0) == (target == 1))[target != PADDING].sum()), int((target != PADDING).sum())


@dataclass(frozen=True)
class WordAccuracy(Metric):
    """Accuracy where the next word is a real one: targets among `without` do not count (Reddi et al. 2021).

    Numbers below 0 count from the last class on. In a vocabulary of this package unknown is the third last class, and
    the end of a sentence the last one.
    """

    without: tuple[int, ...] = (-3, -1)
    name: ClassVar[str] = "word_accuracy"
    higher_is_better: ClassVar[bool] = True
    share: ClassVar[bool] = True
    forms: ClassVar[tuple[FormName, ...]] = ("classes",)

    def check(self, form: Form, /) -> None:
        Metric.check(self, form)
        for number in self.without:
            if not -form.count <= number < form.count:
                raise BadInput(f"the metric {self.name} leaves out class {number}, but there are {form.count} classes")

    def tally(self, form: Form, /) -> Tally:
        left_out = torch.tensor([PADDING, *(number % form.count for number in self.without)])

        def right(answer: torch.Tensor, target: torch.Tensor) -> tuple[int, int]:
            counted = ~torch.isin(target, left_out.to(target.device))
            return int((answer.argmax(-1) == target)[counted].sum()), int(counted.sum())

        return Mean(right)


@dataclass(frozen=True)
class TopK(Metric):
    """How often the right class is among the `k` that the model gives the highest scores."""

    k: int = 5
    higher_is_better: ClassVar[bool] = True
    share: ClassVar[bool] = True
    forms: ClassVar[tuple[FormName, ...]] = ("classes",)

    def __post_init__(self) -> None:
        within("k", self.k, least=1)

    @property
    def name(self) -> str:
        return f"top{self.k}"

    def check(self, form: Form, /) -> None:
        Metric.check(self, form)
        if form.count < self.k:
            raise BadInput(f"the metric {self.name} needs at least {self.k} classes, and there are {form.count}")

    def tally(self, form: Form, /) -> Tally:
        return Measured(measured.top(form.count, self.k), measured.class_scores)


Average = Literal["macro", "micro", "weighted"]


@dataclass(frozen=True)
class F1(Metric):
    """F1, the harmonic mean of precision and recall; with two classes that of class 1, otherwise their `average`."""

    average: Average = "macro"
    name: ClassVar[str] = "f1"
    higher_is_better: ClassVar[bool] = True
    share: ClassVar[bool] = True
    forms: ClassVar[tuple[FormName, ...]] = ("classes", "binary", "labels")

    def tally(self, form: Form, /) -> Tally:
        if form.two:
            return Measured(measured.f1("binary", 2, "none"), measured.signs(form.name))
        return Measured(measured.f1(form.name, form.count, self.average), measured.chosen(form.name))


@dataclass(frozen=True)
class Auroc(Metric):
    """The area under the ROC curve; with two classes that of class 1, otherwise the mean over classes (one against all
    others) or labels. Those of which the examples have none, or nothing else, do not count."""

    name: ClassVar[str] = "auroc"
    higher_is_better: ClassVar[bool] = True
    share: ClassVar[bool] = True
    forms: ClassVar[tuple[FormName, ...]] = ("classes", "binary", "labels")

    def tally(self, form: Form, /) -> Tally:
        return Whole(measured.ranked(form.name, form.two, measured.auroc, other=True), measured.chances(form.name))


@dataclass(frozen=True)
class AveragePrecision(Metric):
    """The area under the precision-recall curve, step by step; with two classes that of class 1, otherwise the mean
    over classes or labels. Those of which the examples have none do not count."""

    name: ClassVar[str] = "average_precision"
    higher_is_better: ClassVar[bool] = True
    share: ClassVar[bool] = True
    forms: ClassVar[tuple[FormName, ...]] = ("classes", "binary", "labels")

    def tally(self, form: Form, /) -> Tally:
        found = measured.ranked(form.name, form.two, measured.average_precision, other=False)
        return Whole(found, measured.chances(form.name))


@dataclass(frozen=True)
class Iou(Metric):
    """Intersection over union (Jaccard), counted over all pixels: the mean over classes, or that of yes."""

    name: ClassVar[str] = "iou"
    higher_is_better: ClassVar[bool] = True
    share: ClassVar[bool] = True
    forms: ClassVar[tuple[FormName, ...]] = ("classes", "binary", "labels")

    def tally(self, form: Form, /) -> Tally:
        return Measured(measured.jaccard(form.name, form.count), measured.chosen(form.name))


@dataclass(frozen=True)
class Dice(Metric):
    """Twice the intersection over the sum of sizes, counted over all pixels: the mean over classes, or that of yes."""

    name: ClassVar[str] = "dice"
    higher_is_better: ClassVar[bool] = True
    share: ClassVar[bool] = True
    forms: ClassVar[tuple[FormName, ...]] = ("classes", "binary", "labels")

    def tally(self, form: Form, /) -> Tally:
        return Measured(measured.f1(form.name, form.count, "macro"), measured.chosen(form.name))


@dataclass(frozen=True)
class Mae(Metric):
    """The mean absolute error."""

    name: ClassVar[str] = "mae"
    higher_is_better: ClassVar[bool] = False
    forms: ClassVar[tuple[FormName, ...]] = ("numbers",)

    def tally(self, form: Form, /) -> Tally:
        return Measured(measured.mean_absolute_error(), measured.columns)


@dataclass(frozen=True)
class Rmse(Metric):
    """The root of the mean squared error; of several numbers the mean of their roots."""

    name: ClassVar[str] = "rmse"
    higher_is_better: ClassVar[bool] = False
    forms: ClassVar[tuple[FormName, ...]] = ("numbers",)

    def tally(self, form: Form, /) -> Tally:
        return Measured(measured.root_mean_squared_error(form.count), measured.columns)


@dataclass(frozen=True)
class R2(Metric):
    """The share of the variance that is explained (R²); of several numbers the mean."""

    name: ClassVar[str] = "r2"
    higher_is_better: ClassVar[bool] = True
    forms: ClassVar[tuple[FormName, ...]] = ("numbers",)

    def tally(self, form: Form, /) -> Tally:
        return Measured(measured.r2(), measured.columns, least=2)


@dataclass(frozen=True)
class Perplexity(Metric):
    """The exponential of the mean cross-entropy: among how many tokens the model still wavers."""

    name: ClassVar[str] = "perplexity"
    higher_is_better: ClassVar[bool] = False
    forms: ClassVar[tuple[FormName, ...]] = ("classes",)

    def tally(self, form: Form, /) -> Tally:
        return Measured(measured.perplexity(), measured.sequence)


@dataclass(frozen=True)
class OwnMetric(Metric):
    """Your own function of all answers and targets at once: `OwnMetric(c_index, higher_is_better=True)`.

    It gets what the network answers as `Form` says, and returns a number. Its name is that of the function, unless you
    give another.
    """

    function: Callable[[Any, torch.Tensor], Any]
    name: str = ""
    higher_is_better: bool = True
    share: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise BadInput(f"OwnMetric takes a function of outputs and targets, not {self.function!r}")
        if not self.name:
            object.__setattr__(self, "name", getattr(self.function, "__name__", type(self.function).__name__))
        if self.name == "loss":
            raise BadInput('a metric cannot be called "loss", which is the name of the loss itself')

    def tally(self, form: Form, /) -> Tally:
        return Whole(self._judge)

    def _judge(self, answer: Any, target: torch.Tensor) -> float:
        try:
            return float(self.function(answer, target))
        except Exception as error:
            raise BadInput(f"the metric {self.name} could not judge {len(target)} examples: {error}") from error


METRICS: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
    "word_accuracy": WordAccuracy,
    "top5": TopK,
    "f1": F1,
    "auroc": Auroc,
    "average_precision": AveragePrecision,
    "mae": Mae,
    "rmse": Rmse,
    "r2": R2,
    "iou": Iou,
    "dice": Dice,
    "perplexity": Perplexity,
}


def metric_of(value: object) -> Metric:
    """A metric, its name, or a function of outputs and targets."""
    if isinstance(value, Metric):
        return value
    if isinstance(value, str):
        if value not in METRICS:
            raise BadInput(f"there is no metric {value!r}; there is: {', '.join(METRICS)}")
        return METRICS[value]()
    if callable(value) and not isinstance(value, type):
        return OwnMetric(cast(Any, value))
    raise BadInput(f"expected a metric, its name or a function, not {value!r}; {', '.join(METRICS)} are names")
