"""What a client tells of its table instead of its rows: counts, sums, sums of squares, and categories with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.federation import ClientData, Examples
from fedrelay.data.sources.checks import wrong
from fedrelay.data.tables.table import Column, Kind, Table, shown
from fedrelay.errors import BadInput
from fedrelay.types import Baton, Report, Result, Tree, Visit, Work

MOST_CATEGORIES = 100
LONGEST_CATEGORY = 80
FREE_FROM = 20
"""A column of more different texts than this, most of them in one row only, is free text (names, notes)."""


@dataclass(frozen=True)
class TableStatistics(Work):
    """Of every column of the client's table: how many values, their sum and the sum of squared deviations from their
    mean, or its categories and how many rows have each; and the same of its labels. No row leaves the client, nor does
    free text.

    Only the rows that are trained on count (`visit.client.rows`); categories and labels that occur only in other rows
    are told with a count of 0, so that they are known.
    """

    declared: tuple[str, ...] = ()
    """Columns that are categories however many texts they have."""
    most: int = MOST_CATEGORIES
    classes: bool = True
    """Whether labels are classes, which must be known; of numbers to predict nothing is told."""

    @property
    def reads_model(self) -> bool:
        return False

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        table, rows = visit.client.table, visit.client.rows.numpy()
        if table is None:
            raise BadInput("statistics of a table need a client that has one")
        uplink: Tree = {
            "rows": len(rows),
            "columns": {name: self.column(table.name, name, column, rows) for name, column in table.columns.items()},
            "labels": {} if table.labels is None or not self.classes else labels(table.name, table.labels, rows),
        }
        return baton, visit.memory, Report(visit.client.id, 0, uplink=uplink)

    def column(self, client: str, name: str, column: Column, rows: NDArray[np.int64]) -> dict[str, Any]:
        """What is told of one column."""
        if column.kind == "category":
            counts = counted(column, rows)
            if name in self.declared or self.few(counts):
                return {"kind": "category", "counts": counts}
            return {"kind": "text", "different": len(counts)}
        values = column.values[rows]
        values = values[~np.isnan(values)]
        if np.isinf(values).any():
            found = f"{int(np.isinf(values).sum())} of {len(rows)} that are infinite"
            raise wrong(client, f"finite values in column {name!r}", found)
        mean = float(values.mean()) if len(values) else 0.0
        # Squares of deviations, not of the values: they say the same, and lose no digits where the mean is large.
        squares = float(np.square(values - mean).sum())
        told = {"kind": column.kind, "count": len(values), "sum": mean * len(values), "squares": squares}
        return told if column.kind == "number" else told | {"day_first": column.day_first}

    def few(self, counts: Mapping[str, int]) -> bool:
        """Whether texts are categories."""
        if len(counts) > self.most or any(len(word) > LONGEST_CATEGORY for word in counts):
            return False
        return len(counts) <= FREE_FROM or len(counts) <= sum(counts.values()) / 2


def counted(column: Column, rows: NDArray[np.int64]) -> dict[str, int]:
    """How many of these rows have each of the column's texts, in the order of the alphabet."""
    counts = Counter(word for word in column.values[rows] if word is not None)
    return {word: counts[word] for word in sorted({word for word in column.values if word is not None})}


def labels(client: str, column: Column, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Which labels there are, and how many rows have each."""
    if column.kind == "category":
        return {"kind": "category", "counts": counted(column, rows)}
    fraction = column.values % 1 != 0
    if column.kind == "date" or fraction.any():
        found = "dates" if column.kind == "date" else "numbers with a fraction"
        raise wrong(client, "labels to be whole numbers or texts", found)
    numbers = Column("category", np.array([str(int(value)) for value in column.values], dtype=object))
    return {"kind": "number", "counts": counted(numbers, rows)}


def clients_of(tables: Sequence[Table], rows: Sequence[NDArray[np.int64]]) -> Iterator[ClientData]:
    """Clients that have nothing but a table, and are going to train on these rows of it."""
    nothing = Examples(torch.empty(0), torch.empty(0, dtype=torch.int64))
    for number, (table, mine) in enumerate(zip(tables, rows, strict=True)):
        yield ClientData(number, nothing, torch.from_numpy(mine), table)


@dataclass(frozen=True)
class Numbers:
    """A column of numbers or dates over all clients."""

    kind: Kind
    count: int
    mean: float
    squares: float
    """The sum of squared deviations from the mean."""
    day_first: bool | None = None
    """How dates were read that can be read in two ways, if all clients read them so."""

    @property
    def constant(self) -> bool:
        """Whether all values are the same, but for rounding (as scikit-learn's scaler judges it)."""
        epsilon = float(np.finfo(np.float64).eps)
        variance = self.squares / max(self.count, 1)
        return variance <= self.count * epsilon * variance + (self.count * self.mean * epsilon) ** 2


@dataclass(frozen=True)
class Statistics:
    """What all clients told, put together."""

    rows: int
    numbers: Mapping[str, Numbers]
    categories: Mapping[str, Mapping[str, int]]
    label_kind: str
    label_counts: Mapping[str, int] = field(default_factory=dict)


def merged(where: str, told: Mapping[str, Tree], declared: Sequence[str] = ()) -> Statistics:
    """The statistics of the pooled table, from those of every client by its name; clients that do not fit together are
    refused by name, and so are categories that are few at every client but many in all, unless they are declared."""
    columns = list(next(iter(told.values()))["columns"])
    numbers: dict[str, Numbers] = {}
    categories: dict[str, dict[str, int]] = {}
    for name in columns:
        each = {client: tree["columns"][name] for client, tree in told.items()}
        kind = agreed(where, name, each)
        if kind == "category":
            found = summed(part["counts"] for part in each.values() if part["kind"] == "category")
            if len(found) > MOST_CATEGORIES and name not in declared:
                raise BadInput(
                    f"{where}: column {name!r} has {len(found)} categories over all clients, each of which would be an "
                    f"input: leave it out of `features`, or say categories = [{name!r}] if that is meant"
                )
            categories[name] = found
        else:
            numbers[name] = pooled(kind, [part for part in each.values() if part["kind"] == kind])
    labelled, counts = merged_labels(where, {client: tree["labels"] for client, tree in told.items() if tree["labels"]})
    return Statistics(sum(tree["rows"] for tree in told.values()), numbers, categories, labelled, counts)


def pooled(kind: Kind, parts: Sequence[Tree]) -> Numbers:
    """Mean and squared deviations of all values, from those of the clients."""
    count = sum(part["count"] for part in parts)
    mean = sum(part["sum"] for part in parts) / max(count, 1)
    between = sum(part["count"] * (part["sum"] / part["count"] - mean) ** 2 for part in parts if part["count"])
    orders = {part.get("day_first") for part in parts} - {None}
    order = next(iter(orders)) if len(orders) == 1 else None
    return Numbers(kind, count, mean, sum(part["squares"] for part in parts) + between, order)


def summed(parts: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return {word: total[word] for word in sorted(total)}


def agreed(where: str, name: str, parts: Mapping[str, Tree]) -> Kind:
    """What a column is for all clients; who has nothing in it agrees with everybody."""
    clients: dict[str, list[str]] = {}
    for client, part in parts.items():
        filled = part["kind"] == "text" or part.get("count") or part.get("counts")
        if filled:
            clients.setdefault(part["kind"], []).append(client)
    if "text" in clients:
        most = max(part["different"] for part in parts.values() if part["kind"] == "text")
        raise BadInput(
            f"{where}: column {name!r} is free text ({most} different texts at {clients['text'][0]}), which no client "
            f"sends: leave it out of `features`, or say what it is: numbers, dates or categories = [{name!r}]"
        )
    if len(clients) > 1:
        found = " and ".join(f"{kind} at {shown(names, 3)}" for kind, names in clients.items())
        hint = f"mend it, or say what it is: numbers, dates or categories = [{name!r}]"
        raise wrong(where, f"column {name!r} to be the same at every client", f"{found}; {hint}")
    kinds = [*clients] or sorted({part["kind"] for part in parts.values()}, reverse=True)
    return cast("Kind", kinds[0])


def merged_labels(where: str, parts: Mapping[str, Tree]) -> tuple[str, dict[str, int]]:
    """All labels with their counts. Clients that write them differently are refused."""
    clients: dict[str, list[str]] = {}
    for client, part in parts.items():
        clients.setdefault({"number": "whole numbers", "category": "texts"}[part["kind"]], []).append(client)
    if len(clients) > 1:
        found = " and ".join(f"{kind} at {shown(names, 3)}" for kind, names in clients.items())
        raise wrong(where, "labels to be written alike at every client", found)
    counts = summed(part["counts"] for part in parts.values())
    folded: dict[str, list[str]] = {}
    for word in counts:
        folded.setdefault(" ".join(word.split()).casefold(), []).append(word)
    for words in folded.values():
        if len(words) > 1:
            owners = [next(client for client, part in parts.items() if word in part["counts"]) for word in words]
            found = " and ".join(f"{word!r} at {owner}" for word, owner in zip(words, owners, strict=True))
            raise wrong(where, "labels to be written alike at every client", found)
    return next(iter(parts.values()))["kind"] if parts else "category", counts
