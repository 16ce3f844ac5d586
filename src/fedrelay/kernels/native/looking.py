"""What a network says of examples where nothing is trained: convolutions natively, in as many threads as operators
have, and the layers behind them by the operators of PyTorch."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import torch
from torch import nn

from fedrelay.kernels.layers import modules
from fedrelay.kernels.native.library import Found, found
from fedrelay.kernels.native.sequence import Front, Sequence, Stage
from fedrelay.types import Vector

FEW = 16
"""A thread of its own is not worth while for fewer images."""


class Looking:
    """The convolutions of a network over these weights, and the layers that follow."""

    def __init__(self, network: nn.Module, sequence: Sequence, weights: Vector) -> None:
        library = found()
        assert isinstance(library, Found)
        own = [Stage.from_buffer_copy(stage) for stage in sequence.stages]  # images may be of another size here
        self._library, self._weights, self._sequence = library.library, weights, replace(sequence, stages=own)
        layers = [module for _, module in modules(network)]
        flat = next(number for number, module in enumerate(layers) if type(module) is nn.Flatten)
        self._rest = layers[flat + 1 :]

    def takes(self, x: torch.Tensor) -> bool:
        """Whether these are images of the kind that the network is for, and nobody asks for a gradient."""
        stage = self._sequence.stages[0]
        plain = x.ndim == 4 and x.dtype == torch.float32 and x.device == self._weights.device
        if not plain or torch.is_grad_enabled() or x.shape[1] != stage.channels or not len(x):
            return False
        with suppress(RuntimeError):  # whoever gives images of another size hears it from PyTorch
            self._sequence.shape(*x.shape[2:])
            return True
        return False

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The network's output for images that it takes."""
        self._sequence.shape(*x.shape[2:])
        x = x.permute(0, 2, 3, 1).contiguous()
        stages = (Stage * len(self._sequence.stages))(*self._sequence.stages)
        for stage in stages:
            stage.share = 0
        output = torch.empty(len(x), self._sequence.layers[0].inputs)
        hands = max(min(torch.get_num_threads(), len(x) // FEW), 1)
        ends = [len(x) * hand // hands for hand in range(hands + 1)]
        parts = [(stages, x[start:end], output[start:end]) for start, end in pairwise(ends)]
        if hands == 1:
            self._look(*parts[0])
        else:
            with ThreadPoolExecutor(hands) as threads:
                list(threads.map(lambda part: self._look(*part), parts))
        for module in self._rest:
            output = module(output)
        return output

    def _look(self, stages: ctypes.Array[Stage], x: torch.Tensor, features: torch.Tensor) -> None:
        front = Front(stages=ctypes.addressof(stages), count=len(stages))
        scratch = torch.empty(self._library.front_scratch(ctypes.addressof(front), 1))
        front.scratch = scratch.data_ptr()
        where = self._weights.data_ptr(), x.data_ptr(), len(x), features.data_ptr()
        self._library.front_look(ctypes.addressof(front), *where)
