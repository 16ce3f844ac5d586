"""A federation of the rows of tables: one with a column of clients, or one table for every client."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.federation import Examples, Federation, Source
from fedrelay.data.partitions.apportion import grouped
from fedrelay.data.partitions.basic import Natural
from fedrelay.data.sources.checks import check_some, wrong
from fedrelay.data.sources.images import held_out
from fedrelay.data.survey import exchanged, survey
from fedrelay.data.tables.columns import typed, words
from fedrelay.data.tables.preparation import Preparation
from fedrelay.data.tables.reading import SUFFIXES, Raw, read
from fedrelay.data.tables.statistics import Statistics, TableStatistics, clients_of, merged
from fedrelay.data.tables.table import Declared, Table, shown
from fedrelay.errors import BadInput, within

LOG = logging.getLogger("fedrelay")


def from_table(
    path: Path | str,
    *,
    client: str = "client",
    label: str = "label",
    features: Sequence[str] | None = None,
    test: float | Path | str = 0.2,
    classes: int | None = None,
    numbers: Sequence[str] = (),
    categories: Sequence[str] = (),
    dates: Sequence[str] = (),
    day_first: bool | None = None,
    standardise: bool = True,
    unknown: Literal["refuse", "zeros"] = "refuse",
    target: Literal["classes", "numbers"] = "classes",
) -> Federation:
    """A federation of the rows of a CSV, TSV or Parquet table with a column of clients and one of labels.

    Or of a folder with one such table for every client, named after it.

    Args:
        path: The table, or the folder of tables. Delimiter, decimal comma and encoding are found out.
        client: The column that says whose row it is.
        label: The column of classes: texts or whole numbers. Rows without one are left out and counted.
        features: The columns that are inputs; by default all others.
        test: A table of its own, or the share that is held out of every client.
        classes: How many classes there are, if labels are 0, 1, 2, … and not all of them occur.
        numbers: Columns that are numbers, where this is not to be found out; so too `categories` and `dates`.
        day_first: Whether 03/04/2026 is in April; by default found out, or asked for.
        standardise: Whether numbers and dates get mean 0 and deviation 1.
        unknown: What happens to a category that no client has (in a test table, or in prediction): refused, or taken
            without a category.
        target: "numbers" if the column of labels is a number to predict, not a class. Then nothing is told of it.

    Columns are prepared by federated statistics: clients tell counts, sums and categories, nobody tells rows. What came
    of it is `federation.source.preparation`; it prepares other tables the same way, and can be saved beside a model.
    """
    path, options = Path(path).expanduser(), Options(test, classes, standardise, unknown, target)
    known = (*numbers, label) if target == "numbers" and label not in numbers else tuple(numbers)
    declared = Declared(known, tuple(categories), tuple(dates), day_first)
    wanted = Wanted(path.stem, client, label, features, declared)
    clients = wanted.folder(path) if path.is_dir() else wanted.split(read(path))
    return _federation(wanted, clients, options)


def from_frames(
    frames: Any,
    *,
    client: str = "client",
    label: str = "label",
    features: Sequence[str] | None = None,
    test: Any = 0.2,
    classes: int | None = None,
    numbers: Sequence[str] = (),
    categories: Sequence[str] = (),
    dates: Sequence[str] = (),
    day_first: bool | None = None,
    standardise: bool = True,
    unknown: Literal["refuse", "zeros"] = "refuse",
    target: Literal["classes", "numbers"] = "classes",
    name: str = "frames",
) -> Federation:
    """A federation of a frame of pandas, polars or Arrow with a column of clients, or of a dict with a frame for each.

    A path of a table will do in place of a frame. `test` is another frame or path, or the share that is held out of
    every client. All else is as in `from_table`.
    """
    options = Options(test, classes, standardise, unknown, target)
    known = (*numbers, label) if target == "numbers" and label not in numbers else tuple(numbers)
    declared = Declared(known, tuple(categories), tuple(dates), day_first)
    wanted = Wanted(name, client, label, features, declared)
    if isinstance(frames, Mapping):
        clients = wanted.alike({str(key): read(frame, str(key)) for key, frame in frames.items()})
    else:
        clients = wanted.split(read(frames, name))
    return _federation(wanted, clients, options)


@dataclass(frozen=True)
class Options:
    """What is done with rows once they are read."""

    test: Any
    classes: int | None
    standardise: bool
    unknown: Literal["refuse", "zeros"]
    target: Literal["classes", "numbers"]

    def __post_init__(self) -> None:
        if self.unknown not in ("refuse", "zeros"):
            raise BadInput(f'unknown must be "refuse" or "zeros", not {self.unknown!r}')
        if self.target not in ("classes", "numbers"):
            raise BadInput(f'the target of a table must be "classes" or "numbers", not {self.target!r}')
        if self.target == "numbers" and self.classes is not None:
            raise BadInput("a number to predict has no classes: leave `classes` out")
        if isinstance(self.test, int | float):
            within("test", self.test, above=0, most=0.9)


class _Clients(NamedTuple):
    """Every client's table, with labels in every row, and what there is to say of the reading."""

    tables: tuple[Table, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """Which columns are read, and as what."""

    name: str
    client: str
    label: str
    features: Sequence[str] | None
    declared: Declared

    def table(self, raw: Raw, special: Sequence[str]) -> Table:
        """The columns of a table that was read, typed."""
        others = [name for name in raw.names if name not in special]
        features = others if self.features is None else list(self.features)
        if given := [name for name in special if name in features]:
            raise wrong(raw.name, "`features` without the columns of labels and clients", shown(given))
        missing = [name for name in (*special, *features, *self.declared.names) if name not in raw.names]
        if missing:
            found = f"{len(missing)} missing; there is: {', '.join(raw.names)}"
            raise wrong(raw.name, f"columns {', '.join(map(repr, missing))}", found)
        check_some(raw.name, raw.table.num_rows)
        if not features:
            raise wrong(raw.name, "at least one column of inputs", "none")
        columns = {name: typed(raw, name, self.declared) for name in features}
        return Table(raw.name, raw.table.num_rows, columns, typed(raw, self.label, self.declared))

    def split(self, raw: Raw) -> _Clients:
        """By the column of clients, in the order of the alphabet."""
        table = self.table(raw, [self.client, self.label])
        owners = words(raw, self.client)
        empty = sum(owner is None for owner in owners)
        if empty:
            raise wrong(raw.name, f"a client in every row of column {self.client!r}", f"{empty} empty")
        names, numbers = np.unique(owners.astype(str), return_inverse=True)
        mine = zip(names, grouped(numbers, len(names)), strict=True)
        return _labelled(self.name, [table.take(rows, str(name)) for name, rows in mine], raw.notes)

    def folder(self, path: Path) -> _Clients:
        """One table for every client, named after it; other files are left out."""
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        tables = [file for file in files if file.name.lower().endswith(SUFFIXES)]
        if not tables:
            raise wrong(path, "tables of clients", f"no file that ends in {', '.join(SUFFIXES)}")
        left = [file.name for file in files if file not in tables]
        notes = (f"{len(left)} files are left out, because they are no tables: {shown(left)}",) if left else ()
        return self.alike({file.name.split(".")[0]: read(file, file.name.split(".")[0]) for file in tables}, notes)

    def alike(self, raws: Mapping[str, Raw], notes: tuple[str, ...] = ()) -> _Clients:
        """One table for every client; one with other columns than the first is refused by name."""
        if not raws:
            raise wrong(self.name, "at least one client", "none")
        first, *rest = raws.values()
        for raw in rest if self.features is None else ():
            lacks, more = (
                [name for name in one.names if name not in other.names] for one, other in ((first, raw), (raw, first))
            )
            if lacks or more:
                found = " and ".join(
                    f"{shown(names)} {what}" for names, what in ((lacks, "missing"), (more, "besides")) if names
                )
                hint = "name the columns that all clients have in `features`"
                raise wrong(raw.name, f"the columns of {first.name}", f"{found}; {hint}")
        order = [name for name in first.names if name != self.label] if self.features is None else self.features
        notes += tuple(f"{raw.name}: {note}" for raw in raws.values() for note in raw.notes)
        wanted = Wanted(self.name, self.client, self.label, order, self.declared)
        return _labelled(self.name, [wanted.table(raw, [self.label]) for raw in raws.values()], notes)


def _labelled(name: str, tables: Sequence[Table], notes: tuple[str, ...]) -> _Clients:
    """Without the rows that have no label, which are counted; a client that has nothing else is refused by name."""
    kept: list[Table] = []
    empty: dict[str, int] = {}
    for table in tables:
        assert table.labels is not None
        filled = table.labels.filled
        if not filled.any():
            hint = "leave its rows out of the table"
            raise wrong(table.name, "labels", f"none in all of its {table.rows} rows; {hint}")
        if not filled.all():
            empty[table.name] = int((~filled).sum())
        kept.append(table if filled.all() else table.take(filled))
    if empty:
        where = ", ".join(f"{client} {count}" for client, count in list(empty.items())[:10])
        notes += (
            f"{sum(empty.values())} rows without a label are left out ({where}{' …' if len(empty) > 10 else ''})",
        )
    return _Clients(tuple(kept), notes)


def _federation(wanted: Wanted, clients: _Clients, options: Options) -> Federation:
    """Hold a test part out, let clients tell their statistics, and prepare everything with what came of them."""
    tables, name = clients.tables, wanted.name
    names = tuple(table.name for table in tables)
    owners = np.repeat(np.arange(len(tables)), [table.rows for table in tables])
    train, test = np.arange(len(owners)), np.arange(0)
    if isinstance(options.test, int | float):
        train, test = held_out(owners, float(options.test), name)
        if not len(test):
            raise wrong(name, "some client with two examples, to test on one", "none; give a test part")
    starts = np.cumsum([0, *(table.rows for table in tables)])
    trained = [train[(train >= start) & (train < end)] - start for start, end in pairwise(starts)]
    work = TableStatistics(wanted.declared.categories, classes=options.target == "classes")
    told = [report.uplink for report in survey(work, clients_of(tables, trained))]
    statistics = merged(name, dict(zip(names, told, strict=True)), wanted.declared.categories)
    preparation = prepared_by(wanted, statistics, options)
    x, y = _joined(preparation, tables)
    notes = (*clients.notes, *_notes(preparation))
    test_x, test_y = x[test], y[test]
    if not len(test):
        table, more = test_part(wanted, preparation, statistics.label_kind, options.test)
        (test_x, test_y), notes = _joined(preparation, [table]), (*notes, *more)
    for note in notes:
        LOG.warning("%s: %s", name, note)
    source = Source(
        name,
        train=Examples(torch.from_numpy(x[train]), torch.from_numpy(y[train])),
        test=Examples(torch.from_numpy(test_x), torch.from_numpy(test_y)),
        classes=len(preparation.classes) or 1,
        owners=owners[train],
        owner_names=names,
        class_names=() if counted(preparation.classes) else preparation.classes,
        test_owners=owners[test] if len(test) else None,
        preparation=preparation,
        prepared=exchanged(told, preparation.plain()),  # every client prepares its own rows with it
        notes=notes,
    )
    return Federation.split(source, Natural())


def prepared_by(wanted: Wanted, statistics: Statistics, options: Options) -> Preparation:
    found = Preparation.of(
        statistics,
        label=wanted.label,
        classes=_classes(wanted.name, statistics, options.classes) if options.target == "classes" else (),
        standardise=options.standardise,
        unknown=options.unknown,
    )
    if not found.columns:
        raise wrong(wanted.name, "columns that tell rows apart", f"only constant ones: {shown(found.constant)}")
    return found


def _classes(name: str, statistics: Statistics, classes: int | None) -> tuple[str, ...]:
    """What the outputs stand for: 0, 1, 2, … as given, or the labels that there are."""
    counts = statistics.label_counts
    if statistics.label_kind == "category":
        if classes is not None and classes != len(counts):
            raise wrong(name, f"{classes} classes", f"{len(counts)}: {shown(counts)}")
        return tuple(counts)
    if classes is None:
        return tuple(sorted(counts, key=int))
    outside = sum(count or 1 for label, count in counts.items() if not 0 <= int(label) < classes)
    if outside:
        raise wrong(name, f"labels from 0 to {classes - 1}", f"{outside} outside")
    return tuple(map(str, range(classes)))


def counted(classes: Iterable[str]) -> bool:
    """Whether classes are 0, 1, 2, …, which need no names."""
    return all(name == str(number) for number, name in enumerate(classes))


def _joined(preparation: Preparation, tables: Sequence[Table]) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """The inputs and labels of all clients, each of which prepares its own."""
    labels = [preparation.codes(table, table.labels) for table in tables if table.labels is not None]
    return np.concatenate([preparation(table) for table in tables]), np.concatenate(labels)


def test_part(wanted: Wanted, preparation: Preparation, label_kind: str, test: Any) -> tuple[Table, Iterable[str]]:
    """A table of its own, read with the kinds that the clients' columns have, and what there is to say of it."""
    kinds = preparation.declared
    numbers, categories = kinds.numbers, kinds.categories
    if preparation.classes and label_kind == "category":
        categories += (wanted.label,)
    else:
        numbers += (wanted.label,)
    declared = Declared(numbers, categories, kinds.dates, kinds.day_first)
    raw = read(test, None if isinstance(test, str | Path) else "test part")
    inner = Wanted(raw.name, wanted.client, wanted.label, preparation.columns, declared)
    (table,), notes = _labelled(raw.name, [inner.table(raw, [wanted.label])], raw.notes)
    return table, (f"test part: {note}" for note in notes)


def _notes(preparation: Preparation) -> Iterable[str]:
    if preparation.constant:
        names = shown(preparation.constant)
        yield f"{len(preparation.constant)} columns are left out, because they are the same in every row: {names}"
