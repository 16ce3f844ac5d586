"""A federation of a Hugging Face data set, or of a flwr-datasets partitioner over one. Neither is imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Federation
from fedrelay.data.own.arrays import Pair, from_arrays
from fedrelay.data.partitions.apportion import grouped
from fedrelay.data.sources.checks import check_clients, wrong
from fedrelay.data.sources.pictures import depth_of, pixels
from fedrelay.errors import BadInput

INPUTS = ("image", "img", "x", "pixels", "input_ids", "tokens", "features")
TOKENS = ("input_ids", "tokens")
TARGETS = ("label", "labels", "y", "fine_label", "target", "targets", "character")


class Partitioner(Protocol):
    """What is used of a partitioner of flwr-datasets."""

    @property
    def num_partitions(self) -> int: ...

    def load_partition(self, partition_id: int) -> Any: ...


def from_dataset(
    dataset: Any,
    *,
    client: str,
    x: str | None = None,
    y: str | None = None,
    test: Any = 0.2,
    size: int | None = None,
    background: str | None = None,
    tokens: bool | None = None,
    name: str = "dataset",
) -> Federation:
    """A federation of a Hugging Face `datasets` object, by the column `client`.

    `x` and `y` are the columns of inputs and targets, found where they have one of the usual names. Images of
    different sizes need a `size`, transparent ones a `background`. Whole numbers are features, unless their column is
    called `input_ids` or `tokens`, or `tokens` says so. `test` is another such object, or the share that is held out
    of every client; of a DatasetDict the parts train and (where there is one) test are taken.
    """
    if isinstance(dataset, Mapping):
        if "train" not in dataset:
            raise wrong(name, "a part 'train'", f"only {', '.join(map(repr, dataset))}")
        dataset, test = dataset["train"], dataset.get("test", test)
    columns = _Columns.of(name, dataset, x, y)
    columns = replace(columns, size=size, background=background, tokens=columns.tokens if tokens is None else tokens)
    _need(name, dataset, client)
    inputs, targets = columns.read(dataset)
    column = dataset[client][:]
    if empty := sum(owner is None or not str(owner).strip() for owner in column):
        raise wrong(name, f"a client in every row of column {client!r}", f"{empty} empty")
    clients, owners = np.unique([str(owner) for owner in column], return_inverse=True)
    mine = zip(clients, grouped(owners, len(clients)), strict=True)
    return columns.federation({str(owner): (inputs[rows], targets[rows]) for owner, rows in mine}, test)


def from_partitioner(
    partitioner: Partitioner,
    *,
    x: str | None = None,
    y: str | None = None,
    test: Any = 0.2,
    size: int | None = None,
    background: str | None = None,
    tokens: bool | None = None,
    name: str = "partitioner",
) -> Federation:
    """A federation of the partitions of a flwr-datasets partitioner that has been given its `dataset`."""
    parts = [partitioner.load_partition(place) for place in range(partitioner.num_partitions)]
    names = [f"partition {place}" for place in range(len(parts))]
    if not parts:
        raise wrong(name, "at least one partition", "none")
    check_clients(name, names, [len(part) for part in parts])
    columns = _Columns.of(name, parts[0], x, y)
    columns = replace(columns, size=size, background=background, tokens=columns.tokens if tokens is None else tokens)
    return columns.federation({each: columns.read(part) for each, part in zip(names, parts, strict=True)}, test)


@dataclass(frozen=True)
class _Columns:
    """Which columns are read, and how."""

    name: str
    x: str
    y: str
    class_names: tuple[str, ...]
    tokens: bool
    images: bool
    size: int | None = None
    background: str | None = None

    @classmethod
    def of(cls, name: str, dataset: Any, x: str | None, y: str | None) -> _Columns:
        inputs, targets = _chosen(name, dataset, x, INPUTS), _chosen(name, dataset, y, TARGETS)
        names = getattr(dataset.features[targets], "names", None) or ()
        images = hasattr(dataset.features[inputs], "decode_example")
        return cls(name, inputs, targets, tuple(names), inputs in TOKENS, images)

    def read(self, dataset: Any) -> Pair:
        """Inputs and targets of a data set with these columns."""
        for column in (self.x, self.y):
            _need(self.name, dataset, column)
        plain = dataset.with_format(None)
        targets = list(plain[self.y][:])
        if any(isinstance(target, str) for target in targets):
            hint = f"encode them with dataset.class_encode_column({self.y!r})"
            raise wrong(self.name, f"column {self.y!r} to be numbers", f"texts; {hint}")
        return self._inputs(list(plain[self.x][:])), np.array(targets)

    def _inputs(self, values: Sequence[Any]) -> NDArray[Any]:
        missing = sum(value is None for value in values)
        if missing:
            raise wrong(self.name, f"a value in every row of column {self.x!r}", f"{missing} of {len(values)} empty")
        if values and hasattr(values[0], "convert"):
            return self._pixels(values)
        try:
            return np.array(values)
        except ValueError as error:
            raise wrong(self.name, f"column {self.x!r} to have rows of one length", f"others ({error})") from None

    def _pixels(self, images: Sequence[Any]) -> NDArray[Any]:
        """Images of one depth: grey ones in bytes if all are, else in colour; deep ones (16 bits) as they are."""
        depths = Counter(depth_of(image) for image in images)
        if len(depths) > 1:
            found = f"{depths['bytes']} of 8 bits and {depths['deep']} grey ones with more"
            raise wrong(self.name, f"images of one depth in column {self.x!r}", found)
        if self.size is None and len(sizes := {image.size for image in images}) > 1:
            raise wrong(self.name, "images of one size (or a `size` to scale them to)", f"{len(sizes)} sizes")
        mode = "L" if all(image.mode in ("1", "L") for image in images) else "RGB"
        where = f"{self.name}: column {self.x!r}"
        return np.stack(
            [pixels(f"{where}, row {row}", each, self.size, self.background, mode) for row, each in enumerate(images)]
        )

    def federation(self, pairs: Mapping[str, Pair], test: Any) -> Federation:
        tested = test if isinstance(test, int | float) else self.read(test)
        return from_arrays(
            pairs,
            test=tested,
            name=self.name,
            class_names=self.class_names,
            tokens=self.tokens,
            levels="range" if self.images else None,
        )


def _chosen(name: str, dataset: Any, given: str | None, usual: Sequence[str]) -> str:
    if given is not None:
        _need(name, dataset, given)
        return given
    found = next((column for column in usual if column in dataset.column_names), None)
    if found is None:
        there = ", ".join(dataset.column_names)
        raise BadInput(f"{name}: none of the columns {there} has a usual name ({', '.join(usual)}): say which it is")
    return found


def _need(name: str, dataset: Any, column: str) -> None:
    if column not in dataset.column_names:
        raise wrong(name, f"a column {column!r}", f"only {', '.join(map(repr, dataset.column_names))}")
