"""Models of linear layers only: they take inputs of any shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedrelay.models.network import Network, features, linear_head, whole_numbers


@dataclass(frozen=True)
class Mlp:
    """Linear layers with ReLU between; 784-50-10 is the MNIST network of (Clustered sampling 2021, Sec. 6)."""

    hidden: tuple[int, ...] = (50,)
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", whole_numbers(self.hidden, "hidden", "mlp"))

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        width = features(shape, "mlp")
        layers: list[nn.Module] = [nn.Flatten()]
        for units in self.hidden:
            layers += [nn.Linear(width, units), nn.ReLU(inplace=True)]
            width = units
        return Network(nn.Sequential(*layers), linear_head(width, classes, "mlp"))


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression: one linear layer."""

    loss: ClassVar[str] = "cross_entropy"

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        return Network(nn.Flatten(), linear_head(features(shape, "logistic"), classes, "logistic"))
