"""Examples on a GPU: laid there once as they are stored (bytes stay bytes), and scaled there at every access."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.examples import Examples, Store, Transform
from fedrelay.data.nests import Nest, Shape, leaves, mapped
from fedrelay.system.devices import free


@dataclass(frozen=True, repr=False)
class OnDevice(Store):
    """The examples of another store, whose batches are on a device.

    Targets and labels as partitions and records look at them stay in main memory. What cannot be laid there (it is read
    from files, goes through a transform of the user's own, or finds no room) is taken as ever, and sent batch by batch.
    """

    inner: Store
    device: torch.device
    laid: Examples | None = field(default=None, compare=False)
    """The same rows on the device."""

    @property
    def y(self) -> Nest:
        return self.inner.y

    @property
    def transform(self) -> Transform | None:  # type: ignore[override]
        return self.inner.transform

    @property
    def shape(self) -> Shape:
        return self.inner.shape

    @property
    def form(self) -> str:
        return self.inner.form

    @property
    def draws(self) -> bool:
        return self.inner.draws

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        return self.inner.labels

    def take(self, rows: torch.Tensor | slice, rng: np.random.Generator | None = None) -> tuple[Nest, Nest]:
        if self.laid is not None:
            return self.laid.take(rows if isinstance(rows, slice) else rows.to(self.device), rng)
        main = rows.to("cpu") if isinstance(rows, torch.Tensor) else rows
        x, y = self.inner.take(main, rng)
        return mapped(x, self._sent), mapped(y, self._sent)

    def _sent(self, part: torch.Tensor) -> torch.Tensor:
        return part.to(self.device)

    def picked(self, rows: torch.Tensor) -> OnDevice:
        laid = None if self.laid is None else self.laid.picked(rows.to(self.device))
        return replace(self, inner=self.inner.picked(rows), laid=laid)

    def with_transform(self, transform: Transform | None) -> OnDevice:
        return on_device(self.inner.with_transform(transform), self.device)

    def on(self, device: torch.device) -> Store:
        return self if device == self.device else self.inner.on(device)


def on_device(store: Store, device: torch.device) -> OnDevice:
    """The store's examples on a device, laid there if they can be."""
    if not layable(store) or not fits(store, device):
        return OnDevice(store, device)
    assert isinstance(store, Examples)
    x, y = (mapped(part, lambda leaf: leaf.to(device)) for part in (store.x, store.y))
    return OnDevice(store, device, Examples(x, y, store.transform))


def layable(store: Store) -> bool:
    """Whether the examples can lie on a device: they are in memory, and their transform works anywhere."""
    return type(store) is Examples and (store.transform is None or getattr(store.transform, "anywhere", False))


def fits(store: Store, device: torch.device) -> bool:
    """Whether the examples find room on the device, with as much again for all else, or have found it."""
    made = store.made_on(device)
    if isinstance(made, OnDevice):
        return made.laid is not None or not layable(store)
    there = free(device)
    return there is None or 2 * bytes_there(store) <= there


def bytes_there(store: Store | None) -> int:
    """What the examples take on a device; nothing where they are sent batch by batch anyhow."""
    if store is None or not layable(store):
        return 0
    assert isinstance(store, Examples)
    return sum(leaf.numel() * leaf.element_size() for part in (store.x, store.y) for leaf in leaves(part))


def bytes_missing(store: Store | None, device: torch.device) -> int:
    """What laying the examples there would take now; nothing where somebody has done it, or tried to."""
    return 0 if store is None or store.made_on(device) is not None else bytes_there(store)
