"""Examples once in memory; clients are index views into them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay import seeds
from fedrelay.errors import BadInput

if TYPE_CHECKING:
    from fedrelay.data.tables.preparation import Preparation
    from fedrelay.data.tables.table import Table

Rows = NDArray[np.int64]


class Transform(Protocol):
    """Turns stored rows into what a network takes; `rng` is None outside training (no augmentation then).

    One that never draws may say so with `draws = False`: its rows can then be taken in any company.
    """

    def __call__(self, x: torch.Tensor, rng: np.random.Generator | None, /) -> torch.Tensor: ...


@dataclass(frozen=True)
class Examples:
    """Inputs and targets. Images are stored as (n, height, width, channels) and taken as channels-last (n, c, h, w)."""

    x: torch.Tensor
    y: torch.Tensor
    transform: Transform | None = None

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise BadInput(f"{len(self.x)} inputs but {len(self.y)} targets: there must be one target per input")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input, as the network sees it."""
        shape = tuple(self.x.shape[1:])
        return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape

    @property
    def form(self) -> str:
        """What one input is, in words."""
        return f"{self.shape} of {str(self.x.dtype).removeprefix('torch.')}"

    def take(
        self, rows: torch.Tensor | slice, rng: np.random.Generator | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The batch of these rows, ready for the network."""
        if isinstance(rows, slice):
            x, y = self.x[rows], self.y[rows]
        else:  # several times quicker than indexing
            x, y = self.x.index_select(0, rows), self.y.index_select(0, rows)
        if self.transform is not None:
            x = self.transform(x, rng)
        if x.ndim == 4:
            x = x.permute(0, 3, 1, 2)
        return x, y

    @property
    def draws(self) -> bool:
        """Whether taking the same rows twice may give two things, because they are augmented."""
        return self.transform is not None and getattr(self.transform, "draws", True)

    def batches(self, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All examples in order, in batches of at most `size`, without augmentation."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """One class per example, as NumPy (partitions and pictures use it)."""
        if self.y.ndim != 1:
            raise BadInput(f"these examples have targets of shape {tuple(self.y.shape[1:])}, not one class each")
        return self.y.numpy().astype(np.int64)


@dataclass(frozen=True)
class Sent:
    """Messages and bytes to and from the server."""

    messages: tuple[int, int] = (0, 0)
    bytes: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Source:
    """A data set before it is split. `owners` says, where it is known, who made each training example (0, 1, 2, …)."""

    name: str
    train: Examples
    test: Examples
    classes: int
    owners: Rows | None = None
    owner_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    public: Examples | None = None
    """Exemplars held out of the test set, which the server may use to get to know clients (never to train)."""
    test_owners: Rows | None = None
    """Where it is known, who made each test example."""
    preparation: Preparation | None = None
    """How a table became inputs: what is needed to use the model on other rows."""
    prepared: Sent = Sent()
    """What it took to find out how the data is prepared, from all clients, before there was a model."""
    notes: tuple[str, ...] = ()
    """What there is to say of how it was read: what was left out, and why."""


class Partition(Protocol):
    """How a source becomes clients: one array of training rows per client. A frozen dataclass."""

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> list[Rows]: ...


@dataclass(frozen=True)
class ClientData:
    """One client's view: `rows` of examples that everybody shares."""

    id: int
    examples: Examples
    rows: torch.Tensor
    table: Table | None = None
    """Before the data is prepared: the client's own table, of which `rows` are trained on."""

    @property
    def size(self) -> int:
        return len(self.rows)

    def take(self, positions: torch.Tensor, rng: np.random.Generator | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The batch at these positions of the client's own examples."""
        return self.examples.take(self.rows.index_select(0, positions), rng)


@dataclass(frozen=True, repr=False)
class Federation:
    """All clients over one data set: client i owns `order[starts[i]:starts[i + 1]]`."""

    source: Source
    order: torch.Tensor
    starts: torch.Tensor
    test_order: torch.Tensor | None = None
    test_starts: torch.Tensor | None = None
    """With `test_order`: which rows of the test set are each client's own test part, where a paper has one."""

    @classmethod
    def of(cls, source: Source, rows: Sequence[Rows]) -> Federation:
        """From one array of training rows per client; a client with no examples is refused with its number."""
        if not len(rows):
            raise BadInput("a federation needs at least one client")
        sizes = np.array([len(r) for r in rows], dtype=np.int64)
        if (sizes == 0).any():
            empty = np.flatnonzero(sizes == 0)
            named = ", ".join(map(str, empty[:10])) + (" …" if len(empty) > 10 else "")
            raise BadInput(
                f"client {named} has no examples ({len(empty)} of {len(rows)} clients are empty): "
                "ask for fewer clients or another partition"
            )
        starts = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
        return cls(source, torch.from_numpy(np.concatenate(rows).astype(np.int64)), starts)

    @classmethod
    def split(cls, source: Source, partition: Partition, clients: int | None = None, seed: int = 0) -> Federation:
        """The source cut into clients by a partition, deterministic from the seed."""
        return cls.of(source, partition(source, clients, seeds.rng(seed, "partition")))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        source, sizes = self.source, sorted(self.sizes)
        test = len(self.test) if self.test_order is None else len(self.test_order)
        named = ", ".join(source.class_names[:8]) + (", …" if len(source.class_names) > 8 else "")
        names = ", ".join(self.names[:6]) + (", …" if len(self) > 6 else "")
        return (
            f"Federation of {source.name}: {len(self)} clients, {sum(sizes)} examples to train on, {test} to test on\n"
            f"  inputs   {source.train.form}\n"
            f"  classes  {source.classes}{': ' if named else ''}{named}\n"
            f"  sizes    {sizes[0]} to {sizes[-1]}, the median {np.median(sizes):.10g}\n"
            f"  clients  {names}"
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What every client is called: as the owner of all its examples, where that is known; each name only once."""
        source, owners = self.source, self.source.owners
        names = [f"client {number}" for number in range(len(self))]
        if owners is None or not source.owner_names:
            return tuple(names)
        mine = owners[self.order.numpy()]
        starts = self.starts.numpy()[:-1]
        first, last = np.minimum.reduceat(mine, starts), np.maximum.reduceat(mine, starts)
        known = {number: source.owner_names[first[number]] for number in np.flatnonzero(first == last)}
        often = Counter(known.values())
        for number, name in known.items():
            names[number] = name if often[name] == 1 else f"{name} ({number})"
        return tuple(names)

    def client(self, index: int) -> ClientData:
        if not 0 <= index < len(self):
            raise BadInput(f"there is no client {index}: this federation has clients 0 to {len(self) - 1}")
        first, last = int(self.starts[index]), int(self.starts[index + 1])
        return ClientData(index, self.source.train, self.order[first:last])

    def client_test(self, index: int) -> ClientData:
        """The client's own test part; it may be empty."""
        if self.test_order is None or self.test_starts is None:
            raise BadInput("the clients of this federation have no test part of their own: give them one first")
        if not 0 <= index < len(self):
            raise BadInput(f"there is no client {index}: this federation has clients 0 to {len(self) - 1}")
        first, last = int(self.test_starts[index]), int(self.test_starts[index + 1])
        return ClientData(index, self.source.test, self.test_order[first:last])

    @property
    def evaluated(self) -> Examples:
        """What the model is tested on: all test parts of clients that have them, otherwise the whole test set."""
        if self.test_order is None:
            return self.test
        return replace(self.test, x=self.test.x[self.test_order], y=self.test.y[self.test_order])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of who has which examples: two splits with the same one are the same split."""
        digest = hashlib.sha256()
        for rows in (self.order, self.starts, self.test_order, self.test_starts):
            if rows is not None:
                digest.update(rows.numpy().astype("<i8").tobytes())
        return digest.hexdigest()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of examples of every client."""
        return tuple(torch.diff(self.starts).tolist())

    @property
    def test(self) -> Examples:
        return self.source.test

    def label_counts(self) -> NDArray[np.int64]:
        """How many examples of each class every client has: (clients, classes)."""
        labels = self.source.train.labels[self.order.numpy()]
        client = np.repeat(np.arange(len(self)), self.sizes)
        counts = np.zeros((len(self), self.source.classes), dtype=np.int64)
        np.add.at(counts, (client, labels), 1)
        return counts

    def classes_of_clients(self) -> NDArray[np.bool_] | None:
        """Which client has examples of which class: (clients, classes); None where examples have no one class."""
        return self.label_counts() > 0 if self.source.train.y.ndim == 1 and self.source.classes > 1 else None

    def pooled(self) -> Federation:
        """The same examples as one client: the centralised reference."""
        return Federation(self.source, self.order, torch.tensor([0, len(self.order)]))
