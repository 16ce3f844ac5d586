"""Tasks whose inputs are images, for whoever makes images of models."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedrelay.data.augment import Levelled
from fedrelay.errors import BadInput
from fedrelay.tasks.task import Task


def image_shape(task: Task, who: str) -> tuple[int, int, int]:
    """Channels, height and width; other inputs are refused. `who` makes images, in words."""
    shape = task.shape
    if not isinstance(shape, tuple) or len(shape) != 3 or not all(isinstance(side, int) for side in shape):
        raise BadInput(f"{who} images (channels, height, width), and inputs here have the shape {shape}")
    return shape


def scaling(task: Task, who: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """From images between 0 and 1 to what the network takes: as the data are normalised; where they are not, as they
    are."""
    channels, height, width = image_shape(task, who)
    transform = task.transform.then if isinstance(task.transform, Levelled) else task.transform
    if transform is None:
        return lambda images: images
    try:
        ends = [transform(torch.full((1, height, width, channels), value), None) for value in (0.0, 1.0)]
        black, white = (end.permute(0, 3, 1, 2) for end in ends)
    except Exception as error:
        raise BadInput(
            f"{who} images, which must be scaled as the data are, and the data's transform "
            f"{type(transform).__name__} does not take images between 0 and 1: {error}"
        ) from error

    def scaled(images: torch.Tensor) -> torch.Tensor:
        low, high = black.to(images.device), white.to(images.device)
        return low + images * (high - low)

    return scaled
