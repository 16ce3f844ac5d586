"""A table whose columns have kinds: what a client has before anything is prepared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["number", "date", "category"]


@dataclass(frozen=True)
class Column:
    """Numbers and dates (in days since 1970) are float64 with NaN for gaps, categories are texts with None for gaps."""

    kind: Kind
    values: NDArray[Any]
    day_first: bool | None = None
    """Of dates that could be read in two ways: how they were read."""

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Where there is a value."""
        if self.kind == "category":
            return np.array([value is not None for value in self.values], dtype=bool)
        return np.asarray(~np.isnan(self.values), dtype=bool)

    def take(self, rows: NDArray[Any]) -> Column:
        return replace(self, values=self.values[rows])


def empty(kind: Kind, rows: int) -> Column:
    """A column of gaps."""
    if kind == "category":
        return Column(kind, np.full(rows, None, dtype=object))
    return Column(kind, np.full(rows, np.nan))


@dataclass(frozen=True)
class Table:
    """The rows of one client (or of a test part): inputs by name, and labels, where there are some."""

    name: str
    rows: int
    columns: Mapping[str, Column]
    labels: Column | None = None

    def take(self, rows: NDArray[Any], name: str | None = None) -> Table:
        """Some of the rows, by place or by a mask."""
        columns = {key: column.take(rows) for key, column in self.columns.items()}
        count = int(rows.sum()) if rows.dtype == bool else len(rows)
        labels = None if self.labels is None else self.labels.take(rows)
        return Table(self.name if name is None else name, count, columns, labels)


@dataclass(frozen=True)
class Declared:
    """What the user says of columns, where it is not to be found out."""

    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    day_first: bool | None = None
    """Whether 03/04/2026 is in April; None: to be found out."""

    def kind(self, name: str) -> Kind | None:
        """As declared; None: to be found out."""
        kinds: dict[Kind, Sequence[str]] = {"number": self.numbers, "category": self.categories, "date": self.dates}
        return next((kind for kind, names in kinds.items() if name in names), None)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.numbers, *self.categories, *self.dates)


def shown(values: Iterable[object], most: int = 5) -> str:
    """A few of them, for a message."""
    named = [repr(value) for value in values]
    return ", ".join(named[:most]) + (" …" if len(named) > most else "")
