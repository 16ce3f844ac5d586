"""How a figure is gathered batch by batch, so that it is one of the whole set."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from fedrelay.data.nests import joined, mapped

PADDING = -100
"""A target that does not count."""

Prepare: TypeAlias = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Makes of answers and targets what is gathered."""


class Tally(ABC):
    """Gathers batches of answers and targets; then it has the figure of all of them."""

    @abstractmethod
    def add(self, answer: Any, target: torch.Tensor, /) -> None: ...

    @abstractmethod
    def value(self) -> float:
        """The figure; NaN where these examples have none."""


class Mean(Tally):
    """Sums and what they are divided by."""

    def __init__(self, part: Callable[[Any, torch.Tensor], tuple[float, float]]) -> None:
        self._part, self.total, self.count = part, 0.0, 0.0

    def add(self, answer: Any, target: torch.Tensor, /) -> None:
        total, count = self._part(answer, target)
        self.total += total
        self.count += count

    def value(self) -> float:
        return self.total / self.count if self.count else math.nan


class Measured(Tally):
    """A metric of torchmetrics, which keeps sums and no examples: in main memory, which has float64."""

    def __init__(self, metric: Any, prepare: Prepare, *, least: int = 1) -> None:
        self._metric, self._prepare, self._least, self._seen = metric, prepare, least, 0

    def add(self, answer: Any, target: torch.Tensor, /) -> None:
        self._metric.update(*self._prepare(answer.cpu(), target.cpu()))
        self._seen += len(target)

    def value(self) -> float:
        if self._seen < self._least:
            return math.nan
        with warnings.catch_warnings():  # it warns of classes that do not occur, which is no news here
            warnings.simplefilter("ignore")
            return float(self._metric.compute().double().mean())


class Whole(Tally):
    """Keeps all answers and targets in main memory, and looks at them together."""

    def __init__(self, figure: Callable[[Any, torch.Tensor], float], prepare: Prepare | None = None) -> None:
        self._figure, self._prepare = figure, prepare
        self._answers: list[Any] = []
        self._targets: list[Any] = []

    def add(self, answer: Any, target: torch.Tensor, /) -> None:
        answer, target = (mapped(part, torch.Tensor.cpu) for part in (answer, target))
        if self._prepare is not None:
            answer, target = self._prepare(answer, target)
        self._answers.append(answer)
        self._targets.append(target)

    def value(self) -> float:
        return self._figure(joined(self._answers), joined(self._targets)) if self._targets else math.nan
