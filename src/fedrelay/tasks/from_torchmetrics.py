"""What is taken from torchmetrics, and what it is given. It is imported when the first figure of it is wanted: that
takes a second, which runs that only count right answers need not wait for."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from fedrelay.tasks.tallies import PADDING, Prepare

Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]

# --- what they are given


def flat(answer: torch.Tensor, target: torch.Tensor) -> Pair:
    """One row per answer, whatever the places or pixels."""
    return answer.reshape(-1, answer.shape[-1]), target.reshape(-1)


def counting(answer: torch.Tensor, target: torch.Tensor) -> Pair:
    """Without what does not count."""
    there = target != PADDING
    return answer[there], target[there]


def class_scores(answer: torch.Tensor, target: torch.Tensor) -> Pair:
    scores, wanted = counting(*flat(answer, target))
    return scores.softmax(-1), wanted


def sequence(answer: torch.Tensor, target: torch.Tensor) -> Pair:
    """All places as one long text."""
    scores, wanted = counting(*flat(answer, target))
    return scores.unsqueeze(0), wanted.unsqueeze(0)


def columns(answer: torch.Tensor, target: torch.Tensor) -> Pair:
    """Numbers, exact enough for differences of large sums; a table stays one, anything else is one column."""
    pair = answer.double(), target.double()
    return pair if target.ndim == 2 and target.shape[1] > 1 else (pair[0].reshape(-1), pair[1].reshape(-1))


def chosen(form: str) -> Prepare:
    """The class with the highest score, or yes and no."""

    def prepared(answer: torch.Tensor, target: torch.Tensor) -> Pair:
        if form == "classes":
            scores, wanted = counting(*flat(answer, target))
            return scores.argmax(-1), wanted
        if form == "binary":
            logits, wanted = counting(answer.reshape(-1), target.reshape(-1))
            return (logits > 0).long(), wanted.long()
        return (answer > 0).long(), target.long()

    return prepared


def signs(form: str) -> Prepare:
    """Whether it is class 1, of answers that are scores of two classes, or yes and no already."""
    return chosen("binary" if form == "binary" else "classes")


def chances(form: str) -> Prepare:
    """Probabilities of classes or of yes. They are made here: torchmetrics would guess from the values of a batch."""

    def prepared(answer: torch.Tensor, target: torch.Tensor) -> Pair:
        if form == "classes":
            scores, wanted = counting(*flat(answer, target))
            return scores.double().softmax(-1), wanted
        if form == "binary":
            logits, wanted = counting(answer.reshape(-1), target.reshape(-1))
            return logits.double().sigmoid(), wanted
        return answer.double().sigmoid(), target

    return prepared


# --- sums


def f1(form: str, count: int, average: str) -> Any:
    from torchmetrics.classification import BinaryF1Score, MulticlassF1Score, MultilabelF1Score

    if form == "binary":
        return BinaryF1Score()
    kind: Any = MulticlassF1Score if form == "classes" else MultilabelF1Score
    return kind(count, average=average)


def jaccard(form: str, count: int) -> Any:
    from torchmetrics.classification import BinaryJaccardIndex, MulticlassJaccardIndex, MultilabelJaccardIndex

    if form == "binary":
        return BinaryJaccardIndex()
    kind: Any = MulticlassJaccardIndex if form == "classes" else MultilabelJaccardIndex
    return kind(count, average="macro")


def top(count: int, k: int) -> Any:
    from torchmetrics.classification import MulticlassAccuracy

    return MulticlassAccuracy(count, top_k=k, average="micro")


def mean_absolute_error() -> Any:
    from torchmetrics.regression import MeanAbsoluteError

    return MeanAbsoluteError().set_dtype(torch.float64)


def root_mean_squared_error(count: int) -> Any:
    from torchmetrics.regression import MeanSquaredError

    return MeanSquaredError(squared=False, num_outputs=count).set_dtype(torch.float64)


def r2() -> Any:
    from torchmetrics.regression import R2Score

    return R2Score().set_dtype(torch.float64)


def perplexity() -> Any:
    from torchmetrics.text import Perplexity

    return Perplexity()


# --- ranks


Curve: TypeAlias = Callable[[torch.Tensor, torch.Tensor], float]
"""The figure of chances of yes, and of who is it (0 or 1)."""


def auroc(chances: torch.Tensor, wanted: torch.Tensor) -> float:
    from torchmetrics.functional.classification import binary_auroc

    return float(binary_auroc(chances, wanted))


def average_precision(chances: torch.Tensor, wanted: torch.Tensor) -> float:
    from torchmetrics.functional.classification import binary_average_precision

    return float(binary_average_precision(chances, wanted))


def ranked(form: str, two: bool, curve: Curve, *, other: bool) -> Callable[[torch.Tensor, torch.Tensor], float]:
    """The mean of a figure over the classes or labels for which it exists: some example must have it and, with
    `other`, some must not. NaN if it exists for none; torchmetrics would count such a class as 0."""

    def figure(chances: torch.Tensor, target: torch.Tensor) -> float:
        if two:
            chances, target = (chances[:, 1] if form == "classes" else chances)[:, None], (target == 1)[:, None]
        elif form == "classes":
            target = torch.nn.functional.one_hot(target, chances.shape[-1])
        wanted, count = target.long(), len(target)
        there = [k for k in range(wanted.shape[1]) if 0 < int(wanted[:, k].sum()) < count + (not other)]
        if not there:
            return math.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sum(curve(chances[:, k], wanted[:, k]) for k in there) / len(there)

    return figure
