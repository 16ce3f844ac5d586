"""Data that stays with its clients: what each tells of it, what is agreed on, and the examples that each makes of it.

A client that brings a table tells statistics of its columns (`TableStatistics`), one that brings arrays their shape and
kind. From all of them the server makes an agreement, which is plain data: with it every client prepares its own rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from fedrelay.data.augment import Normalise
from fedrelay.data.examples import Examples
from fedrelay.data.federation import Federation, Sent, Source
from fedrelay.data.own.arrays import Pair, from_arrays
from fedrelay.data.own.brought_pictures import FOLDER, agreed_on_pictures, stands_for_pictures
from fedrelay.data.own.tables import Options, Wanted, counted, prepared_by, test_part
from fedrelay.data.partitions.basic import Natural
from fedrelay.data.survey import exchanged, survey
from fedrelay.data.tables.preparation import Preparation
from fedrelay.data.tables.reading import read
from fedrelay.data.tables.statistics import TableStatistics, clients_of, merged
from fedrelay.data.tables.table import Declared, Table
from fedrelay.errors import BadInput
from fedrelay.types import Tree

TABLE, ARRAYS = "table", "arrays"


class Brought(Protocol):
    """A client's own data, before it is known how all clients prepare theirs."""

    def told(self) -> Tree:
        """All that is told of it, in plain data."""

    def prepared(self, agreed: Tree, /) -> Source:
        """The examples to train on, prepared as was agreed on."""


# --- tables


def wanted_of(data: Mapping[str, Any]) -> tuple[Wanted, Options]:
    """How a table is read, as [data] says it."""
    label, numbers = str(data.get("label", "label")), tuple(data.get("numbers", ()))
    options = Options(
        0.2,
        data.get("classes"),
        bool(data.get("standardise", True)),
        data.get("unknown", "refuse"),
        data.get("target", "classes"),
    )
    numbers = (*numbers, label) if options.target == "numbers" and label not in numbers else numbers
    dates, order = tuple(data.get("dates", ())), data.get("day_first")
    declared = Declared(numbers, tuple(data.get("categories", ())), dates, order if isinstance(order, bool) else None)
    features = data.get("features")
    features = features if isinstance(features, list | tuple) else None
    return Wanted(TABLE, str(data.get("client", "client")), label, features, declared), options


@dataclass(frozen=True)
class TableBrought:
    """The table of one client."""

    table: Table
    declared: Declared
    options: Options

    @classmethod
    def read(cls, path: Any, name: str, data: Mapping[str, Any]) -> TableBrought:
        """From a file, or a frame of pandas, polars or Arrow."""
        wanted, options = wanted_of(data)
        (table,), _ = wanted.alike({name: read(path, name)})
        return cls(table, wanted.declared, options)

    def told(self) -> Tree:
        work = TableStatistics(self.declared.categories, classes=self.options.target == "classes")
        (report,) = survey(work, clients_of([self.table], [np.arange(self.table.rows)]))
        return {"kind": TABLE, **report.uplink}

    def prepared(self, agreed: Tree, /) -> Source:
        preparation = Preparation.from_plain(agreed["preparation"])
        assert self.table.labels is not None
        x, y = preparation(self.table), preparation.codes(self.table, self.table.labels)
        return Source(
            self.table.name,
            train=Examples(torch.from_numpy(x), torch.from_numpy(y)),
            test=Examples(torch.from_numpy(x[:0]), torch.from_numpy(y[:0])),
            classes=len(preparation.classes) or 1,
            preparation=preparation,
        )


def agreed_on_tables(told: Mapping[str, Tree], data: Mapping[str, Any]) -> Tree:
    """The preparation that follows from what all clients told."""
    wanted, options = wanted_of(data)
    statistics = merged("the clients' tables", dict(told), wanted.declared.categories)
    preparation = prepared_by(wanted, statistics, options)
    return {"kind": TABLE, "preparation": preparation.plain(), "label_kind": statistics.label_kind}


# --- arrays


@dataclass(frozen=True)
class ArraysBrought:
    """The inputs and targets of one client."""

    name: str
    pair: Pair
    target: Any = None

    def told(self) -> Tree:
        source = self._source(None)
        x, y = _tensor(source.train.x), _tensor(source.train.y)  # type: ignore[attr-defined]
        return {
            "kind": ARRAYS,
            "rows": len(x),
            "shape": list(x.shape[1:]),
            "type": str(x.dtype).removeprefix("torch."),
            "target": source.train.target,
            "targets": list(y.shape[1:]),
            "classes": source.classes,
        }

    def prepared(self, agreed: Tree, /) -> Source:
        return self._source(int(agreed["classes"]))

    def _source(self, classes: int | None) -> Source:
        some = tuple(part[:1] for part in self.pair)
        return from_arrays({self.name: self.pair}, test=some, classes=classes, target=self.target).source


def _tensor(part: Any) -> torch.Tensor:
    if not isinstance(part, torch.Tensor):
        raise BadInput("clients elsewhere have one array of inputs and one of targets, not several")
    return part


ALIKE = ("shape", "type", "target", "targets")


def agreed_on_arrays(told: Mapping[str, Tree], data: Mapping[str, Any]) -> Tree:
    """The form that all arrays have, and how many classes there are; clients with another form are refused by name."""
    forms = {name: tuple(map(str, (tree[key] for key in ALIKE))) for name, tree in told.items()}
    usual, _ = Counter(forms.values()).most_common(1)[0]
    odd = [name for name, form in forms.items() if form != usual]
    if odd:
        raise BadInput(
            f"the clients' arrays differ: {', '.join(odd[:5])} has inputs {forms[odd[0]][0]} of {forms[odd[0]][1]} and "
            f"targets {forms[odd[0]][2]}, most have {usual[0]} of {usual[1]} and {usual[2]}"
        )
    first = next(tree for name, tree in told.items() if forms[name] == usual)
    given = data.get("classes")
    classes = given if isinstance(given, int) else max(int(tree["classes"]) for tree in told.values())
    return {"kind": ARRAYS, **{key: first[key] for key in ALIKE}, "classes": classes}


# --- the server


def agree(told: Mapping[str, Tree], data: Mapping[str, Any]) -> Tree:
    """What all clients prepare their data by, from what they told of it, by name."""
    kinds = {name: tree.get("kind") for name, tree in told.items()}
    if len(set(kinds.values())) != 1:
        found = ", ".join(f"{name} {kind}" for name, kind in list(kinds.items())[:10])
        raise BadInput(f"clients bring different kinds of data ({found}): all tables, all folders, or all arrays")
    return AGREEMENTS[next(iter(kinds.values())) or ""](told, data)


AGREEMENTS = {TABLE: agreed_on_tables, ARRAYS: agreed_on_arrays, FOLDER: agreed_on_pictures}


def standing_in(
    names: Sequence[str], sizes: Sequence[int], agreed: Tree, data: Mapping[str, Any], *, test: Any = None
) -> Federation:
    """The federation as the server sees it: how many examples every client has, and what they are like; none of them.
    `test` is a table, a folder or a pair of arrays, of the server's own."""
    owners = np.repeat(np.arange(len(names)), sizes)
    if agreed["kind"] == TABLE:
        source = _stands_for_tables(agreed, data, len(owners), test)
    elif agreed["kind"] == FOLDER:
        source = stands_for_pictures(agreed, data, len(owners), test)
    else:
        source = _stands_for_arrays(agreed, len(owners), test)
    return Federation.split(replace(source, owners=owners, owner_names=tuple(names), elsewhere=True), Natural())


def _stands_for_tables(agreed: Tree, data: Mapping[str, Any], rows: int, test: Any) -> Source:
    preparation = Preparation.from_plain(agreed["preparation"])
    kind = torch.int64 if preparation.classes else torch.float32
    x, y = torch.zeros(1, len(preparation.inputs)), torch.zeros(1, dtype=kind)
    tested = Examples(x[:0], y[:0])
    if test is not None:
        wanted, _ = wanted_of(data)
        table, _ = test_part(wanted, preparation, str(agreed["label_kind"]), test)
        assert table.labels is not None
        codes = torch.from_numpy(preparation.codes(table, table.labels))
        tested = Examples(torch.from_numpy(preparation(table)), codes)
    return Source(
        TABLE,
        train=Examples(x.expand(rows, -1), y.expand(rows)),
        test=tested,
        classes=len(preparation.classes) or 1,
        class_names=() if counted(preparation.classes) else preparation.classes,
        preparation=preparation,
    )


def _stands_for_arrays(agreed: Tree, rows: int, test: Any) -> Source:
    shape, classes = tuple(agreed["shape"]), int(agreed["classes"])
    kind = getattr(torch, str(agreed["type"]))
    whole = agreed["target"] in ("classes", "tokens", "mask")
    y = torch.zeros(1, *agreed["targets"], dtype=torch.int64 if whole else torch.float32)
    y = y.bool() if agreed["target"] == "labels" else y
    x = torch.zeros(1, *shape, dtype=kind)
    transform = Normalise((0.5,), (0.5,)) if kind == torch.uint8 else None
    tested = Examples(x[:0], y[:0], transform)
    if test is not None:
        found = from_arrays({"test part": test}, test=test, classes=classes, target=agreed["target"]).source.test
        assert isinstance(found, Examples)
        if tuple(_tensor(found.x).shape[1:]) != shape:
            raise BadInput(f"the test part has inputs {tuple(_tensor(found.x).shape[1:])}, the clients have {shape}")
        tested = found
    stands = Examples(x.expand(rows, *shape), y.expand(rows, *agreed["targets"]), transform)
    return Source(ARRAYS, train=stands, test=tested, classes=classes)


def sent_by(told: Mapping[str, Tree], agreed: Tree) -> Sent:
    """What it took to agree."""
    return exchanged(list(told.values()), agreed)
