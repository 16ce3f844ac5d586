"""Examples that are read from `torch.utils.data.Dataset`s whenever they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import default_collate

from fedrelay.data.access import seeded_access, seeds_for
from fedrelay.data.examples import Store, Transform
from fedrelay.data.nests import Nest, Shape, form, mapped, rows_in
from fedrelay.errors import BadInput

Collate: TypeAlias = Callable[[list[Any]], Any]
"""From a list of (input, target) to a batch (inputs, targets)."""


@dataclass(frozen=True, repr=False)
class DatasetExamples(Store):
    """Item i of data set d, for every row (d, i) of `rows`; read, transformed and collated at every access.

    What the data sets draw (augmentation) is drawn from the seeds of the visit, whichever generator they use.
    """

    datasets: tuple[Any, ...]
    names: tuple[str, ...]
    rows: torch.Tensor
    y: Nest
    sample: Nest
    """The inputs of a batch of one."""
    collate: Collate | None = None
    transform: Transform | None = None

    @property
    def shape(self) -> Shape:
        return mapped(self.sample, lambda part: tuple(part.shape[1:]))

    @property
    def form(self) -> str:
        return form(self.sample)

    @property
    def draws(self) -> bool:
        return True  # nobody can tell

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: torch.Tensor | slice, rng: np.random.Generator | None = None) -> tuple[Nest, Nest]:
        where = [(int(number), int(item)) for number, item in self.rows[rows]]
        x, y = read(self.datasets, self.names, where, collate=self.collate, rng=rng)
        return x if self.transform is None else self.transform(x, rng), y

    def picked(self, rows: torch.Tensor) -> DatasetExamples:
        return replace(self, rows=self.rows[rows], y=mapped(self.y, lambda part: part[rows]))


def read(
    datasets: Sequence[Any],
    names: Sequence[str],
    where: Sequence[tuple[int, int]],
    *,
    collate: Collate | None,
    rng: np.random.Generator | None,
) -> tuple[Nest, Nest]:
    """The batch of these items of these data sets."""
    numbers = seeds_for([(number << 40) + item for number, item in where], rng)
    items: list[Any] = []
    with seeded_access() as seed:
        for (number, item), chance in zip(where, numbers, strict=True):
            seed(chance)
            items.append(pair_of(datasets[number], item, names[number]))
        seed(numbers[0] if numbers else 0)  # for a collate that draws
        try:
            batch = (collate or default_collate)(items)
        except BadInput:
            raise
        except Exception as error:  # the user's code, or torch's words about it
            raise BadInput(f"{misfit(items, where, names)} ({error})") from error
    return checked_batch(batch, len(items), names[where[0][0]])


def pair_of(dataset: Any, item: int, name: str) -> tuple[Any, Any]:
    """One example; whatever is no pair, or cannot be read, is refused by name."""
    try:
        found = dataset[item]
    except Exception as error:  # the user's code may fail in any way
        raise BadInput(f"{name}: example {item} cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(found, tuple | list) or len(found) != 2:
        what = f"{len(found)} things" if isinstance(found, tuple | list) else f"a {type(found).__name__}"
        raise BadInput(
            f"{name}: example {item} must be a pair (input, target), found {what}; several inputs are a tuple or dict "
            "in the first place: ((image, age), target)"
        )
    return found[0], found[1]


def checked_batch(batch: Any, count: int, name: str) -> tuple[Nest, Nest]:
    """A collated batch as tuples and dicts of tensors, of the types that networks and losses take."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise BadInput(f"{name}: collate must give a pair (inputs, targets), found a {type(batch).__name__}")
    x, y = nest_of(batch[0], name, "input", input_type), nest_of(batch[1], name, "target", target_type)
    if (rows_in(x), rows_in(y)) != (count, count):
        found = f"{rows_in(x)} inputs and {rows_in(y)} targets"
        raise BadInput(f"{name}: collate makes {found} of {count} examples")
    return x, y


def nest_of(part: Any, name: str, what: str, convert: Callable[[torch.Tensor], torch.Tensor]) -> Nest:
    if isinstance(part, Mapping):
        return {key: nest_of(value, name, f"{what} {key!r}", convert) for key, value in part.items()}
    if isinstance(part, tuple | list):
        if part and isinstance(part[0], str):
            raise BadInput(f"{name}: {what} must be numbers, found texts such as {part[0]!r}")
        return tuple(nest_of(value, name, f"{what} {place}", convert) for place, value in enumerate(part))
    if not isinstance(part, torch.Tensor) or part.ndim == 0:
        raise BadInput(f"{name}: {what} must become a tensor with a row for every example, found {part!r}")
    return convert(part)


def input_type(part: torch.Tensor) -> torch.Tensor:
    """Floats of torch's usual precision; images at the same place in memory as those that are stored in arrays."""
    if part.dtype == torch.float64:
        part = part.float()
    return part.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) if part.ndim == 4 else part


def target_type(part: torch.Tensor) -> torch.Tensor:
    """Numbers of single precision, classes as torch wants them; labels, of which each is true or not, as they are."""
    if part.dtype == torch.bool and part.ndim == 2:
        return part
    return part.float() if part.is_floating_point() else part.long()


def misfit(items: Sequence[tuple[Any, Any]], where: Sequence[tuple[int, int]], names: Sequence[str]) -> str:
    """Which example of a batch does not go with the first one, and why."""
    kinds = [(kind_of(x), kind_of(y)) for x, y in items]
    (first, item), expected = where[0], kinds[0]
    for (number, row), kind in zip(where, kinds, strict=True):
        if kind != expected:
            return (
                f"{names[number]}: example {row} is {kind[0]} with target {kind[1]}, "
                f"but example {item} of {names[first]} is {expected[0]} with target {expected[1]}"
            )
    return f"{names[first]}: examples such as {expected[0]} with target {expected[1]} cannot be put into a batch"


def kind_of(value: Any) -> str:
    """What somebody's input or target is, in words."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {kind_of(part)}" for key, part in value.items()) + "}"
    if isinstance(value, tuple | list):
        shown = ", ".join(kind_of(part) for part in value[:4]) + (", …" if len(value) > 4 else "")
        return f"{len(value)} things ({shown})"
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return f"a {type(value).__name__}"
