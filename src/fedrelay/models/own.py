"""A network that the caller brings."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fedrelay.errors import BadInput
from fedrelay.vectors import MOST, Layout


@dataclass(frozen=True)
class Own:
    """Any `torch.nn.Module` that returns logits: `Own(MyNetwork())`. It is copied, and its weights are the start.

    It stays as it is given: a parameter without `requires_grad` is frozen, and neither trains nor travels; a part in
    `.eval()` stays there in training, so that it drops nothing and its statistics do not move.
    """

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
        self._check(dict(chain(self.module.named_parameters(), self.module.named_buffers())))

    def _check(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """What trains or travels must fit into a vector; what is frozen may be of any kind."""
        whole = {entry.name: entry.whole for entry in Layout.of(self.module).entries}
        for name, tensor in tensors.items():
            other = name in whole and not whole[name] and tensor.dtype != torch.float32
            if other or tensor.is_complex() or tensor.device.type != "cpu":
                raise BadInput(
                    f"{name} of Own is {tensor.dtype} on {tensor.device}, but a model is one float32 vector in main "
                    "memory; module.float().cpu() works"
                )
            if whole.get(name) and tensor.numel() and int(tensor.long().abs().max()) > MOST:
                raise BadInput(
                    f"{name} of Own has whole numbers beyond {MOST}, which a float32 vector cannot hold exactly: if "
                    "they never change, register_buffer(…, persistent=False) leaves them out of what travels"
                )

    def __call__(self, shape: tuple[int, ...], classes: int, /) -> nn.Module:
        network = deepcopy(self.module)
        resting = [module for module in network.modules() if not module.training]
        network.train()  # a network that says itself which of its parts never train says it now
        for module in resting:
            module.training = False
        return network
