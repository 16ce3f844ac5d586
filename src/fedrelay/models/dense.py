"""Models of linear layers only: they take inputs of any shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from fedrelay.models.network import Network, features, linear_head, one_of, whole_numbers


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
class MlpNorm:
    """As mlp, with a normalisation of every hidden layer before its ReLU: over the batch, or over the layer."""

    hidden: tuple[int, ...] = (50,)
    norm: Literal["batch", "layer"] = "batch"
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", whole_numbers(self.hidden, "hidden", "mlp_norm"))
        one_of(self.norm, ("batch", "layer"), "norm", "mlp_norm")

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        width = features(shape, "mlp_norm")
        layers: list[nn.Module] = [nn.Flatten()]
        for units in self.hidden:
            norm = nn.BatchNorm1d(units) if self.norm == "batch" else nn.LayerNorm(units)
            layers += [nn.Linear(width, units), norm, nn.ReLU(inplace=True)]
            width = units
        return Network(nn.Sequential(*layers), linear_head(width, classes, "mlp_norm"))


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression: one linear layer."""

    loss: ClassVar[str] = "cross_entropy"

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        return Network(nn.Flatten(), linear_head(features(shape, "logistic"), classes, "logistic"))
