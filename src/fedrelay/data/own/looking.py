"""The first reading of clients' data sets: whether they can be read and are alike, and what their targets are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from fedrelay.data.nests import Nest, form, joined, mapped, named
from fedrelay.data.sources.checks import wrong
from fedrelay.data.sources.tokens import NOTHING
from fedrelay.data.stores.datasets import Collate, checked_batch, read

CHUNK = 64
"""So many examples are read at once."""


@dataclass(frozen=True)
class Opened:
    """A client's data set, or that of a test part, with its length."""

    name: str
    dataset: Any
    size: int


def opened(name: str, dataset: Any, most: int) -> Opened:
    """A data set that can be read; one that is empty or does not end is refused."""
    if isinstance(dataset, DataLoader):
        raise wrong(name, "a Dataset", "a DataLoader; from_loaders takes those")
    if isinstance(dataset, Mapping | str) or not any(hasattr(dataset, way) for way in ("__getitem__", "__iter__")):
        raise wrong(name, "a torch.utils.data.Dataset", f"a {type(dataset).__name__}")
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        dataset = listed(name, dataset, most)
    if not len(dataset):
        raise wrong(name, "at least one example", "an empty data set")
    return Opened(name, dataset, len(dataset))


def listed(name: str, dataset: Any, most: int) -> list[Any]:
    """The items of a data set that can only be gone through."""
    if not hasattr(dataset, "__iter__"):
        raise wrong(name, "a data set with a length", f"{type(dataset).__name__} without __len__")
    items = list(islice(iter(dataset), most + 1))
    if len(items) > most:
        raise wrong(name, f"an end after at most {most} examples", "more; say most = … if there really are that many")
    return items


@dataclass(frozen=True)
class Look:
    """What was found: all targets, a batch of one as a sample, the form of inputs and targets, and, if they are to be
    kept, all inputs as they are stored."""

    y: Nest
    sample: Nest
    kind: tuple[str, str]
    x: Nest | None = None


def look_at(sets: Sequence[Opened], collate: Collate | None, *, keep: bool) -> list[Look]:
    """Read everything once; clients whose examples are unlike the first one's are refused by name."""
    found: list[Look] = []
    for one in sets:
        found.append(look(one, collate, keep=keep))
        if found[-1].kind != found[0].kind:
            (inputs, targets), (others, other_targets) = found[0].kind, found[-1].kind
            raise wrong(
                one.name,
                f"inputs {inputs} and targets {targets} as in {sets[0].name}",
                f"inputs {others} and targets {other_targets}",
            )
    return found


def look(one: Opened, collate: Collate | None, *, keep: bool) -> Look:
    """Read one data set."""
    inputs, targets, kind, start = [], [], None, 0
    for x, y in chunks(one, collate):
        check_finite(one.name, x, start)
        here = (form(x), form(y)) if collate is None else (loose_form(x), loose_form(y))
        if kind is None:
            kind, sample = here, mapped(x, lambda part: part[:1].clone())
        elif here != kind:
            expected = f"inputs {kind[0]} and targets {kind[1]} everywhere"
            raise wrong(one.name, expected, f"inputs {here[0]} and targets {here[1]} from example {start} on")
        targets.append(y)
        start += CHUNK
        if keep:
            inputs.append(mapped(x, as_stored))
    assert kind is not None
    return Look(joined(targets, padded), sample, kind, joined(inputs) if keep else None)


def chunks(one: Opened, collate: Collate | None) -> Iterator[tuple[Nest, Nest]]:
    """All examples in order."""
    if in_memory_already(one.dataset) and collate is None:
        yield checked_batch(one.dataset.tensors, one.size, one.name)
        return
    for start in range(0, one.size, CHUNK):
        where = [(0, item) for item in range(start, min(start + CHUNK, one.size))]
        yield read([one.dataset], [one.name], where, collate=collate, rng=None)


def in_memory_already(dataset: Any) -> bool:
    """Whether a data set is inputs and targets in memory and nothing else."""
    return type(dataset) is TensorDataset and len(dataset.tensors) == 2


def as_stored(part: torch.Tensor) -> torch.Tensor:
    """Images with their channels last, as `Examples` has them."""
    return part.permute(0, 2, 3, 1) if part.ndim == 4 else part


def loose_form(nest: Nest) -> str:
    """What a collate may not change from batch to batch: types and numbers of dimensions, but not lengths."""
    parts = [f"{name} with {part.ndim - 1} dimensions of {part.dtype}".strip() for name, part in named(nest)]
    return ", ".join(parts)


def padded(parts: list[torch.Tensor]) -> torch.Tensor:
    """Targets of all batches; sequences of several lengths are filled up with what does not count."""
    if parts[0].ndim == 2 and not parts[0].is_floating_point():
        longest = max(part.shape[1] for part in parts)
        parts = [functional.pad(part, (0, longest - part.shape[1]), value=NOTHING) for part in parts]
    return torch.cat(parts)


def check_finite(name: str, x: Nest, start: int) -> None:
    """Refuse values that are not numbers, with the first example that has some."""
    for where, part in named(x):
        good = torch.isfinite(part)
        if not bool(good.all()):
            first = start + int((~good.reshape(len(part), -1).all(1)).nonzero()[0])
            what = f"finite numbers in {where}" if where else "finite numbers"
            raise wrong(name, what, f"NaN or infinite ones in example {first}")
