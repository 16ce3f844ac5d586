"""Examples with other targets than they have, and with a mark on some inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from fedrelay.data.examples import Store, Transform
from fedrelay.data.federation import ClientData
from fedrelay.data.nests import Nest, Shape


@dataclass(frozen=True)
class Patch:
    """A square in the lower right corner of images, `size` pixels wide, of this value as the network sees it."""

    size: int
    value: float

    def on(self, x: torch.Tensor, marked: torch.Tensor) -> torch.Tensor:
        """A copy of the images, those that are marked with the patch on them."""
        x = x.clone()
        corner = x[..., -self.size :, -self.size :]
        corner[marked] = self.value
        return x


@dataclass(frozen=True, repr=False)
class Poisoned(Store):
    """The inputs of a store with these targets; with a patch, on the inputs that are marked."""

    inner: Store
    y: torch.Tensor
    transform: Transform | None = None
    patch: Patch | None = None
    marked: torch.Tensor | None = None

    @classmethod
    def of(
        cls, inner: Store, y: torch.Tensor, patch: Patch | None = None, marked: torch.Tensor | None = None
    ) -> Poisoned:
        return cls(inner, y, inner.transform, patch, marked)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.inner.device

    @property
    def shape(self) -> Shape:
        return self.inner.shape

    @property
    def form(self) -> str:
        return self.inner.form

    @property
    def draws(self) -> bool:
        return self.inner.draws

    def take(self, rows: torch.Tensor | slice, rng: np.random.Generator | None = None) -> tuple[Nest, Nest]:
        x, _ = self.inner.take(rows, rng)
        if self.patch is not None and self.marked is not None:
            assert isinstance(x, torch.Tensor)
            x = self.patch.on(x, self.marked[rows].to(x.device))
        return x, self.y[rows].to(self.device)

    def picked(self, rows: torch.Tensor) -> Poisoned:
        marked = None if self.marked is None else self.marked[rows]
        return replace(self, inner=self.inner.picked(rows), y=self.y[rows], marked=marked)

    def with_transform(self, transform: Transform | None) -> Poisoned:
        return replace(self, inner=self.inner.with_transform(transform), transform=transform)


def own_examples(client: ClientData) -> Store:
    """The examples of this client alone, in their order."""
    return client.examples.picked(client.rows)


def with_own(client: ClientData, examples: Store) -> ClientData:
    """The client with these examples in place of its own, one for one."""
    return replace(client, examples=examples, rows=torch.arange(client.size))
