"""A federation of the rows of a CSV or Parquet table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Federation
from fedrelay.data.own.arrays import Pair, from_arrays
from fedrelay.data.partitions.apportion import grouped
from fedrelay.data.sources.checks import check_some, wrong
from fedrelay.errors import BadInput


def from_table(
    path: Path | str,
    *,
    client: str = "client",
    label: str = "label",
    features: Sequence[str] | None = None,
    test: float | Path | str = 0.2,
    classes: int | None = None,
) -> Federation:
    """A federation of the rows of a CSV or Parquet table: a column of clients, one of labels, the others numbers.

    `features` are the columns that are inputs (by default all others). `test` is a table of its own, or the share
    that is held out of every client. Labels are whole numbers from 0 on, or texts.
    """
    path = Path(path).expanduser()
    rows = _Rows.of(path, client, label, features)
    names = rows.label_names()
    tested: float | Pair
    if isinstance(test, int | float):
        tested = float(test)
    else:
        other = _Rows.of(Path(test).expanduser(), None, label, rows.features)
        tested = (other.x, other.codes(names))
    codes = rows.codes(names)
    clients, owners = np.unique(rows.clients, return_inverse=True)
    mine = zip(clients, grouped(owners, len(clients)), strict=True)
    pairs = {str(name): (rows.x[places], codes[places]) for name, places in mine}
    return from_arrays(pairs, test=tested, classes=classes, class_names=names, name=path.stem)


@dataclass(frozen=True)
class _Rows:
    """What is used of a table, checked."""

    path: Path
    features: tuple[str, ...]
    x: NDArray[np.float32]
    labels: NDArray[Any]
    clients: NDArray[Any]

    @classmethod
    def of(cls, path: Path, client: str | None, label: str, features: Sequence[str] | None) -> _Rows:
        table = _read(path)
        special = [label] if client is None else [client, label]
        wanted = [name for name in table.column_names if name not in special] if features is None else list(features)
        missing = [name for name in (*special, *wanted) if name not in table.column_names]
        if missing:
            raise wrong(
                path,
                f"columns {', '.join(map(repr, missing))}",
                f"{len(missing)} missing; there is: {', '.join(table.column_names)}",
            )
        check_some(path, table.num_rows)
        if not wanted:
            raise wrong(path, "at least one column of inputs", "none")
        for name in (*special, *wanted):
            if table[name].null_count:
                raise wrong(path, f"a value in every row of column {name!r}", f"{table[name].null_count} empty")
        if client is not None and (empty := sum(not str(item).strip() for item in table[client].to_pylist())):
            raise wrong(path, f"a client in every row of column {client!r}", f"{empty} empty")
        x = np.stack([_numbers(path, table, name) for name in wanted], axis=1)
        clients = np.zeros(0) if client is None else np.array([str(item) for item in table[client].to_pylist()])
        return cls(path, tuple(wanted), x, table[label].to_numpy(), clients)

    def label_names(self) -> tuple[str, ...]:
        """The classes in order, if labels are texts."""
        if self.labels.dtype.kind in "iu":
            return ()
        if self.labels.dtype.kind == "f":
            raise wrong(self.path, "labels to be whole numbers or texts", "numbers with a fraction")
        return tuple(sorted({str(label) for label in self.labels}))

    def codes(self, names: tuple[str, ...]) -> NDArray[np.int64]:
        """The labels as numbers."""
        if not names:
            return self.labels.astype(np.int64)
        place = {name: number for number, name in enumerate(names)}
        unknown = sum(str(label) not in place for label in self.labels)
        if unknown:
            raise wrong(self.path, f"labels among {', '.join(names[:10])}", f"{unknown} of {len(self.labels)} others")
        return np.array([place[str(label)] for label in self.labels], dtype=np.int64)


def _numbers(path: Path, table: Any, name: str) -> NDArray[np.float32]:
    values = table[name].to_numpy()
    if values.dtype.kind not in "iufb":
        raise wrong(path, f"column {name!r} to be numbers (or leave it out of `features`)", str(table[name].type))
    return np.asarray(values, dtype=np.float32)


def _read(path: Path) -> Any:
    """The table, by the name of its file."""
    try:
        import pyarrow as arrow
        from pyarrow import csv, parquet
    except ImportError:
        raise BadInput('reading tables needs pyarrow: pip install "fedrelay[table]"') from None
    if not path.is_file():
        raise wrong(path, "a file", "a folder" if path.is_dir() else "nothing there")
    try:
        if path.suffix in (".parquet", ".pq"):
            return parquet.read_table(path)
        if path.suffix in (".csv", ".gz", ".tsv"):
            options = csv.ParseOptions(delimiter="\t" if ".tsv" in path.suffixes else ",")
            return csv.read_csv(path, parse_options=options)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise wrong(path, "a whole table", f"a damaged one ({error})") from None
    raise wrong(path, "a name that ends in .csv, .csv.gz, .tsv or .parquet", f"{path.name}")
