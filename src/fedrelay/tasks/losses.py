"""Losses: functions of a network's output and the targets, which training makes small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch.nn import functional

from fedrelay.data.examples import TARGETS, Target
from fedrelay.data.nests import Nest, rows_in
from fedrelay.errors import BadInput, within
from fedrelay.tasks.loss import (
    Loss,
    aligned,
    as_tensor,
    check_aligned,
    check_enough,
    check_number,
    check_tensor,
    check_weights,
    weight_of,
)
from fedrelay.tasks.metrics import F1, R2, Accuracy, Auroc, Form, Iou, Mae, Metric, Rmse
from fedrelay.tasks.tallies import PADDING, Tally, Whole

# --- classes


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Over classes, or over every position of a sequence; targets of -100 (padding) do not count.

    `weights`: how much an example of each class counts, one number per class (none: all alike).
    """

    weights: tuple[float, ...] = ()
    metrics: ClassVar[tuple[Metric, ...]] = (Accuracy(),)
    targets: ClassVar[tuple[Target, ...]] = ("classes", "tokens")

    def __post_init__(self) -> None:
        check_weights(self.weights)

    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        flat = output.reshape(-1, output.shape[-1])
        return functional.cross_entropy(flat, target.reshape(-1), as_tensor(self.weights, output))

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        flat, weights = output.reshape(-1, output.shape[-1]), as_tensor(self.weights, output)
        return float(functional.cross_entropy(flat, target.reshape(-1), weights, reduction="sum"))

    def count(self, target: torch.Tensor, /) -> float:
        return weight_of(target, self.weights)

    def check(self, target: Target, classes: int, /) -> None:
        check_number(self.weights, classes, "weights", "classes")

    def check_output(self, output: Any, target: torch.Tensor, classes: int, /) -> None:
        check_tensor(output)
        if tuple(output.shape[:-1]) != tuple(target.shape):
            raise BadInput(
                f"the network returns {tuple(output.shape)} for {len(target)} examples with targets of shape "
                f"{tuple(target.shape)}: it must return {(*target.shape, classes)}, a score for every class"
            )
        check_enough(output.shape[-1], classes)


@dataclass(frozen=True)
class PixelCrossEntropy(Loss):
    """Over the classes of every pixel: the network returns (n, classes, height, width). Pixels of -100 do not count.

    `weights`: how much a pixel of each class counts, one number per class (none: all alike).
    """

    weights: tuple[float, ...] = ()
    metrics: ClassVar[tuple[Metric, ...]] = (Iou(), Accuracy())
    targets: ClassVar[tuple[Target, ...]] = ("mask",)

    def __post_init__(self) -> None:
        check_weights(self.weights)

    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        return functional.cross_entropy(output, target, as_tensor(self.weights, output))

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        return float(functional.cross_entropy(output, target, as_tensor(self.weights, output), reduction="sum"))

    def count(self, target: torch.Tensor, /) -> float:
        return weight_of(target, self.weights)

    def answer(self, output: Any, target: torch.Tensor, /) -> Any:
        return output.movedim(1, -1)

    def check(self, target: Target, classes: int, /) -> None:
        check_number(self.weights, classes, "weights", "classes")

    def check_output(self, output: Any, target: torch.Tensor, classes: int, /) -> None:
        check_tensor(output)
        if output.ndim != target.ndim + 1 or output.shape[2:] != target.shape[1:]:
            wanted = (len(target), classes, *target.shape[1:])
            raise BadInput(
                f"the network returns {tuple(output.shape)} for masks of shape {tuple(target.shape)}: "
                f"it must return {wanted}, a score of every class for every pixel"
            )
        check_enough(output.shape[1], classes)


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Yes or no: for two classes (of examples or pixels) one output, for labels (or numbers from 0 to 1) one each.

    `positive`: how many times more a yes counts than a no: one number, or one for every label (none: once).
    """

    positive: tuple[float, ...] = ()
    targets: ClassVar[tuple[Target, ...]] = ("classes", "mask", "labels", "numbers")

    def __post_init__(self) -> None:
        check_weights(self.positive)

    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        return self._each(output, target, "mean")

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        return float(self._each(output, target, "sum"))

    def _each(self, output: torch.Tensor, target: torch.Tensor, reduction: str) -> torch.Tensor:
        logits, more = aligned(output, target), as_tensor(self.positive, output)
        if target.dtype == torch.int64:
            there = target != PADDING
            logits, target = logits[there], target[there]
        wanted = target.to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits, wanted, pos_weight=more, reduction=reduction)

    def count(self, target: torch.Tensor, /) -> float:
        return int((target != PADDING).sum())

    def judged_by(self, target: Target, /) -> tuple[Metric, ...]:
        if target in ("labels", "numbers"):
            return (Auroc(), F1())  # most labels are absent, so a share of right ones would flatter
        return (Iou(), Accuracy()) if target == "mask" else (Accuracy(), Auroc())

    def form(self, target: Target, classes: int, /) -> Form:
        several = target == "labels" or (target == "numbers" and classes > 1)
        return Form("labels", classes) if several else Form("binary", 1)

    def answer(self, output: Any, target: torch.Tensor, /) -> Any:
        return aligned(output, target)

    def outputs(self, target: Target, classes: int, /) -> int:
        return classes if target in ("labels", "numbers") else 1

    def check(self, target: Target, classes: int, /) -> None:
        if target in ("classes", "mask") and classes != 2:
            raise BadInput(f"the loss binary_cross_entropy tells 2 classes apart, and there are {classes}")
        if len(self.positive) > 1:
            check_number(self.positive, self.outputs(target, classes), "positive", "labels")

    def check_output(self, output: Any, target: torch.Tensor, classes: int, /) -> None:
        check_aligned(output, target)


# --- numbers


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """The mean squared difference: the model learns means."""

    metrics: ClassVar[tuple[Metric, ...]] = (Rmse(), Mae(), R2())
    targets: ClassVar[tuple[Target, ...]] = ("numbers",)

    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        return functional.mse_loss(aligned(output, target), target)

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        return float(functional.mse_loss(aligned(output, target), target, reduction="sum"))

    def count(self, target: torch.Tensor, /) -> float:
        return target.numel()

    def answer(self, output: Any, target: torch.Tensor, /) -> Any:
        return aligned(output, target)

    def check_output(self, output: Any, target: torch.Tensor, classes: int, /) -> None:
        check_aligned(output, target)


@dataclass(frozen=True)
class Huber(Loss):
    """Squared differences up to `delta`, absolute ones beyond it: outliers count less."""

    delta: float = 1.0
    metrics: ClassVar[tuple[Metric, ...]] = (Mae(), Rmse(), R2())
    targets: ClassVar[tuple[Target, ...]] = ("numbers",)

    def __post_init__(self) -> None:
        within("delta", self.delta, above=0)

    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        return functional.huber_loss(aligned(output, target), target, delta=self.delta)

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        return float(functional.huber_loss(aligned(output, target), target, delta=self.delta, reduction="sum"))

    def count(self, target: torch.Tensor, /) -> float:
        return target.numel()

    def answer(self, output: Any, target: torch.Tensor, /) -> Any:
        return aligned(output, target)

    def check_output(self, output: Any, target: torch.Tensor, classes: int, /) -> None:
        check_aligned(output, target)


@dataclass(frozen=True)
class Quantile(Loss):
    """The pinball loss: the model learns these `quantiles`, one output for each (of every number).

    Metrics judge the one nearest to the median.
    """

    quantiles: tuple[float, ...] = (0.5,)
    targets: ClassVar[tuple[Target, ...]] = ("numbers",)

    def __post_init__(self) -> None:
        if not self.quantiles:
            raise BadInput("quantiles must have at least one of them; [0.5] is the median")
        for quantile in self.quantiles:
            within("every one of quantiles", quantile, above=0)
            within("1 - every one of quantiles", 1 - quantile, above=0)

    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        return self._each(output, target).mean()

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        return float(self._each(output, target).sum())

    def _each(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        short = target.unsqueeze(-1) - self._split(output, target)
        level = torch.tensor(self.quantiles, dtype=short.dtype, device=short.device)
        return torch.maximum(level * short, (level - 1) * short)

    def _split(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The quantiles in a dimension of their own, the last one."""
        return output.reshape(*target.shape, len(self.quantiles))

    def count(self, target: torch.Tensor, /) -> float:
        return target.numel() * len(self.quantiles)

    def answer(self, output: Any, target: torch.Tensor, /) -> Any:
        middle = min(range(len(self.quantiles)), key=lambda place: abs(self.quantiles[place] - 0.5))
        return self._split(output, target)[..., middle]

    def outputs(self, target: Target, classes: int, /) -> int:
        return classes * len(self.quantiles)

    def check_output(self, output: Any, target: torch.Tensor, classes: int, /) -> None:
        check_tensor(output)
        if output.numel() != target.numel() * len(self.quantiles) or len(output) != len(target):
            raise BadInput(
                f"the network returns {tuple(output.shape)} for targets of shape {tuple(target.shape)}: it must return "
                f"{len(self.quantiles)} quantiles for every number"
            )


# --- anything else


@dataclass(frozen=True)
class OwnLoss(Loss):
    """Your own function of a network's output and the targets: survival, ranking, whatever torch can differentiate.

    It returns a number for the batch, or one for every example, of which the mean is taken. `outputs_needed` is
    how many outputs a network is to have (0: as many as there are classes or numbers). What a test finds is the
    function of the whole test set at once, since such a loss need not be a sum over examples; `whole=False` takes the
    mean over batches, where the outputs of all examples are too large to keep.
    """

    function: Callable[[Any, torch.Tensor], torch.Tensor]
    outputs_needed: int = 0
    whole: bool = True

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise BadInput(f"OwnLoss takes a function of outputs and targets, not {self.function!r}")
        within("outputs_needed", self.outputs_needed, least=0)

    def __call__(self, output: Any, target: torch.Tensor, /) -> torch.Tensor:
        return self.function(output, target).mean()

    def total(self, output: Any, target: Nest, /) -> float:
        return float(self(output, target)) * rows_in(target)

    def count(self, target: Nest, /) -> float:
        return rows_in(target)

    def tally(self) -> Tally:
        return Whole(lambda output, target: float(self(output, target))) if self.whole else Loss.tally(self)

    def form(self, target: Target, classes: int, /) -> Form:
        return Form("own", classes)

    def outputs(self, target: Target, classes: int, /) -> int:
        return self.outputs_needed or classes

    def check_output(self, output: Any, target: torch.Tensor, classes: int, /) -> None:
        found = self.function(output, target)
        if not isinstance(found, torch.Tensor) or not found.is_floating_point():
            raise BadInput(f"your own loss must return a tensor of numbers that torch can differentiate, not {found!r}")


@dataclass(frozen=True)
class OutputLoss(Loss):
    """The network returns the loss of every example itself."""

    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        return output.mean()

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        return float(output.sum())

    def count(self, target: Nest, /) -> float:
        return rows_in(target)

    def form(self, target: Target, classes: int, /) -> Form:
        return Form("own", classes)


LOSSES: dict[str, type[Loss]] = {
    "cross_entropy": CrossEntropy,
    "pixel_cross_entropy": PixelCrossEntropy,
    "binary_cross_entropy": BinaryCrossEntropy,
    "mse": MeanSquaredError,
    "huber": Huber,
    "quantile": Quantile,
    "output": OutputLoss,
}
"""By the name that a model or a configuration calls its loss by."""

USUAL: dict[Target, Loss] = {
    "mask": PixelCrossEntropy(),
    "labels": BinaryCrossEntropy(),
    "numbers": MeanSquaredError(),
}
"""The loss of a model that returns scores, where targets are not classes and no loss is said."""


def name_of(loss: Loss) -> str:
    """What a configuration calls it."""
    return next((name for name, one in LOSSES.items() if type(loss) is one), type(loss).__name__)


def check_target(loss: Loss, target: Target) -> None:
    """Refuse a kind of target that the loss cannot learn."""
    if target not in loss.targets:
        learned = " or ".join(TARGETS[kind] for kind in loss.targets)
        fit = ", ".join(name for name, one in LOSSES.items() if target in one.targets and one is not OutputLoss)
        raise BadInput(
            f"the loss {name_of(loss)} learns {learned}, but the examples have {TARGETS[target]}: {fit} would fit"
        )


def loss_of(value: object) -> Loss:
    """A loss, its name, or a function of outputs and targets."""
    if isinstance(value, Loss):
        return value
    if isinstance(value, str):
        if value not in LOSSES:
            raise BadInput(f"there is no loss {value!r}; there is: {', '.join(LOSSES)}")
        return LOSSES[value]()
    if callable(value) and not isinstance(value, type):
        return OwnLoss(cast(Any, value))
    raise BadInput(f"expected a loss, its name or a function, not {value!r}; {', '.join(LOSSES)} are names")
