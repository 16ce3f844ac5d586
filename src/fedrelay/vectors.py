"""A model as one flat vector: where every tensor lies in it, and the arithmetic that runs over all of it at once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from fedrelay.types import Baton, Vector

MOST = 1 << 24
"""Up to here every whole number is exact in float32. In a vector whole numbers are divided by it, so that a count of
batches, which is no weight, is next to nothing in a distance between two models."""


@dataclass(frozen=True)
class Entry:
    """One tensor of the model: its place and shape in the vector. One of `whole` numbers is divided by MOST there."""

    name: str
    start: int
    shape: tuple[int, ...]
    whole: bool = False

    @property
    def size(self) -> int:
        size = 1
        for side in self.shape:
            size *= side
        return size

    def view(self, vector: Vector) -> torch.Tensor:
        """The tensor inside the vector; convolution weights are channels-last views, which is what kernels like."""
        piece = vector[self.start : self.start + self.size]
        if len(self.shape) == 4:
            out, channels, height, width = self.shape
            return piece.view(out, height, width, channels).permute(0, 3, 1, 2)
        return piece.view(self.shape)


@dataclass(frozen=True)
class Layout:
    """Parameters first (`trainable` numbers), then buffers, which travel but have no gradient: floats, whole numbers.

    What never changes is not in the vector, because it comes with the network: frozen parameters, the buffers of parts
    that are in `.eval()`, and buffers that are not saved (`persistent=False`).
    """

    entries: tuple[Entry, ...]
    trainable: int
    size: int

    @classmethod
    def of(cls, network: nn.Module) -> Layout:
        entries: list[Entry] = []
        start = 0

        def place(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
            nonlocal start
            for name, tensor in tensors:
                entries.append(Entry(name, start, tuple(tensor.shape)))
                start += tensor.numel()

        place((n, p) for n, p in network.named_parameters() if p.requires_grad)
        trainable = start
        travelling = [buffer for buffer in buffers(network) if buffer.travels]
        place((b.name, b.tensor) for b in travelling if b.tensor.is_floating_point())
        floats = len(entries)
        place((b.name, b.tensor) for b in travelling if not b.tensor.is_floating_point())
        whole = (Entry(entry.name, entry.start, entry.shape, whole=True) for entry in entries[floats:])
        return cls((*entries[:floats], *whole), trainable, start)

    def bind(self, network: nn.Module, vector: Vector, gradient: Vector) -> None:
        """Make the network's tensors views into `vector` (taking its current values along) and its gradients into
        `gradient`, which covers the trainable part."""
        tensors = dict(network.named_parameters()) | dict(network.named_buffers())
        for entry in self.entries:
            tensor, view = tensors[entry.name], entry.view(vector)
            if entry.whole:  # no view can turn floats into whole numbers: whoever works with the network copies them
                view.copy_(tensor).div_(MOST)
                continue
            view.copy_(tensor.detach())
            tensor.data = view
            if entry.start < self.trainable:
                tensor.grad = entry.view(gradient)

    def pieces(self, vector: Vector) -> dict[str, torch.Tensor]:
        """The named tensors inside a vector: views, no copies, but of whole numbers."""
        return {
            entry.name: whole_numbers(entry.view(vector)) if entry.whole else entry.view(vector)
            for entry in self.entries
        }


class Buffer(NamedTuple):
    """A buffer of a network, and the module that has it by this key."""

    name: str
    module: nn.Module
    key: str
    tensor: torch.Tensor

    @property
    def travels(self) -> bool:
        """Whether it belongs to the model and may change in training."""
        return self.module.training and self.key not in self.module._non_persistent_buffers_set


def buffers(network: nn.Module) -> Iterator[Buffer]:
    """All buffers, each once, in the order of `named_buffers`."""
    seen = set[int]()
    for prefix, module in network.named_modules():
        for key, tensor in module.named_buffers(recurse=False):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield Buffer(f"{prefix}.{key}" if prefix else key, module, key, tensor)


def whole_numbers(view: torch.Tensor) -> torch.Tensor:
    """Whole numbers out of a vector; a merge may have made fractions of them."""
    return (view * MOST).round().long()  # exact: MOST is a power of two


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    """In float64: where the tensor is, or in main memory if its device has no such numbers (Apple's GPUs)."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


def is_finite(vector: Vector) -> bool:
    """Whether every number is finite. The sum is quick, and non-finite whenever an element is; but it can overflow."""
    return math.isfinite(float(vector.sum())) or bool(torch.isfinite(vector).all())


def weighted_sum(vectors: Iterable[Vector], weights: Iterable[float]) -> Vector:
    """The weighted sum, one after another in the given order, so that its bits depend on nothing else."""
    total: Vector | None = None
    for vector, weight in zip(vectors, weights, strict=True):
        total = vector * weight if total is None else total.add_(vector, alpha=weight)
    if total is None:
        raise ValueError("there is no vector to sum")
    return total


def blend(batons: Sequence[Baton]) -> Vector:
    """The one model that several batons stand for: their mean by the weight they have gathered, or the plain mean."""
    if len(batons) == 1:
        return batons[0].params
    total = sum(baton.weight for baton in batons)
    moved = [baton for baton in batons if baton.weight or not total]
    return weighted_sum((b.params for b in moved), (b.weight / total if total else 1 / len(moved) for b in moved))


def sha256(*vectors: Vector) -> str:
    """The fingerprint of the exact bits of a vector, or of several one after another."""
    digest = hashlib.sha256()
    for vector in vectors:
        digest.update(vector.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
