"""Everything that runs have on record as flat rows: CSV files, or frames of pandas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.report import measures
from fedrelay.runs.folder import Run, load
from fedrelay.runs.results import read_clients, rows_of, table
from fedrelay.system import files

Row = dict[str, Any]
Folders = Path | str | Sequence[Path | str | Run]


def round_rows(runs: Sequence[Run]) -> list[Row]:
    """One row for every round of every run."""
    return [{"run": name, **flat(asdict(log))} for name, run in named(runs) for log in run.rounds]


def summary_rows(runs: Sequence[Run]) -> list[Row]:
    """One row for every run that has ended, with its settings."""
    return [
        {"run": name, "folder": str(run.folder), **flat(asdict(run.summary)), **configured(run)}
        for name, run in named(runs)
        if run.summary is not None
    ]


def client_rows(runs: Sequence[Run]) -> list[Row]:
    """One row for every client of every run that has ended and whose clients have test parts."""
    found = [(name, read_clients(run.folder)) for name, run in named(runs) if run.summary is not None]
    return [{"run": name, **row} for name, each in found if each is not None for row in rows_of(each)]


TABLES: dict[str, Callable[[Sequence[Run]], list[Row]]] = {
    "rounds": round_rows,
    "summaries": summary_rows,
    "clients": client_rows,
}


CSV_FILES = tuple(f"{name}.csv" for name in TABLES)
"""What `write_csv` writes."""


def write_csv(folders: Folders, out: Path | str) -> list[Path]:
    """All tables as CSV files in the folder `out`; a table without rows is a file without rows."""
    runs, out = loaded(folders), Path(out)
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file: name a folder for the CSV files")
    contents = {name: table(rows_of_runs(runs)) for name, rows_of_runs in TABLES.items()}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            files.write(out / f"{name}.csv", content.encode())
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}): name another folder with --csv") from None
    return [out / f"{name}.csv" for name in contents]


def frame(folders: Folders) -> Any:
    """Every round of the runs in these folders as a frame of pandas: one row each, with the name of its run."""
    return as_frame(round_rows(loaded(folders)))


def summaries(folders: Folders) -> Any:
    """The summaries of the runs in these folders as a frame of pandas: one row for every run that has ended."""
    return as_frame(summary_rows(loaded(folders)))


def clients(folders: Folders) -> Any:
    """The figures of every client of the runs in these folders as a frame of pandas."""
    return as_frame(client_rows(loaded(folders)))


def as_frame(rows: list[Row]) -> Any:
    """Rows as a frame of pandas."""
    try:
        import pandas
    except ImportError:
        raise BadInput('frames need pandas: pip install "fedrelay[table]"; `fedrelay report --csv` does not') from None
    return pandas.DataFrame(rows)


def loaded(folders: Folders) -> list[Run]:
    """The runs in these folders; a folder named twice counts once, and a run stands for itself."""
    several = [folders] if isinstance(folders, Path | str) else folders
    found = {(one.folder if isinstance(one, Run) else Path(one)).resolve(): one for one in several}
    return [one if isinstance(one, Run) else load(one) for one in found.values()]


def named(runs: Sequence[Run]) -> Iterable[tuple[str, Run]]:
    return zip(measures.labels(runs), runs, strict=True)


def configured(run: Run) -> Row:
    """The settings of a run, each in a column that begins with `config.`."""
    return flat(run.config, "config.", lists=json.dumps)


def flat(record: Mapping[str, Any], prefix: str = "", *, lists: Callable[[Any], object] = len) -> Row:
    """Nested records as one row: `bytes.total`, say. Of a list, how long it is, or what else is asked for."""
    row: Row = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            row |= flat(value, f"{prefix}{key}.", lists=lists)
        else:
            row[f"{prefix}{key}"] = lists(value) if isinstance(value, list | tuple) else value
    return row
