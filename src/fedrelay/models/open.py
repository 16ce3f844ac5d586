"""A network that may answer with none of the classes (FedOV: Diao et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedrelay.models.network import Model


@dataclass(frozen=True)
class Open:
    """Another model with one output more, the last one: unknown."""

    model: Model
    loss: ClassVar[str] = "cross_entropy"

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> nn.Module:
        return self.model(shape, classes + 1)
