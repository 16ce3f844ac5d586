"""From stored pixels to what a network takes: scaling, and (in training) augmentation, a whole batch at a time.

In NumPy, because this is so little work that waking torch's threads for it costs more than it saves, and on a busy
machine many times more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.errors import BadInput, within

Floats = NDArray[np.float32]

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""What the papers use for CIFAR-10 and CIFAR-100 alike."""


@dataclass(frozen=True)
class Normalise:
    """Bytes 0…255 (or floats 0…1) as (x / 255 - mean) / std, one mean and one std per channel or one for all."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    draws: ClassVar[bool] = False
    anywhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std):
            raise BadInput(
                f"normalisation needs one mean and one std per channel, found {len(self.mean)} and {len(self.std)}"
            )
        within("the smallest std of a normalisation", min(self.std), above=0)

    def __call__(self, x: torch.Tensor, rng: np.random.Generator | None, /) -> torch.Tensor:
        channels = x.shape[-1]
        if len(self.mean) not in (1, channels):
            raise BadInput(f"a normalisation of {len(self.mean)} channels cannot be used on {channels} channels")
        scale, shift = self._affine
        if x.dtype != torch.uint8:
            scale = scale * 255
        if x.device.type != "cpu":  # the same two steps for every number, and so the same bits
            return (x.float() * on_device(scale, x.device)).add_(on_device(shift, x.device))
        # Whole lines of pixels at a time: three channels alone are too few to fill a vector instruction (10x slower).
        line = x.shape[-2] * channels if x.ndim > 2 else channels
        lines = x.numpy().reshape(-1, line).astype(np.float32)
        lines *= np.tile(scale, line // len(scale))
        lines += np.tile(shift, line // len(shift))
        return torch.from_numpy(lines.reshape(x.shape))

    @cached_property
    def _affine(self) -> tuple[Floats, Floats]:
        mean, std = np.array(self.mean), np.array(self.std)
        return (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)


@dataclass(frozen=True)
class Levelled:
    """Deep pictures from least … most to 0 … 1, and then normalised."""

    least: float
    most: float
    then: Normalise
    draws: ClassVar[bool] = False

    def __call__(self, x: torch.Tensor, rng: np.random.Generator | None, /) -> torch.Tensor:
        return self.then(torch.from_numpy(levelled(x.numpy(), self.least, self.most)), rng)


def levelled(x: NDArray[Any], least: float, most: float) -> Floats:
    """With 0 … 1 for least … most."""
    return np.asarray((x - least) / (most - least), dtype=np.float32)


@dataclass(frozen=True)
class Augment:
    """In training a random crop of the image with a black border, flipped left to right half of the time; then scaled.

    As in the published code of FedSeq 2022: RandomCrop(32, padding 4), flip, Normalize, drawn anew at every access.
    The draws come from the generator of the visit only, so they depend on neither engine nor worker.
    """

    mean: tuple[float, ...] = CIFAR_MEAN
    std: tuple[float, ...] = CIFAR_STD
    padding: int = 4
    flip: bool = True
    anywhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        within("the padding of an augmentation", self.padding, least=0)
        Normalise(self.mean, self.std)

    def __call__(self, x: torch.Tensor, rng: np.random.Generator | None, /) -> torch.Tensor:
        if rng is not None:
            x = self._moved(x, rng)
        return self._normalise(x, rng)

    @cached_property
    def _normalise(self) -> Normalise:
        return Normalise(self.mean, self.std)

    def _moved(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        top, left = rng.integers(0, 2 * self.padding + 1, (2, len(x)))
        flipped = rng.random(len(x)) < 0.5 if self.flip else np.zeros(len(x), dtype=bool)
        if x.device.type != "cpu":
            return moved_there(x, top, left, flipped, self.padding)
        return torch.from_numpy(moved(x.numpy(), top, left, flipped, self.padding))


def moved(
    x: NDArray[Any], top: NDArray[np.int64], left: NDArray[np.int64], flipped: NDArray[np.bool_], padding: int
) -> NDArray[Any]:
    """Every image (n, height, width, channels) in a black border, cut out at its own corner, and some flipped."""
    if x.ndim != 4:
        raise BadInput(f"only images (n, height, width, channels) can be cropped and flipped, found shape {x.shape}")
    images, height, width, channels = x.shape
    high, wide = height + 2 * padding, width + 2 * padding
    bordered = np.zeros((images, high, wide, channels), dtype=x.dtype)
    bordered[:, padding : padding + height, padding : padding + width] = x
    column = np.arange(width)
    columns = left[:, None] + np.where(flipped[:, None], width - 1 - column, column)
    rows = top[:, None] + np.arange(height) + high * np.arange(images)[:, None]
    # All channels of a pixel as one item, so that one take moves everything.
    pixels = bordered.reshape(-1).view(f"V{channels * x.itemsize}")
    result: NDArray[Any] = pixels.take(rows[:, :, None] * wide + columns[:, None, :]).view(x.dtype)
    return result.reshape(x.shape)


def moved_there(
    x: torch.Tensor, top: NDArray[np.int64], left: NDArray[np.int64], flipped: NDArray[np.bool_], padding: int
) -> torch.Tensor:
    """The same as `moved`, of images that lie on a GPU; only the corners are sent there."""
    if x.ndim != 4:
        raise BadInput(f"only images (n, height, width, channels) can be cropped and flipped, found {tuple(x.shape)}")
    images, height, width, channels = x.shape
    bordered = x.new_zeros(images, height + 2 * padding, width + 2 * padding, channels)
    bordered[:, padding : padding + height, padding : padding + width] = x
    column = np.arange(width)
    columns = left[:, None] + np.where(flipped[:, None], width - 1 - column, column)
    rows = top[:, None] + np.arange(height)
    here = torch.arange(images, device=x.device)[:, None, None]
    return bordered[here, on_device(rows, x.device)[:, :, None], on_device(columns, x.device)[:, None, :]]


def on_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """A few numbers, sent there."""
    return torch.from_numpy(array).to(device)
