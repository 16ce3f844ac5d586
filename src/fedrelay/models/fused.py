"""A network with a fusion module: the features of two extractors become one (FedFusion: Yao et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from fedrelay.errors import BadInput
from fedrelay.models.network import Model, Network, one_of

Operator = Literal["conv", "multi", "single"]


class Fusion(nn.Module):
    """Own and received features to fused ones, channel by channel.

    conv: a 1x1 convolution of both, side by side; multi: a weight per channel between the two; single: one weight.
    A weight of 0, where it starts, takes the own features; 1 takes the received ones.
    """

    def __init__(self, operator: Operator, channels: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * channels, channels) if operator == "conv" else None
        if operator != "conv":
            self.share = nn.Parameter(torch.zeros(channels if operator == "multi" else 1))

    def forward(self, own: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
        if own.ndim == 4:  # images: channels come second; a 1x1 convolution is a linear layer on every pixel
            fused = self.channels_last(own.permute(0, 2, 3, 1), received.permute(0, 2, 3, 1))
            return fused.permute(0, 3, 1, 2)
        return self.channels_last(own, received)

    def channels_last(self, own: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
        if self.mix is None:
            return torch.lerp(own, received, self.share)
        mixed: torch.Tensor = self.mix(torch.cat((own, received), dim=-1))
        return mixed


class FusedBody(nn.Module):
    """A body cut in two around a fusion module. Alone, it fuses its own features with themselves."""

    def __init__(self, extractor: nn.Module, fusion: Fusion, rest: nn.Module) -> None:
        super().__init__()
        self.extractor, self.fusion, self.rest = extractor, fusion, rest

    def forward(self, x: torch.Tensor, received: torch.Tensor | None = None) -> torch.Tensor:
        own = self.extractor(x)
        features: torch.Tensor = self.rest(self.fusion(own, own if received is None else received))
        return features


@dataclass(frozen=True)
class Fused:
    """Another model with a fusion module after its convolutions; without any, after its body."""

    model: Model
    operator: Operator = "conv"
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        one_of(self.operator, ("conv", "multi", "single"), "operator", "fusion")

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        network = self.model(shape, classes)
        if not isinstance(network, Network):
            raise BadInput(
                f"fusion needs a model with features, and {type(network).__name__} has no body and head: "
                "mlp, lenet5 and the other networks here have, and so has your own fedrelay.models.Network(body, head)"
            )
        extractor, rest = cut(network.body)
        convolutions = [module for module in extractor.modules() if isinstance(module, nn.Conv2d)]
        channels = convolutions[-1].out_channels if convolutions else network.head.in_features
        return Network(FusedBody(extractor, Fusion(self.operator, channels), rest), network.head)


def cut(body: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The body up to where images become vectors, and what follows."""
    if isinstance(body, nn.Sequential):
        flat = [index for index, layer in enumerate(body) if isinstance(layer, nn.Flatten)]
        if flat and flat[-1] > 0:
            return body[: flat[-1]], body[flat[-1] :]
    return body, nn.Identity()
