"""From the examples of all clients, one after another, to a federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedrelay.data.examples import Store
from fedrelay.data.federation import Federation, Rows, Source
from fedrelay.data.partitions.basic import Natural
from fedrelay.data.sources.checks import wrong
from fedrelay.data.sources.images import held_out
from fedrelay.data.sources.tokens import NOTHING
from fedrelay.errors import within


@dataclass(frozen=True)
class Parts:
    """All examples in one store: those of the first client, of the second, …, and then those of the test parts."""

    store: Store
    names: Sequence[str]
    sizes: Sequence[int]
    test_sizes: Sequence[int] = ()
    test_owners: Sequence[int] = ()
    """Whose the test parts are, where that is known."""

    @property
    def owners(self) -> Rows:
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def assembled(
    name: str, parts: Parts, *, share: float | None, classes: int | None, class_names: Sequence[str]
) -> Federation:
    """The federation of these clients. With a share, so much of every client is held out to test on."""
    owners, total = parts.owners, sum(parts.sizes)
    kept, test_owners = np.arange(total), None
    if share is None:
        held = np.arange(total, total + sum(parts.test_sizes))
        if len(parts.test_owners):
            test_owners = np.repeat(np.array(parts.test_owners), parts.test_sizes)
    else:
        within("test", share, above=0, most=0.9)
        kept, held = held_out(owners, share, name)
        test_owners = owners[held]
        if not len(held):
            raise wrong(name, "some client with two examples, to test on one", "none; give a test part")
    source = Source(
        name,
        train=parts.store.picked(torch.from_numpy(kept)),
        test=parts.store.picked(torch.from_numpy(held)),
        classes=count_of(parts, classes, class_names),
        owners=owners[kept],
        owner_names=tuple(parts.names),
        class_names=tuple(map(str, class_names)),
        test_owners=test_owners,
    )
    return Federation.split(source, Natural())


def count_of(parts: Parts, classes: int | None, class_names: Sequence[str]) -> int:
    """The number of classes: as given, or one more than the largest; of numbers to predict, how many there are."""
    y = parts.store.y
    if not isinstance(y, torch.Tensor):
        return classes or len(class_names) or 1
    if y.is_floating_point() or parts.store.target == "labels":
        return classes or len(class_names) or (int(y.shape[1]) if y.ndim > 1 else 1)
    classes = classes or len(class_names) or int(y.max()) + 1
    if class_names and len(class_names) != classes:
        raise wrong(parts.names[0], f"{classes} names of classes", f"{len(class_names)}")
    outside = ((y < 0) | (y >= classes)) & ~((y == NOTHING) & (y.ndim > 1))
    rows = outside.flatten(1).any(1) if y.ndim > 1 else outside
    if bool(rows.any()):
        first = int(rows.nonzero()[0])
        names = [*parts.names, *(f"test part {number}" for number in range(len(parts.test_sizes)))]
        ends = np.cumsum([*parts.sizes, *parts.test_sizes])
        where = names[int(np.searchsorted(ends, first, side="right"))]
        raise wrong(where, f"classes from 0 to {classes - 1}", f"others; {int(outside.sum())} in all are outside")
    return classes
