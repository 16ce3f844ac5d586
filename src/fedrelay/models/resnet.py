"""ResNet-18 with the stem for small images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from fedrelay.errors import BadInput
from fedrelay.models.network import Network, image, linear_head, one_of, whole_number


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut (He et al. 2016, Fig. 2)."""

    def __init__(self, channels: int, filters: int, stride: int, resnet: ResNet18) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)
        self.norm1 = resnet.normalise(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.norm2 = resnet.normalise(filters)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and channels == filters
            else nn.Sequential(nn.Conv2d(channels, filters, 1, stride=stride, bias=False), resnet.normalise(filters))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        out: torch.Tensor = self.relu(y.add_(self.shortcut(x)))
        return out


@dataclass(frozen=True)
class ResNet18:
    """ResNet-18 for small images: 3x3 stem, no max-pool (FedELMY 2024, App. D). BatchNorm's running statistics are
    float buffers, so they travel with the baton; GroupNorm has none (2 groups: Reddi et al. 2021)."""

    norm: Literal["batch", "group"] = "batch"
    groups: int = 2
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        one_of(self.norm, ("batch", "group"), "norm", "resnet18")
        whole_number(self.groups, "groups", "resnet18")
        if 64 % self.groups:
            raise BadInput(f"resnet18: groups must divide the 64 channels of the stem, found {self.groups}; 2 works")

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        # From 9x9 pixels the last stage is 2x2, so that BatchNorm has a spread to measure even in a batch of one.
        channels, _, _ = image(shape, "resnet18", 9)
        layers: list[nn.Module] = [
            nn.Conv2d(channels, 64, 3, padding=1, bias=False),
            self.normalise(64),
            nn.ReLU(inplace=True),
        ]
        before = 64
        for filters, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [Block(before, filters, stride, self), Block(filters, filters, 1, self)]
            before = filters
        body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return Network(body, linear_head(512, classes, "resnet18"))

    def normalise(self, channels: int) -> nn.Module:
        """The chosen normalisation of this many channels."""
        if self.norm == "group":
            return nn.GroupNorm(self.groups, channels)
        norm = nn.BatchNorm2d(channels)
        # With a fixed momentum nothing depends on the count of batches, so it need not travel.
        norm.num_batches_tracked = None
        return norm
