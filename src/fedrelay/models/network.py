"""What models have in common: a body that makes features, a head that makes logits, and how bad input is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol

import torch
from torch import nn

from fedrelay.errors import BadInput


class Model(Protocol):
    """Builds a network. A frozen, picklable dataclass: its fields are its configuration."""

    loss: ClassVar[str]
    """`cross_entropy`: the network returns logits. `output`: it returns the loss of every example itself."""

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> nn.Module:
        """A network for inputs of `shape`: (channels, height, width), (features,) or (length,) of tokens."""
        ...


class Network(nn.Module):
    """A body (inputs to features) and a head (features to logits: the last linear layer)."""

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.body(x))
        return logits


def linear_head(width: int, classes: int, model: str) -> nn.Linear:
    """The last layer, from `width` features to logits."""
    if classes < 1:
        raise BadInput(f"{model} needs at least 1 class, found {classes}")
    return nn.Linear(width, classes)


def features(shape: tuple[int, ...], model: str) -> int:
    """How many numbers one input has; any shape will do as long as it is not empty."""
    if not shape or min(shape) < 1:
        raise BadInput(f"{model} takes inputs of at least one number, found inputs of shape {shape}")
    return math.prod(shape)


def tokens(shape: tuple[int, ...], model: str) -> int:
    """The length of a token sequence."""
    if len(shape) != 1 or shape[0] < 1:
        raise BadInput(f"{model} takes sequences of tokens, of shape (length,), found inputs of shape {shape}")
    return shape[0]


def image(shape: tuple[int, ...], model: str, smallest: int) -> tuple[int, int, int]:
    """Channels, height and width of an image of at least `smallest` x `smallest` pixels."""
    if len(shape) != 3 or min(shape) < 1:
        raise BadInput(
            f"{model} takes images (channels, height, width), found inputs of shape {shape}: "
            "mlp and logistic take inputs of any shape"
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        instead = "fewer channels" if model == "small_cnn" else "small_cnn"
        raise BadInput(
            f"{model} takes images of at least {smallest}x{smallest} pixels, found {height}x{width}: "
            f"enlarge the images, or take {instead}"
        )
    return channels, height, width


def whole_numbers(values: Sequence[int], field: str, model: str) -> tuple[int, ...]:
    """Layer widths: a list of whole numbers from 1."""
    if not isinstance(values, list | tuple):
        raise BadInput(f"{model}: {field} must be a list of whole numbers from 1, found {values!r}; [50] works")
    for value in values:
        whole_number(value, field, model)
    return tuple(values)


def whole_number(value: int, field: str, model: str) -> None:
    """One width: a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(f"{model}: {field} must be a whole number from 1, found {value!r}")


def share(value: float, field: str, model: str) -> None:
    """A share of units to drop: at least 0 and below 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise BadInput(f"{model}: {field} must be at least 0 and below 1, found {value!r}")


def one_of(value: str, choices: Sequence[str], field: str, model: str) -> None:
    """A choice by name."""
    if value not in choices:
        raise BadInput(f"{model}: {field} must be one of {', '.join(choices)}, found {value!r}")
