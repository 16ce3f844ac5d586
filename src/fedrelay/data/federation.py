"""Examples once for all; clients are index views into them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, overload

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay import seeds
from fedrelay.data.examples import Examples as Examples
from fedrelay.data.examples import Store as Store
from fedrelay.data.examples import Transform as Transform
from fedrelay.data.nests import Nest
from fedrelay.errors import BadInput
from fedrelay.system.sequences import Integers, Long, Numbered, narrow

if TYPE_CHECKING:
    from fedrelay.data.tables.preparation import Preparation
    from fedrelay.data.tables.table import Table

Rows = NDArray[np.int64]

BLOCK = 1 << 20
"""So many rows are hashed at a time."""


@dataclass(frozen=True)
class Sent:
    """Messages and bytes to and from the server."""

    messages: tuple[int, int] = (0, 0)
    bytes: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Source:
    """A data set before it is split. `owners` says, where it is known, who made each training example (0, 1, 2, …)."""

    name: str
    train: Store
    test: Store
    classes: int
    """How many there are; where targets are labels or numbers, how many of them an example has."""
    owners: Rows | None = None
    owner_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    public: Store | None = None
    """Exemplars held out of the test set, which the server may use to get to know clients (never to train)."""
    test_owners: Rows | None = None
    """Where it is known, who made each test example."""
    preparation: Preparation | None = None
    """How a table became inputs: what is needed to use the model on other rows."""
    prepared: Sent = Sent()
    """What it took to find out how the data is prepared, from all clients, before there was a model."""
    levels: tuple[float, float] | None = None
    """Of deep pictures: the range that all were scaled by, to 0 … 1."""
    notes: tuple[str, ...] = ()
    """What there is to say of how it was read: what was left out, and why."""
    elsewhere: bool = False
    """Whether the training examples are with clients elsewhere: those here only stand for them, and say nothing."""


@dataclass(frozen=True, eq=False, repr=False)
class Parts(Long, Sequence[Rows]):
    """One array of rows per client, all of them in one: part i is `order[starts[i]:starts[i + 1]]`.

    Millions of small arrays would take a hundred bytes each, and seconds to make.
    """

    order: Rows
    starts: Rows

    @classmethod
    def of_sizes(cls, order: Rows, sizes: Rows) -> Parts:
        """An order cut into parts of these sizes."""
        return cls(order, np.concatenate([[0], np.cumsum(sizes)]))

    @property
    def sizes(self) -> Rows:
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, place: int, /) -> Rows: ...
    @overload
    def __getitem__(self, place: slice, /) -> Parts: ...
    def __getitem__(self, place: int | slice, /) -> Rows | Parts:
        chosen = range(len(self))[place]
        if isinstance(chosen, int):
            return self.order[self.starts[chosen] : self.starts[chosen + 1]]
        if chosen.step != 1:
            raise ValueError("parts are cut one after another, not every so many")
        first, last = chosen.start, max(chosen.stop, chosen.start)
        rows = self.order[self.starts[first] : self.starts[last]]
        return Parts(rows, self.starts[first : last + 1] - self.starts[first])

    def sorted(self) -> Parts:
        """The rows of every part in order."""
        sizes = self.sizes
        if not len(self.order):
            return self
        if sizes.min() == sizes.max():  # as a table, which takes least memory
            return Parts(np.sort(self.order.reshape(len(sizes), -1), axis=1).ravel(), self.starts)
        apart = np.repeat(np.arange(len(sizes)) * (int(self.order.max()) + 1), sizes)  # no part reaches into the next
        return Parts(np.sort(self.order + apart) - apart, self.starts)


class Partition(Protocol):
    """How a source becomes clients: one array of training rows per client, in a list or as `Parts`, which is what many
    clients need. A frozen dataclass."""

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Sequence[Rows]: ...


@dataclass(frozen=True)
class ClientData:
    """One client's view: `rows` of examples that everybody shares."""

    id: int
    examples: Store
    rows: torch.Tensor
    table: Table | None = None
    """Before the data is prepared: the client's own table, of which `rows` are trained on."""
    held_out: torch.Tensor | None = None
    """Other rows of the same examples, which the client does not train on but test, where it has some."""

    @property
    def size(self) -> int:
        return self.rows.shape[0]

    def take(self, positions: torch.Tensor, rng: np.random.Generator | None) -> tuple[Nest, Nest]:
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
    validation_rows: torch.Tensor | None = None
    """Training rows that were held out of all clients, so that settings are chosen by them and not by the test set."""

    def __post_init__(self) -> None:
        """Rows that no example has are refused: they may come from a file, and engines take them as they are."""
        train, test = ("training", self.source.train), ("test", self.source.test)
        for rows, (kind, examples) in ((self.order, train), (self.validation_rows, train), (self.test_order, test)):
            if rows is None or not len(rows):
                continue
            least, most = int(rows.min()), int(rows.max())
            if least < 0 or most >= len(examples):
                raise BadInput(
                    f"{self.source.name} has {len(examples)} {kind} examples, numbered from 0, and a client is given "
                    f"row {least if least < 0 else most}"
                )

    @classmethod
    def of(cls, source: Source, rows: Sequence[Rows]) -> Federation:
        """From one array of training rows per client; a client with no examples is refused with its number."""
        if not len(rows):
            raise BadInput("a federation needs at least one client")
        parts = (
            rows if isinstance(rows, Parts) else Parts.of_sizes(np.concatenate(rows), np.array(list(map(len, rows))))
        )
        sizes = parts.sizes
        if (sizes == 0).any():
            empty = np.flatnonzero(sizes == 0)
            named = ", ".join(map(str, empty[:10])) + (" …" if len(empty) > 10 else "")
            raise BadInput(
                f"client {named} has no examples ({len(empty)} of {len(rows)} clients are empty): "
                "ask for fewer clients or another partition"
            )
        return cls(source, torch.from_numpy(narrow(parts.order)), torch.from_numpy(narrow(parts.starts)))

    @classmethod
    def split(cls, source: Source, partition: Partition, clients: int | None = None, seed: int = 0) -> Federation:
        """The source cut into clients by a partition, deterministic from the seed."""
        return cls.of(source, partition(source, clients, seeds.rng(seed, "partition")))

    def __len__(self) -> int:
        return self.starts.shape[0] - 1

    def __repr__(self) -> str:
        source, sizes = self.source, self.sizes
        test = len(self.test) if self.test_order is None else len(self.test_order)
        named = ", ".join(source.class_names[:8]) + (", …" if len(source.class_names) > 8 else "")
        what = {"labels": "labels ", "numbers": "numbers"}.get(source.train.target, "classes")
        names = ", ".join(self.names[:6]) + (", …" if len(self) > 6 else "")
        return (
            f"Federation of {source.name}: {len(self)} clients, {sizes.total} examples to train on, {test} to test on\n"
            f"  inputs   {source.train.form}\n"
            f"  {what}  {source.classes}{': ' if named else ''}{named}\n"
            f"  sizes    {sizes.array.min()} to {sizes.array.max()}, the median {np.median(sizes.array):.10g}\n"
            f"  clients  {names}"
        )

    def _repr_html_(self) -> str:
        from fedrelay.data.picture import in_notebook

        return in_notebook(self)

    @cached_property
    def names(self) -> Sequence[str]:
        """What every client is called: as the owner of all its examples, where that is known; each name only once."""
        source, owners = self.source, self.source.owners
        numbered = Numbered("client", len(self))
        if owners is None or not source.owner_names:
            return numbered
        mine = owners[self.order.numpy()]
        starts = self.starts.numpy()[:-1]
        first, last = np.minimum.reduceat(mine, starts), np.maximum.reduceat(mine, starts)
        known = {number: source.owner_names[first[number]] for number in np.flatnonzero(first == last)}
        often, names = Counter(known.values()), list(numbered)
        for number, name in known.items():
            names[number] = name if often[name] == 1 else f"{name} ({number})"
        return tuple(names)

    @cached_property
    def _arrays(self) -> tuple[Rows, Rows]:
        """`order` and `starts` as NumPy sees them, which is quicker, and every visit asks."""
        return self.order.numpy(), self.starts.numpy()

    def __getstate__(self) -> dict[str, object]:
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def client(self, index: int) -> ClientData:
        if not 0 <= index < len(self):
            raise BadInput(f"there is no client {index}: this federation has clients 0 to {len(self) - 1}")
        order, starts = self._arrays
        rows = order[starts[index] : starts[index + 1]].astype(np.int64)
        return ClientData(index, self.source.train, torch.from_numpy(rows))

    def client_test(self, index: int) -> ClientData:
        """The client's own test part; it may be empty."""
        if self.test_order is None or self.test_starts is None:
            raise BadInput("the clients of this federation have no test part of their own: give them one first")
        if not 0 <= index < len(self):
            raise BadInput(f"there is no client {index}: this federation has clients 0 to {len(self) - 1}")
        first, last = self.test_starts[index : index + 2].tolist()
        return ClientData(index, self.source.test, self.test_order[first:last].long())

    @property
    def evaluated(self) -> Store:
        """What the model is tested on: all test parts of clients that have them, otherwise the whole test set."""
        return self.test if self.test_order is None else self.test.picked(self.test_order)

    @property
    def validation(self) -> Store | None:
        """What settings are chosen by: the examples that were held out of the clients' training data, if some were."""
        return None if self.validation_rows is None else self.source.train.picked(self.validation_rows)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of who has which examples: two splits with the same one are the same split."""
        digest = hashlib.sha256()
        for rows in (self.order, self.starts, self.test_order, self.test_starts):
            if rows is None:
                continue
            for start in range(0, len(rows), BLOCK):  # all at once would take as much again
                digest.update(rows[start : start + BLOCK].numpy().astype("<i8").data)
        return digest.hexdigest()

    @cached_property
    def sizes(self) -> Integers:
        """The number of examples of every client."""
        return Integers.of(torch.diff(self.starts).numpy())

    @property
    def test(self) -> Store:
        return self.source.test

    def label_counts(self) -> NDArray[np.int64]:
        """How many examples of each class every client has: (clients, classes)."""
        labels = self.source.train.labels[self.order.numpy()]
        classes = self.source.classes
        cells = np.repeat(np.arange(len(self)) * classes, self.sizes) + labels
        return np.bincount(cells, minlength=len(self) * classes).reshape(len(self), classes)

    def classes_of_clients(self) -> ClassesOfClients | None:
        """Which client has examples of which class; None where examples have no one class, or it is only the clients
        that know."""
        known = self.source.train.classified and self.source.classes > 1 and not self.source.elsewhere
        return ClassesOfClients(self) if known else None

    def pooled(self) -> Federation:
        """The same examples as one client: the centralised reference."""
        starts = torch.tensor([0, len(self.order)])
        return Federation(self.source, self.order, starts, validation_rows=self.validation_rows)


@dataclass(frozen=True, eq=False)
class ClassesOfClients:
    """Which client has examples of which class, looked up for those who are asked for: (clients, classes)."""

    federation: Federation

    def __getitem__(self, clients: Sequence[int], /) -> NDArray[np.bool_]:
        labels = self.federation.source.train.labels
        found = np.zeros((len(clients), self.federation.source.classes), dtype=bool)
        for place, client in enumerate(clients):
            found[place, labels[self.federation.client(client).rows.numpy()]] = True
        return found
