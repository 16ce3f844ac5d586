"""How tables become inputs: fitted once from what all clients told, the same for training and for prediction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.sources.checks import check_numbers, wrong
from fedrelay.data.tables.columns import typed
from fedrelay.data.tables.reading import read
from fedrelay.data.tables.statistics import Numbers, Statistics
from fedrelay.data.tables.table import Column, Declared, Kind, Table, empty, shown
from fedrelay.errors import BadInput

VERSION = 1
CHUNK = 20_000
"""So many rows are transformed at a time."""


@dataclass(frozen=True)
class Number:
    """A column of numbers or dates: gaps get the mean, which is taken off before dividing by the deviation."""

    name: str
    kind: Literal["number", "date"]
    mean: float
    deviation: float
    gaps: int = 0


@dataclass(frozen=True)
class Category:
    """A column of categories: one input each; gaps get the usual one."""

    name: str
    categories: tuple[str, ...]
    usual: str
    gaps: int = 0


@dataclass(frozen=True)
class Preparation:
    """Plain data, to be saved beside a model: which columns are inputs, and the statistics they are prepared with."""

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]
    label: str = ""
    classes: tuple[str, ...] = ()
    """What the model's outputs stand for; none if it predicts a number."""
    standardise: bool = True
    unknown: Literal["refuse", "zeros"] = "refuse"
    """What happens to a category that no client had: refused, or none of the categories' inputs is 1."""
    constant: tuple[str, ...] = ()
    """Columns that are left out because they are the same, or empty, everywhere."""
    day_first: bool | None = None
    """Whether 03/04/2026 was in April."""

    @classmethod
    def of(cls, statistics: Statistics, **rest: Any) -> Preparation:
        """From what all clients told; a column that is the same everywhere is left out."""
        numbers, categories, constant = [], [], []
        for name, column in statistics.numbers.items():
            if not column.count or column.constant:
                constant.append(name)
            else:
                numbers.append(_number(name, column, statistics.rows))
        for name, counts in statistics.categories.items():
            if len(counts) < 2:
                constant.append(name)
            else:
                usual = max(counts, key=lambda word: counts[word])  # the first of equals, as scikit-learn takes it
                categories.append(Category(name, tuple(counts), usual, statistics.rows - sum(counts.values())))
        orders = {column.day_first for column in statistics.numbers.values()} - {None}
        order = next(iter(orders)) if len(orders) == 1 else None
        return cls(tuple(numbers), tuple(categories), constant=tuple(constant), day_first=order, **rest)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a table that it needs."""
        return tuple(column.name for column in self.numbers) + tuple(column.name for column in self.categories)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What every input of the network is."""
        ones = tuple(f"{column.name} = {word}" for column in self.categories for word in column.categories)
        return tuple(column.name for column in self.numbers) + ones

    @property
    def kinds(self) -> str:
        """What every column was taken for, in words."""
        names = {
            "numbers": [each.name for each in self.numbers if each.kind == "number"],
            "dates": [each.name for each in self.numbers if each.kind == "date"],
            "categories": [f"{each.name} ({len(each.categories)})" for each in self.categories],
            "the same everywhere": self.constant,
        }
        return "; ".join(f"{kind}: {', '.join(each)}" for kind, each in names.items() if each)

    @property
    def declared(self) -> Declared:
        """The kinds of the columns, so that another table is read as the first one was."""
        names = {kind: tuple(each.name for each in self.numbers if each.kind == kind) for kind in ("number", "date")}
        words = tuple(column.name for column in self.categories)
        return Declared(names["number"], words, names["date"], self.day_first)

    def read(self, source: Any, name: str | None = None) -> NDArray[np.float32]:
        """The inputs of a table that was not there in training: a file, or a frame of pandas, polars or Arrow."""
        raw = read(source, name)
        self.check(raw.name, raw.names)
        columns = {column: typed(raw, column, self.declared) for column in self.columns}
        return self(Table(raw.name, raw.table.num_rows, columns))

    def __call__(self, table: Table, /) -> NDArray[np.float32]:
        """The inputs of these rows."""
        self.check(table.name, list(table.columns))
        table = replace(table, columns=self._fitted(table))
        self._check_values(table)
        found = np.empty((table.rows, len(self.inputs)), dtype=np.float32)
        for rows in _chunks(table.rows):
            cells = np.empty((rows.stop - rows.start, len(self.columns)), dtype=object)
            for place, name in enumerate(self.columns):
                cells[:, place] = table.columns[name].values[rows]
            found[rows] = self.transformer.transform(cells)
        return found

    def check(self, where: str, names: list[str]) -> None:
        """Refuse a table that lacks a column."""
        missing = [name for name in self.columns if name not in names]
        if missing:
            found = f"{len(missing)} missing; there is: {', '.join(names)}"
            raise wrong(where, f"columns {', '.join(map(repr, missing))}", found)

    def _fitted(self, table: Table) -> dict[str, Column]:
        """The columns with the kinds that were fitted: one that is empty fits every kind, others are refused."""
        kinds: dict[str, Kind] = {column.name: column.kind for column in self.numbers}
        fitted = {}
        for name in self.columns:
            column, kind = table.columns[name], kinds.get(name, "category")
            if column.kind != kind and column.filled.any():
                raise wrong(table.name, f"column {name!r} to be of the kind {kind}", column.kind)
            fitted[name] = column if column.kind == kind else empty(kind, table.rows)
        return fitted

    def _check_values(self, table: Table) -> None:
        for number in self.numbers:
            infinite = int(np.isinf(table.columns[number.name].values).sum())
            if infinite:
                found = f"{infinite} of {table.rows} that are infinite"
                raise wrong(table.name, f"finite values in column {number.name!r}", found)
        for column in self.categories if self.unknown == "refuse" else ():
            known = {None, *column.categories}
            others = [word for word in table.columns[column.name].values if word not in known]
            if others:
                expected = f"column {column.name!r} to hold categories that clients have ({shown(column.categories)})"
                hint = 'unknown = "zeros" takes such rows without a category'
                found = f"{len(others)} of {table.rows} others: {shown(sorted(set(others)))}; {hint}"
                raise wrong(table.name, expected, found)

    def codes(self, table: Table, column: Column) -> NDArray[Any]:
        """The labels of these rows as numbers: the places of their classes, or the numbers that they are."""
        if not self.classes:
            if column.kind != "number":
                raise wrong(table.name, f"column {self.label!r} to hold numbers to predict", f"a {column.kind}")
            numbers: NDArray[np.float32] = column.values.astype(np.float32)
            check_numbers(f"{table.name}, column {self.label!r}", numbers)
            return numbers
        texts = column.values if column.kind == "category" else [_whole(value) for value in column.values]
        place = {word: number for number, word in enumerate(self.classes)}
        odd = [word for word in texts if word not in place]
        if odd:
            expected = f"labels among {', '.join(self.classes[:10])}"
            raise wrong(table.name, expected, f"{len(odd)} of {table.rows} others: {shown(sorted(set(map(str, odd))))}")
        return np.array([place[word] for word in texts], dtype=np.int64)

    @cached_property
    def transformer(self) -> Any:
        """scikit-learn's, fitted to one row of what is usual; then it is given the statistics of all clients."""
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        count = len(self.numbers)
        words = [np.array(column.categories, dtype=object) for column in self.categories]
        unknown = "error" if self.unknown == "refuse" else "ignore"
        scaler = StandardScaler() if self.standardise else "passthrough"
        encoder = OneHotEncoder(categories=words, handle_unknown=unknown, sparse_output=False, dtype=np.float32)
        numbers = Pipeline([("fill", SimpleImputer(strategy="mean")), ("scale", scaler)])
        fill = SimpleImputer(strategy="most_frequent", missing_values=None)
        parts = [
            ("numbers", numbers, list(range(count))),
            ("categories", Pipeline([("fill", fill), ("encode", encoder)]), list(range(count, len(self.columns)))),
        ]
        row = [column.mean for column in self.numbers] + [column.usual for column in self.categories]
        fitted = ColumnTransformer([part for part in parts if part[2]], sparse_threshold=0)
        fitted.fit(np.array([row], dtype=object))
        if count and self.standardise:
            self._set(fitted.named_transformers_["numbers"]["scale"])
        return fitted

    def _set(self, scaler: Any) -> None:
        """Give a fitted scaler the statistics of all clients."""
        scaler.mean_ = np.array([column.mean for column in self.numbers])
        scaler.scale_ = np.array([column.deviation for column in self.numbers])
        scaler.var_ = scaler.scale_**2

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "transformer"}

    def plain(self) -> dict[str, Any]:
        """As JSON says it."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any], where: str = "preparation") -> Preparation:
        """What `plain` gave."""
        rest = dict(values)
        if rest.pop("version", None) != VERSION:
            raise wrong(where, f"a preparation of version {VERSION}", f"version {values.get('version')!r}")
        try:
            rest["numbers"] = tuple(Number(**each) for each in rest["numbers"])
            rest["categories"] = tuple(
                Category(**{**each, "categories": tuple(each["categories"])}) for each in rest["categories"]
            )
            return cls(**rest | {key: tuple(rest[key]) for key in ("classes", "constant")})
        except (KeyError, TypeError) as error:
            raise wrong(where, "a preparation as it was saved", f"another ({error})") from None

    def save(self, path: Path | str) -> None:
        Path(path).write_text(json.dumps(self.plain(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str) -> Preparation:
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise wrong(path, "a preparation as it was saved", f"another file ({error})") from None
        if not isinstance(values, dict):
            raise BadInput(f"{path}: expected a preparation as it was saved, found a {type(values).__name__}")
        return cls.from_plain(values, str(path))


def _number(name: str, column: Numbers, rows: int) -> Number:
    kind: Literal["number", "date"] = "date" if column.kind == "date" else "number"
    # Over all rows: those with a gap get the mean, and deviate by nothing.
    return Number(name, kind, column.mean, float(np.sqrt(column.squares / rows)), rows - column.count)


def _whole(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _chunks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, CHUNK):
        yield slice(start, min(start + CHUNK, rows))
