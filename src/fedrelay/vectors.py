"""A model as one flat vector: where every tensor lies in it, and the arithmetic that runs over all of it at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fedrelay.types import Baton, Vector


@dataclass(frozen=True)
class Entry:
    """One tensor of the model: its place and shape in the vector."""

    name: str
    start: int
    shape: tuple[int, ...]

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
    """Parameters first (`trainable` numbers), then float buffers, which travel but have no gradient."""

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
        place((n, p) for n, p in network.named_parameters() if not p.requires_grad)
        place((n, b) for n, b in network.named_buffers() if b.is_floating_point())
        return cls(tuple(entries), trainable, start)

    def bind(self, network: nn.Module, vector: Vector, gradient: Vector) -> None:
        """Make the network's tensors views into `vector` (taking its current values along) and its gradients into
        `gradient`, which covers the trainable part."""
        tensors = dict(network.named_parameters()) | dict(network.named_buffers())
        for entry in self.entries:
            tensor, view = tensors[entry.name], entry.view(vector)
            view.copy_(tensor.detach())
            tensor.data = view
            if entry.start < self.trainable:
                tensor.grad = entry.view(gradient)

    def pieces(self, vector: Vector) -> dict[str, torch.Tensor]:
        """The named tensors inside a vector (views, no copies)."""
        return {entry.name: entry.view(vector) for entry in self.entries}


def is_finite(vector: Vector) -> bool:
    """Whether every number is finite. The sum is quick, and non-finite whenever an element is; but it can overflow."""
    return bool(torch.isfinite(vector.sum())) or bool(torch.isfinite(vector).all())


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
        digest.update(vector.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()
