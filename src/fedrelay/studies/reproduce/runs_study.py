"""Runs side by side: the rows are runs, each with all its seeds."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedrelay import config, report
from fedrelay.runs.folder import CONFIG, read_config
from fedrelay.studies import compare
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.set_up import refuse_another
from fedrelay.studies.reproduce.study import Setting, Study, Tables

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
        ray=setting.ray,
        data_dir=setting.data_dir,
        force=setting.force,
    )
    return [f"{row.name}: {reason}" for row in rows for reason in row.failed]


def runs_there(tables: Tables, folder: Path) -> Finished:
    """Every run that has begun, of every seed; one of another set-up is refused."""
    jobs, _ = compare.plan(tables, folder)
    begun = [job for job in jobs if (job.folder / CONFIG).is_file()]
    for job in begun:
        refuse_another(job.tables, read_config(job.folder / CONFIG), job.folder)
    names = dict.fromkeys(job.name for job in begun)
    return Finished({name: tuple(report.load(job.folder) for job in begun if job.name == name) for name in names})


def check(tables: Tables, data_dir: Path | None) -> None:
    """Every run is built once, with its first seed."""
    jobs, _ = compare.plan(tables, Path())
    seed = jobs[0].seed
    for job in [job for job in jobs if job.seed == seed]:
        with compare.told_of("experiment", job):
            config.build(job.tables, data_dir)


COMPARE = Study(run_names, chosen_runs, compared, runs_there, check)
