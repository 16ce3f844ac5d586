"""The kinds of study that an item can be: how its rows are named, how they are done, and what is there of them.

A study works on plain tables and a folder, and goes on where it was: what is done is not done again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrelay import config, report
from fedrelay.errors import BadInput
from fedrelay.reproduce.finished import Figures, Finished
from fedrelay.runs.folder import CONFIG
from fedrelay.studies import compare, groupings

Tables = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """Where and how studies are done."""

    live: Console
    jobs: int = 1
    data_dir: Path | None = None
    force: bool = False
    """Whether results of fewer or other rows in the folder of a panel are ours to replace."""


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


# --- runs side by side

BASELINES = ("baseline", "parallelism_baseline")
"""What need not be there for others to be run."""


def run_names(tables: Tables) -> list[str]:
    return list(config.section_of(tables, "runs"))


def chosen_runs(tables: Tables, rows: Collection[str]) -> dict[str, Any]:
    """The runs of these names, and the reference that they are measured by."""
    kept = {*rows, tables.get("reference")}
    runs = {name: run for name, run in config.section_of(tables, "runs").items() if name in kept}
    rest = {key: value for key, value in tables.items() if key not in BASELINES or value in runs}
    return {**rest, "runs": runs}


def compared(tables: Tables, folder: Path, name: str, setting: Setting) -> list[str]:
    rows, _ = compare.compare(
        tables,
        folder,
        setting.live,
        name=name,
        jobs=setting.jobs,
        data_dir=setting.data_dir,
        force=setting.force,
    )
    return [f"{row.name}: {reason}" for row in rows for reason in row.failed]


def runs_there(tables: Tables, folder: Path) -> Finished:
    """Every run that has begun, of every seed."""
    jobs, _ = compare.plan(tables, folder)
    begun = [job for job in jobs if (job.folder / CONFIG).is_file()]
    names = dict.fromkeys(job.name for job in begun)
    return Finished({name: tuple(report.load(job.folder) for job in begun if job.name == name) for name in names})


# --- groupings without training


def of_seeds(tables: Tables, folder: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """The tables and the folder of every seed."""
    rest = {key: value for key, value in tables.items() if key != "seeds"}
    seeds = tables.get("seeds", [tables.get("seed", 0)])
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise BadInput(f"seeds must be a list of whole numbers such as [0, 1, 2], not {seeds!r:.200}")
    for seed in seeds:
        yield {**rest, "seed": seed}, folder / f"seed-{seed}"


def grouping_names(tables: Tables) -> list[str]:
    data = config.section_of(tables, "data")
    section = config.section_of(tables, "groups")
    request = groupings.read(section, config.section_of(tables, "algorithm"), exemplars=bool(data.get("exemplars", 0)))
    made = [row_name(trait, grouper, distance) for trait, grouper, distance, _ in request.combinations()]
    return [ALONE, *made, *(after(epochs) for epochs in request.epochs)]


ALONE = "clients alone"
"""The row of the clients before they are grouped."""


def row_name(*parts: str | None) -> str:
    return " · ".join(part for part in parts if part)


def after(epochs: int) -> str:
    return f"{epochs} epochs alone"


def grouped(tables: Tables, folder: Path, name: str, setting: Setting) -> list[str]:
    for one, place in of_seeds(tables, folder):
        if found_of(one, place) is None:
            groupings.claim_for(one, place, force=setting.force)
            findings = groupings.study(one, setting.live, setting.data_dir)
            groupings.write(findings, place, name, work=groupings.fingerprint(one))
    return []


def found_of(tables: Tables, folder: Path) -> dict[str, Any] | None:
    """What was found for these very tables, if it was."""
    try:
        found = json.loads((folder / "results.json").read_bytes())
        return found if found["work"] == groupings.fingerprint(tables) else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None  # missing, damaged, or another program's


def groupings_there(tables: Tables, folder: Path) -> Finished:
    rows: dict[str, list[Figures]] = {}
    for one, place in of_seeds(tables, folder):
        found = found_of(one, place)
        for name, figures in {} if found is None else figures_of(found).items():
            rows.setdefault(name, []).append(figures)
    return Finished(figures={name: tuple(figures) for name, figures in rows.items()})


def figures_of(found: Mapping[str, Any]) -> dict[str, Figures]:
    """The rows of one study of groupings."""
    numbers = ("number", "balance_ratio", "covered_classes", "cpd", "seconds")
    made = {
        row_name(one["trait"], one["grouper"], one["distance"]): {key: one[key] for key in numbers}
        for one in found["groupings"]
    }
    alone = {after(one["epochs"]): {key: one[key] for key in ("norm", "components")} for one in found["pretraining"]}
    return {ALONE: {"number": found["clients"], "cpd": found["clients_cpd"]}, **made, **alone}


def all_rows(tables: Tables, rows: Collection[str]) -> dict[str, Any]:
    """All of them: what describes the clients is the same for each."""
    return dict(tables)


STUDIES: dict[str, Study] = {
    "compare": Study(run_names, chosen_runs, compared, runs_there),
    "groups": Study(grouping_names, all_rows, grouped, groupings_there),
}
"""By the name that an item says."""
