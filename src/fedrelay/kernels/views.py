"""Networks that say `view` where they mean `reshape`.

Weights of convolutions lie with their channels last here, and so does what convolutions make of images: a `view` of it
as one row of numbers an image, which many networks are written with, is refused by PyTorch there, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class Views(TorchFunctionMode):
    """Inside, `view` makes a copy where it cannot do without."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not torch.Tensor.view or args[0].is_contiguous():
            return func(*args, **kwargs)
        try:
            return func(*args, **kwargs)
        except RuntimeError:
            return func(args[0].contiguous(), *args[1:], **kwargs)


def has_images(network: nn.Module) -> bool:
    """Whether there are convolutions whose outputs may lie so."""
    return any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in network.modules())
