"""What a loss is, and what losses have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch

from fedrelay.data.examples import TARGETS, Target
from fedrelay.errors import BadInput, within
from fedrelay.tasks.metrics import Form, FormName, Metric
from fedrelay.tasks.tallies import PADDING, Mean, Tally

FORM_OF: dict[Target, FormName] = {
    "classes": "classes",
    "tokens": "classes",
    "mask": "classes",
    "labels": "labels",
    "numbers": "numbers",
    "several": "own",
}


class Loss(ABC):
    """What training makes small, and what the result is judged by. A frozen dataclass."""

    metrics: ClassVar[tuple[Metric, ...]] = ()
    """The figures besides the loss itself, unless a task names others; the first one is the headline."""
    targets: ClassVar[tuple[Target, ...]] = tuple(TARGETS)
    """The kinds of target that it learns."""

    @abstractmethod
    def __call__(self, output: torch.Tensor, target: torch.Tensor, /) -> torch.Tensor:
        """The mean over a batch, ready for `backward`."""

    @abstractmethod
    def total(self, output: torch.Tensor, target: torch.Tensor, /) -> float:
        """The sum over the examples (or positions) that count."""

    @abstractmethod
    def count(self, target: torch.Tensor, /) -> float:
        """What the sum is divided by: how many examples (or positions) count, or their weights together."""

    def tally(self) -> Tally:
        """Begin to gather outputs and targets, for the mean over a whole set."""
        return Mean(lambda output, target: (self.total(output, target), self.count(target)))

    def judged_by(self, target: Target, /) -> tuple[Metric, ...]:
        """The metrics for this kind of target, unless a task names others."""
        return self.metrics

    def form(self, target: Target, classes: int, /) -> Form:
        """What a network answers with that is trained by it."""
        return Form(FORM_OF[target], classes)

    def answer(self, output: Any, target: torch.Tensor, /) -> Any:
        """What the output says, in that form: what metrics judge."""
        return output

    def outputs(self, target: Target, classes: int, /) -> int:
        """How many outputs a network needs."""
        return classes

    def check(self, target: Target, classes: int, /) -> None:
        """Refuse settings that do not fit targets of this kind, which is one of `targets`."""

    def check_output(self, output: Any, target: torch.Tensor, classes: int, /) -> None:
        """Refuse a network's output that it cannot judge."""


# --- what they have in common


def aligned(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The output in the shape of the targets: (n, 1) for n numbers would make a square of differences."""
    if output.ndim == target.ndim + 1:
        place = 1 if target.ndim == 3 else -1  # of pictures the channel, which comes first
        return output.squeeze(place)
    return output


def check_tensor(output: Any) -> None:
    if not isinstance(output, torch.Tensor):
        found = f"a {type(output).__name__}"
        if isinstance(output, dict):
            found += f" with {', '.join(map(repr, output))}"
        raise BadInput(
            f"the network returns {found}, but this loss takes one tensor: return the one that counts, or give a loss "
            "of your own that takes them all"
        )


def check_aligned(output: Any, target: torch.Tensor) -> None:
    check_tensor(output)
    if aligned(output, target).shape != target.shape:
        raise BadInput(
            f"the network returns {tuple(output.shape)} for targets of shape {tuple(target.shape)}: "
            "it must return one number for every target"
        )


def check_enough(found: int, classes: int) -> None:
    if found < classes:
        raise BadInput(
            f"the network has {found} outputs, but there are {classes} classes: give its last layer {classes} outputs, "
            f"or say classes = {found} of the data if that is how many there are"
        )


def check_weights(weights: tuple[float, ...]) -> None:
    for weight in weights:
        within("every weight", weight, least=0)
    if weights and not sum(weights):
        raise BadInput(f"some weight must be above 0, not {weights}")


def check_number(weights: tuple[float, ...], count: int, key: str, what: str) -> None:
    if weights and len(weights) != count:
        raise BadInput(f"{key} must have one number for each of the {count} {what}, not {len(weights)}")


def as_tensor(weights: tuple[float, ...], like: torch.Tensor) -> torch.Tensor | None:
    return torch.tensor(weights, dtype=like.dtype, device=like.device) if weights else None


def weight_of(target: torch.Tensor, weights: tuple[float, ...]) -> float:
    """How many targets count, or what they weigh together."""
    there = target[target != PADDING]
    # In main memory: not every device has float64.
    return float(torch.tensor(weights, dtype=torch.float64)[there.cpu()].sum()) if weights else int(there.numel())
