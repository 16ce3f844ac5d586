"""Images that are none of a client's classes, made of its own images (FedOV 2023, Sec. 3.2)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

SMALLEST = 4
"""A side must have two halves of at least two pixels."""

Draw = np.random.Generator


def outliers(x: torch.Tensor, draw: Draw) -> torch.Tensor:
    """For every image (n, channels, height, width) one that is like it in parts only, of a kind that is drawn."""
    kinds = draw.integers(len(KINDS), size=len(x))
    return torch.stack([KINDS[kind](image, draw) for kind, image in zip(kinds, x, strict=True)])


def cropped(image: torch.Tensor, draw: Draw) -> torch.Tensor:
    """10 to 33 % of it, enlarged to the whole."""
    _, height, width = image.shape
    high, wide = sides(height, width, draw.uniform(0.1, 0.33), math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3))))
    top, left = draw.integers(height - high + 1), draw.integers(width - wide + 1)
    part = image[None, :, top : top + high, left : left + wide]
    return functional.interpolate(part, (height, width), mode="bilinear", align_corners=False)[0]


def blurred(image: torch.Tensor, draw: Draw) -> torch.Tensor:
    """So blurred that only patches are left: a window of 1, 3 or 5 by 3 to 9 pixels, nearly all alike."""
    channels, height, width = image.shape
    spread = draw.uniform(10, 100)
    tall, broad = (
        bell(int(draw.choice(sizes)), side, spread) for sizes, side in (((1, 3, 5), height), ((3, 5, 7, 9), width))
    )
    window = (tall[:, None] * broad[None, :]).to(image).expand(channels, 1, -1, -1)
    edges = (len(broad) // 2, len(broad) // 2, len(tall) // 2, len(tall) // 2)
    around = functional.pad(image[None], edges, mode="reflect")
    return functional.conv2d(around, window, groups=channels)[0]


def bell(size: int, side: int, spread: float) -> torch.Tensor:
    """Weights of a window along one side, which it may not be wider than twice."""
    half = min(size // 2, side - 1)
    weights = torch.exp(-((torch.arange(-half, half + 1) / spread) ** 2) / 2)
    return weights / weights.sum()


def erased(image: torch.Tensor, draw: Draw) -> torch.Tensor:
    """33 to 50 % of it are gone."""
    _, height, width = image.shape
    high, wide = sides(height, width, draw.uniform(0.33, 0.5), math.exp(draw.uniform(math.log(0.3), math.log(3.3))))
    top, left = draw.integers(height - high + 1), draw.integers(width - wide + 1)
    after = image.clone()
    after[:, top : top + high, left : left + wide] = 0
    return after


def sides(height: int, width: int, share: float, ratio: float) -> tuple[int, int]:
    """Height and width of a piece with this share of the area; `ratio` is width by height, as far as it fits."""
    wide = min(max(round(math.sqrt(share * height * width * ratio)), 1), width)
    high = min(max(round(share * height * width / wide), 1), height)
    return high, wide


def cut(image: torch.Tensor, draw: Draw) -> torch.Tensor:
    """A band of half its size is covered by another one, or (one time in three) its halves change places."""
    along = int(draw.integers(1, 3))
    half = image.shape[along] // 2
    after = image.clone()
    if draw.integers(3) == 0:
        end = image.shape[along] - half
        after.narrow(along, 0, half).copy_(image.narrow(along, end, half))
        after.narrow(along, end, half).copy_(image.narrow(along, 0, half))
        return after
    # Bands that are at least half a band apart. Paper: the authors draw until they are, which some sides never end.
    pairs = [(one, other) for one in range(half) for other in range(half) if abs(one - other) >= half / 2]
    one, other = pairs[int(draw.integers(len(pairs)))]
    after.narrow(along, one, half).copy_(image.narrow(along, other, half))
    return after


def turned(image: torch.Tensor, draw: Draw) -> torch.Tensor:
    """Two blocks of half its size, side by side, are turned by 90, 180 or 270 degrees."""
    _, height, width = image.shape
    block = min(height, width) // 2  # square, so that odd sides and oblong images can be turned too
    top, quarters = int(draw.integers(height - block + 1)), int(draw.integers(1, 4))
    after = image.clone()
    for left in (0, width - block):
        piece = image[:, top : top + block, left : left + block]
        after[:, top : top + block, left : left + block] = torch.rot90(piece, quarters, (1, 2))
    return after


KINDS: tuple[Callable[[torch.Tensor, Draw], torch.Tensor], ...] = (
    cropped,
    blurred,
    erased,
    cut,
    cut,
    turned,
    turned,
)
"""Each is as likely as the others; two are there twice."""
