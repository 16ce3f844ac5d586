"""A network that the caller brings."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fedrelay.errors import BadInput


@dataclass(frozen=True)
class Own:
    """Any `torch.nn.Module` that returns logits: `Own(MyNetwork())`. It is copied, and its weights are the start."""

    module: nn.Module
    loss: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        if not isinstance(self.module, nn.Module):
            raise BadInput(f"Own takes an instance of torch.nn.Module, found {self.module!r}; Own(MyNetwork()) works")
        if not any(parameter.requires_grad for parameter in self.module.parameters()):
            raise BadInput(f"Own({type(self.module).__name__}) has no trainable parameter: there is nothing to train")
        for name, tensor in chain(self.module.named_parameters(), self.module.named_buffers()):
            if is_lazy(tensor):
                raise BadInput(f"{name} of Own has no shape yet: run the module once on an input, then give it")
            if tensor.is_floating_point() and (tensor.dtype != torch.float32 or tensor.device.type != "cpu"):
                raise BadInput(
                    f"{name} of Own is {tensor.dtype} on {tensor.device}, but a model is one float32 vector in main "
                    "memory; module.float().cpu() works"
                )

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> nn.Module:
        return deepcopy(self.module)
