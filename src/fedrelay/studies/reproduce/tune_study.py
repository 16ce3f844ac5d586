"""A sweep over settings, chosen by a validation set: its rows are the values that were tried.

`[experiment.tune.over]` says what is tried ("local.lr" = [0.01, 0.1]); `seeds` repeats every trial, and `to_the_end`
gives none up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrelay import config
from fedrelay.config import schema
from fedrelay.errors import BadInput
from fedrelay.studies import trials, tune
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.study import Setting, Study, Tables, all_rows, seeds_of

KEYS = ("over", "to_the_end")


def asked(tables: Tables) -> tuple[dict[str, list[Any]], bool]:
    """What is tried, and whether all of it to the end."""
    section = config.section_of(tables, "tune")
    schema.check_keys(section, KEYS, "[tune]")
    over = section.get("over")
    if not isinstance(over, dict) or not over or not all(isinstance(values, list) for values in over.values()):
        raise BadInput('[tune].over: expected lists of values by setting, such as "local.lr" = [0.01, 0.1]')
    return over, schema.convert(section.get("to_the_end", True), bool, "[tune].to_the_end")


def names(tables: Tables) -> list[str]:
    return [trial.name for trial in trials.trials_of(asked(tables)[0], Path())]


def swept(tables: Tables, folder: Path, name: str, setting: Setting) -> list[str]:
    over, to_the_end = asked(tables)
    if found_of(tables, folder) is None:
        tune.tune(
            {key: value for key, value in tables.items() if key not in ("tune", "seeds")},
            over,
            folder,
            setting.live,
            seeds=seeds_of(tables),
            jobs=setting.jobs,
            ray=setting.ray,
            to_the_end=to_the_end,
            data_dir=setting.data_dir,
            force=setting.force,
        )
    found = found_of(tables, folder) or []
    return [f"{name_of(one)}: {one['stopped']}" for one in found if str(one["stopped"] or "").startswith("failed")]


def found_of(tables: Tables, folder: Path) -> list[Mapping[str, Any]] | None:
    """What was found for these values and seeds after all rounds, if it was."""
    try:
        found = json.loads((folder / "tune.json").read_bytes())
        rounds = tables.get("rounds")
        tried = {name_of(one) for one in found if set(one["seeds"]) == set(seeds_of(tables))}
        whole = any(one["rounds"] == rounds for one in found) or rounds is None
        return found if tried == set(names(tables)) and whole else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # missing, damaged, or another program's


def name_of(record: Mapping[str, Any]) -> str:
    """A trial's name, from what tune.json says of it."""
    return trials.Trial(record["settings"], []).name


def gathered(tables: Tables, folder: Path) -> Finished:
    """Every value with its figures: validation (the mean of the last tests), best, and the test of the one chosen."""
    rows = {}
    for one in found_of(tables, folder) or ():
        tests = [test[one["metric"]] for test in one["test"] or ()]
        test = sum(tests) / len(tests) if tests else None
        rows[name_of(one)] = ({"validation": one["validation"], "best": one["best"], "test": test},)
    return Finished(figures=rows)


def check(tables: Tables, data_dir: Path | None) -> None:
    asked(tables)
    config.build({key: value for key, value in tables.items() if key not in ("tune", "seeds")}, data_dir)


TUNE = Study(names, all_rows, swept, gathered, check)
