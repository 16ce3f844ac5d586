"""The figure that models are judged by: in reports, targets, tuning and the choice of an epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Headline:
    """Its name, whether higher is better, and whether it is a share from 0 to 1, which is written in percent."""

    name: str = "accuracy"
    higher_is_better: bool = True
    share: bool = True

    def merit(self, value: float) -> float:
        """The same figure so that higher is better; what is not a number is worst."""
        return -math.inf if math.isnan(value) else value if self.higher_is_better else -value

    def best(self, values: Iterable[float]) -> float | None:
        return max(values, key=self.merit, default=None)

    def goal(self, target: float, share: float) -> float:
        """What a share of the target is: of 0.8 accuracy 90 % are 0.72, of an error of 9 they are an error of 10."""
        return target * share if self.higher_is_better else target / share

    def reaches(self, value: float, goal: float) -> bool:
        return value >= goal if self.higher_is_better else value <= goal

    def text(self, value: float) -> str:
        """For people."""
        return f"{value:.1%}" if self.share else f"{value:.4g}"


LOSS = Headline("loss", higher_is_better=False, share=False)
