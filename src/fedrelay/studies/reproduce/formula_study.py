"""Costs by formulas, without any run: what one pass over the clients sends (FedELMY 2024, Fig. 5).

`[experiment]` has `clients` and `model` (bytes of a model), and a table `[experiment.runs.NAME]` for every row, with
its `method` and what differs in it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedrelay import config
from fedrelay.config import schema
from fedrelay.runs.one_pass import PASSES
from fedrelay.studies.reproduce.finished import Figures, Finished
from fedrelay.studies.reproduce.study import Setting, Study, Tables

KEYS = ("method", "clients", "model")


def names(tables: Tables) -> list[str]:
    return list(config.section_of(tables, "runs"))


def chosen(tables: Tables, rows: Collection[str]) -> dict[str, Any]:
    runs = config.section_of(tables, "runs")
    return {**tables, "runs": {name: run for name, run in runs.items() if name in rows}}


def figures_of(values: Tables, where: str) -> Figures:
    """What one method sends: models as the paper counts them, all messages of a run, and megabytes."""
    schema.check_keys(values, KEYS, where)
    schema.choose(PASSES, values.get("method"), f"{where}.method")  # type: ignore[arg-type]
    one = PASSES[values["method"]]
    clients = schema.convert(values.get("clients"), int, f"{where}.clients")
    model = schema.convert(values.get("model"), float, f"{where}.model")
    return {
        "models": float(one.figure(clients)),
        "messages": float(one.total(clients)),
        "bytes": one.megabytes(clients, model) * 1e6,
    }


def reckoned(tables: Tables, folder: Path) -> Finished:
    shared = {key: value for key, value in tables.items() if key != "runs"}
    runs = config.section_of(tables, "runs")
    return Finished(figures={name: (figures_of({**shared, **run}, f"runs.{name}"),) for name, run in runs.items()})


def nothing_to_do(tables: Tables, folder: Path, name: str, setting: Setting) -> list[str]:
    """There is nothing to run: formulas are reckoned whenever they are looked at."""
    reckoned(tables, folder)
    return []


def check(tables: Tables, data_dir: Path | None) -> None:
    reckoned(tables, Path())


FORMULAS = Study(names, chosen, nothing_to_do, reckoned, check)
