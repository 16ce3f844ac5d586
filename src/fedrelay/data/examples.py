"""Inputs and targets, in memory or elsewhere: whatever holds them is taken from in the same way."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.nests import Nest, Shape, form, leaves, mapped, rows_in
from fedrelay.errors import BadInput

Target: TypeAlias = Literal["classes", "tokens", "mask", "labels", "numbers", "several"]
"""What is to be learned of an example: one class, a class at every place of a sequence or for every pixel, which of
several labels it has (any number of them), numbers, or several targets of any kind."""
TARGETS: dict[Target, str] = {
    "classes": "one class each",
    "tokens": "a class at every place of a sequence",
    "mask": "a class for every pixel",
    "labels": "any number of labels each",
    "numbers": "numbers",
    "several": "several targets each",
}
"""In words."""


class Transform(Protocol):
    """Turns stored rows into what a network takes; `rng` is None outside training (no augmentation then).

    One that never draws may say so with `draws = False`: its rows can then be taken in any company. One that works on
    rows of any device, and leaves them there, may say so with `anywhere = True`: rows can then lie on a GPU.
    """

    def __call__(self, x: torch.Tensor, rng: np.random.Generator | None, /) -> torch.Tensor: ...


class Store(ABC):
    """What holds examples. A frozen dataclass that can be sent to another process.

    A batch is (inputs, targets), each a tensor or a tuple or dict of tensors.
    """

    y: Nest
    """All targets, in memory."""
    transform: Transform | None
    """What stored inputs become at every access."""
    device: torch.device = torch.device("cpu")
    """Where batches are."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Of one input, as the network sees it."""

    @property
    @abstractmethod
    def form(self) -> str:
        """What one input is, in words."""

    @abstractmethod
    def take(self, rows: torch.Tensor | slice, rng: np.random.Generator | None = None) -> tuple[Nest, Nest]:
        """The batch of these rows, ready for the network; `rng` is for augmentation, and there is none without it."""

    @abstractmethod
    def picked(self, rows: torch.Tensor) -> Store:
        """Only these rows, in this order, as a store of its own."""

    @property
    def draws(self) -> bool:
        """Whether taking the same rows twice may give two things, because they are augmented."""
        return self.transform is not None and getattr(self.transform, "draws", True)

    def with_transform(self, transform: Transform | None) -> Self:
        """The same examples, with another transform."""
        return replace(self, transform=transform)  # type: ignore[type-var]  # all stores are dataclasses

    def on(self, device: torch.device) -> Store:
        """The same examples with their batches on this device: laid there once, for all who ask."""
        if device == self.device:
            return self
        from fedrelay.data.stores.on_device import on_device

        made: dict[torch.device, Store] = self.__dict__.setdefault("_elsewhere", {})
        if device not in made:
            made[device] = on_device(self, device)
        return made[device]

    def made_on(self, device: torch.device) -> Store | None:
        """What `on` has made for this device, if anybody has asked."""
        made: dict[torch.device, Store] = self.__dict__.get("_elsewhere", {})
        return made.get(device)

    def __getstate__(self) -> dict[str, Any]:
        """What it was made of, without what was found out since: whoever gets it finds that out again."""
        return {part.name: getattr(self, part.name) for part in fields(self)}  # type: ignore[arg-type]

    def __len__(self) -> int:
        return rows_in(self.y)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {self.form})"

    def batches(self, size: int) -> Iterator[tuple[Nest, Nest]]:
        """All examples in order, in batches of at most `size`, without augmentation."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, min(start + size, len(self))))

    @cached_property
    def numbers(self) -> int:
        """How many numbers one input has; every visit asks."""
        return sum(math.prod(shape) for shape in shapes_in(self.shape))

    @property
    def target(self) -> Target:
        """What kind of targets these are: truth values are labels, numbers with a fraction are numbers, and whole
        numbers are classes, of an example, a place or a pixel."""
        if not isinstance(self.y, torch.Tensor):
            return "several"
        if self.y.is_floating_point():
            return "numbers"
        if self.y.dtype == torch.bool and self.y.ndim == 2:
            return "labels"
        return "classes" if self.y.ndim == 1 else "tokens" if self.y.ndim == 2 else "mask"

    @property
    def classified(self) -> bool:
        """Whether every example has one class."""
        return self.target == "classes"

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """One class per example, as NumPy (partitions and pictures use it)."""
        if not self.classified:
            way = "; the partition quantiles makes classes of numbers" if self.target == "numbers" else ""
            found = f"{TARGETS[self.target]} (targets {form(self.y)})"
            raise BadInput(f"these examples have {found}, not one class each, which is needed here{way}")
        result: NDArray[np.int64] = self.y.numpy().astype(np.int64, copy=False)
        return result


@dataclass(frozen=True, repr=False)
class Examples(Store):
    """In memory. Images are stored as (n, height, width, channels) and taken as channels-last (n, c, h, w)."""

    x: Nest
    y: Nest
    transform: Transform | None = None

    def __post_init__(self) -> None:
        for part, what in ((self.x, "inputs"), (self.y, "targets")):
            counts = sorted({len(leaf) for leaf in leaves(part)})
            if len(counts) != 1:
                raise BadInput(f"{what} must all have the same number of rows, found {counts}")
        if rows_in(self.x) != len(self):
            raise BadInput(f"{rows_in(self.x)} inputs but {len(self)} targets: there must be one target per input")

    @property
    def shape(self) -> Shape:
        return mapped(self.x, seen)

    @property
    def form(self) -> str:
        return form(mapped(self.x, as_seen))

    def take(self, rows: torch.Tensor | slice, rng: np.random.Generator | None = None) -> tuple[Nest, Nest]:
        x, y = self.x, self.y
        if isinstance(rows, slice) or not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            return ready(chosen(x, rows), self.transform, rng), chosen(y, rows)
        # What training takes, thousands of times a second: nothing but the work itself.
        x, y = x.index_select(0, rows), y.index_select(0, rows)
        if self.transform is not None:
            x = self.transform(x, rng)
        return x.permute(0, 3, 1, 2) if x.ndim == 4 else x, y

    def picked(self, rows: torch.Tensor) -> Examples:
        return replace(self, x=mapped(self.x, lambda part: part[rows]), y=mapped(self.y, lambda part: part[rows]))


def chosen(nest: Nest, rows: torch.Tensor | slice) -> Nest:
    """These rows."""
    if not isinstance(nest, torch.Tensor):
        return mapped(nest, lambda part: chosen(part, rows))
    return nest[rows] if isinstance(rows, slice) else nest.index_select(0, rows)  # several times quicker than indexing


def ready(x: Nest, transform: Transform | None, rng: np.random.Generator | None) -> Nest:
    """Stored rows as a network takes them."""
    if transform is not None:
        x = transform(x, rng)
    return as_seen(x) if isinstance(x, torch.Tensor) else mapped(x, as_seen)


def as_seen(x: torch.Tensor) -> torch.Tensor:
    """Images with their channels first, but at the same place in memory."""
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x


def seen(x: torch.Tensor) -> tuple[int, ...]:
    """The shape of one stored input, as the network sees it."""
    shape = tuple(x.shape[1:])
    return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape


def shapes_in(shape: Shape) -> Iterator[tuple[int, ...]]:
    """The shapes of all tensors of a nest."""
    if isinstance(shape, dict):
        shape = tuple(shape.values()) or ()
    if nested(shape):
        for part in shape:
            yield from shapes_in(part)
    else:
        yield shape


def nested(shape: Shape) -> bool:
    """Whether this is the shape of several inputs."""
    return isinstance(shape, dict) or any(not isinstance(part, int) for part in shape)
