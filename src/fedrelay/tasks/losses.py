"""Losses and metrics: functions of a network's output and the targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

PADDING = -100
"""A target that does not count."""


class Metric(ABC):
    """A figure to judge a model by. A frozen dataclass."""

    name: ClassVar[str]
    higher_is_better: ClassVar[bool]

    @abstractmethod
    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        """The sum over the examples (or positions) that count; divided by their number it is the figure."""


class Loss(ABC):
    """What training makes small, and what the result is judged by. A frozen dataclass."""

    metrics: ClassVar[tuple[Metric, ...]] = ()
    """The figures besides the loss itself; the first one is the headline."""

    @abstractmethod
    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        """The mean over a batch, ready for `backward`."""

    @abstractmethod
    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        """The sum over the examples (or positions) that count."""

    @abstractmethod
    def count(self, target: torch.Tensor, /) -> int:
        """How many examples (or positions) count."""


@dataclass(frozen=True)
class Accuracy(Metric):
    """The share of right answers: of classes, or of every position of a sequence."""

    name: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        return int((output.argmax(-1) == target).sum())


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Over classes, or over every position of a sequence; targets of -100 (padding) do not count."""

    metrics: ClassVar[tuple[Metric, ...]] = (Accuracy(),)

    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        return functional.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        flat = output.reshape(-1, output.shape[-1])
        return float(functional.cross_entropy(flat, target.reshape(-1), reduction="sum"))

    def count(self, target: torch.Tensor, /) -> int:
        return int((target != PADDING).sum())


@dataclass(frozen=True)
class OutputLoss(Loss):
    """The network returns the loss of every example itself."""

    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        return output.mean()

    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        return float(output.sum())

    def count(self, target: torch.Tensor, /) -> int:
        return len(target)


LOSSES: dict[str, Loss] = {"cross_entropy": CrossEntropy(), "output": OutputLoss()}
"""By the name that a model calls its loss by."""
