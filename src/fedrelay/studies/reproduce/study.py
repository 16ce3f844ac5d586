"""What a kind of study is: it works on plain tables and a folder, and what is done is not done again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrelay.errors import BadInput
from fedrelay.studies.reproduce.finished import Finished

Tables = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """Where and how studies are done."""

    live: Console
    jobs: int | None = None
    """Runs at a time (None: one, or with `ray` as many as the cluster has CPUs)."""
    data_dir: Path | None = None
    force: bool = False
    """Whether results of fewer or other rows in the folder of a panel are ours to replace."""
    ray: str | None = None
    """The address of a Ray cluster that does the runs."""


def unchecked(tables: Tables, data_dir: Path | None) -> None:
    """There is nothing to refuse before it is done."""


@dataclass(frozen=True)
class Study:
    """One kind of study."""

    rows: Callable[[Tables], list[str]]
    """The names of all rows that tables ask for."""
    chosen: Callable[[Tables, Collection[str]], dict[str, Any]]
    """Tables that ask for these rows only, as far as rows can be left out."""
    carry_out: Callable[[Tables, Path, str, Setting], list[str]]
    """Do what is not done yet, in this folder and by this name; what failed, in words."""
    gather: Callable[[Tables, Path], Finished]
    """What is there of it."""
    check: Callable[[Tables, Path | None], None] = unchecked
    """Refuse what cannot be built of these tables, with data from this folder; nothing is run."""


def seeds_of(tables: Tables) -> list[int]:
    """The seeds that tables ask for."""
    seeds = tables.get("seeds", [tables.get("seed", 0)])
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise BadInput(f"seeds must be a list of whole numbers such as [0, 1, 2], not {seeds!r:.200}")
    return seeds


def of_seeds(tables: Tables, folder: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """The tables and the folder of every seed."""
    rest = {key: value for key, value in tables.items() if key != "seeds"}
    for seed in seeds_of(tables):
        yield {**rest, "seed": seed}, folder / f"seed-{seed}"


def all_rows(tables: Tables, rows: Collection[str]) -> dict[str, Any]:
    """All of them, where what is done for one row is done for all."""
    return dict(tables)
