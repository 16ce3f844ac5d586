"""Convolutional networks, those of the papers and a small one.

Max-pooling comes before ReLU: the two commute (values and gradients), and ReLU then touches a quarter of the numbers.
ReLU works in place, which autograd allows after convolutions, pooling and linear layers. Dropout comes after flattening
where it can: it draws its mask in the order of memory, so what it drops then does not depend on the memory layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from fedrelay.errors import BadInput
from fedrelay.models.network import Network, image, linear_head, one_of, share, whole_numbers


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def _halved(channels: int, filters: int, kernel: int, padding: int = 0) -> list[nn.Module]:
    """Convolution, max-pool 2, ReLU."""
    return [nn.Conv2d(channels, filters, kernel, padding=padding), nn.MaxPool2d(2), _relu()]


@dataclass(frozen=True)
class SmallCnn:
    """A 3x3 convolution (same size), max-pool 2 and ReLU per entry of `channels`, then the head: for 8x8 digits too."""

    channels: tuple[int, ...] = (16, 32)
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", whole_numbers(self.channels, "channels", "small_cnn"))
        if not self.channels:
            raise BadInput("small_cnn: channels must name at least one convolution, found none; [16, 32] works")

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        channels, height, width = image(shape, "small_cnn", 2 ** len(self.channels))
        layers: list[nn.Module] = []
        for filters in self.channels:
            layers += _halved(channels, filters, 3, padding=1)
            channels, height, width = filters, height // 2, width // 2
        body = nn.Sequential(*layers, nn.Flatten())
        return Network(body, linear_head(channels * height * width, classes, "small_cnn"))


@dataclass(frozen=True)
class LeNet5:
    """Two 5x5 convolutions of 64 filters, linear layers of 384 and 192: not the classic LeNet-5 (FedSeq 2022, App.)."""

    loss: ClassVar[str] = "cross_entropy"

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        channels, height, width = image(shape, "lenet5", 16)
        rows, columns = ((side - 4) // 2 - 4 for side in (height, width))
        body = nn.Sequential(
            *_halved(channels, 64, 5),
            *_halved(64, 64, 5),
            nn.Flatten(),
            nn.Linear(64 * (rows // 2) * (columns // 2), 384),
            _relu(),
            nn.Linear(384, 192),
            _relu(),
        )
        return Network(body, linear_head(192, classes, "lenet5"))


@dataclass(frozen=True)
class FemnistCnn:
    """Two 3x3 convolutions, max-pool, a linear layer of 128, dropout .25 and .5 (FedSeq journal 2024).

    The authors' code has ReLU only after the second convolution (`relu = "one"`); the network it comes from has it
    after every hidden layer (`relu = "all"`; Reddi et al. 2021, Adaptive federated optimization).
    """

    relu: Literal["one", "all"] = "one"
    dropout: tuple[float, float] = (0.25, 0.5)
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        one_of(self.relu, ("one", "all"), "relu", "femnist_cnn")
        if not isinstance(self.dropout, list | tuple) or len(self.dropout) != 2:
            raise BadInput(f"femnist_cnn: dropout must be two shares, found {self.dropout!r}; [0.25, 0.5] works")
        for value in self.dropout:
            share(value, "dropout", "femnist_cnn")
        object.__setattr__(self, "dropout", tuple(self.dropout))

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        return _two_convolutions(shape, classes, "femnist_cnn", relu=self.relu, dropout=self.dropout)


@dataclass(frozen=True)
class PflCnn:
    """The CIFAR-10 network of pfl-research's benchmarks: as `femnist_cnn` with every ReLU. Theirs starts from Glorot
    weights, this one, as all here, from PyTorch's."""

    loss: ClassVar[str] = "cross_entropy"

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        return _two_convolutions(shape, classes, "pfl_cnn", relu="all", dropout=(0.25, 0.5))


def _two_convolutions(
    shape: tuple[int, ...], classes: int, model: str, *, relu: str, dropout: tuple[float, float]
) -> Network:
    channels, height, width = image(shape, model, 6)
    first = [_relu()] if relu == "all" else []
    last = [_relu()] if relu == "all" else []
    body = nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        *first,
        *_halved(32, 64, 3),
        nn.Flatten(),
        nn.Dropout(dropout[0]),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        *last,
        nn.Dropout(dropout[1]),
    )
    return Network(body, linear_head(128, classes, model))


@dataclass(frozen=True)
class LeafCnn:
    """LEAF's FEMNIST network: two 5x5 convolutions (same size), a linear layer of 2048; FedGSP trains its 6.3 Mi
    parameters (FedGSP 2022, Sec. 5)."""

    loss: ClassVar[str] = "cross_entropy"

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        channels, height, width = image(shape, "leaf_cnn", 4)
        body = nn.Sequential(
            *_halved(channels, 32, 5, padding=2),
            *_halved(32, 64, 5, padding=2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 2048),
            _relu(),
        )
        return Network(body, linear_head(2048, classes, "leaf_cnn"))


@dataclass(frozen=True)
class ClusteredCnn:
    """Three 3x3 convolutions, each followed by dropout, and two linear layers (Clustered sampling 2021, Sec. 6).

    As in the authors' code there is no ReLU after the third convolution.
    """

    dropout: float = 0.2
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        share(self.dropout, "dropout", "clustered_cnn")

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        channels, height, width = image(shape, "clustered_cnn", 18)
        body = nn.Sequential(
            *_halved(channels, 32, 3),
            nn.Dropout(self.dropout),
            *_halved(32, 64, 3),
            nn.Dropout(self.dropout),
            nn.Conv2d(64, 64, 3),
            nn.Flatten(),
            nn.Dropout(self.dropout),
            nn.Linear(64 * _third(height) * _third(width), 64),
            _relu(),
        )
        return Network(body, linear_head(64, classes, "clustered_cnn"))


@dataclass(frozen=True)
class FedelmyCnn:
    """The CNN of FedELMY's tables, which is another one for every data set (FedELMY 2024, App. D.5, and its code).

    `cifar10` has three 3x3 convolutions of 128 filters and the head. `domains` (PACS, Office-Caltech-10) has two 5x5
    convolutions of 6 and 16 filters and linear layers of 120 and 84: the classic LeNet-5. `tiny` (Tiny-ImageNet) has
    two 3x3 convolutions (same size) of 32 and 64 filters and a linear layer of 128.
    """

    variant: Literal["cifar10", "domains", "tiny"] = "cifar10"
    """For which data the network was made."""
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        one_of(self.variant, tuple(_FEDELMY), "variant", "fedelmy_cnn")

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> Network:
        body, width = _FEDELMY[self.variant](shape)
        return Network(body, linear_head(width, classes, "fedelmy_cnn"))


def _fedelmy_cifar10(shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
    channels, height, width = image(shape, "fedelmy_cnn", 18)
    body = nn.Sequential(
        *_halved(channels, 128, 3), *_halved(128, 128, 3), nn.Conv2d(128, 128, 3), _relu(), nn.Flatten()
    )
    return body, 128 * _third(height) * _third(width)


def _fedelmy_domains(shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
    channels, height, width = image(shape, "fedelmy_cnn", 16)
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    layers = [nn.Flatten(), nn.Linear(16 * rows * columns, 120), _relu(), nn.Linear(120, 84), _relu()]
    return nn.Sequential(*_halved(channels, 6, 5), *_halved(6, 16, 5), *layers), 84


def _fedelmy_tiny(shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
    channels, height, width = image(shape, "fedelmy_cnn", 4)
    layers = [nn.Flatten(), nn.Linear(64 * (height // 4) * (width // 4), 128), _relu()]
    return nn.Sequential(*_halved(channels, 32, 3, padding=1), *_halved(32, 64, 3, padding=1), *layers), 128


_FEDELMY: dict[str, Callable[[tuple[int, ...]], tuple[nn.Sequential, int]]] = {
    "cifar10": _fedelmy_cifar10,
    "domains": _fedelmy_domains,
    "tiny": _fedelmy_tiny,
}


def _third(side: int) -> int:
    """What is left of a side after two 3x3 convolutions with max-pool 2 and a third convolution without."""
    return ((side - 2) // 2 - 2) // 2 - 2
