"""Runs with an attacker that makes images, and then how near these come to the other clients' images.

`[experiment.recovery]` may say `features` (inception, pixels, or the file of a network) and `images` (how many are
compared); the rest is a comparison. All figures are at the highest accuracy that all runs of a seed have come to:
`fid_received`, `kid_received` and the same of the controls, and that `accuracy`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay import config, report
from fedrelay.config import schema
from fedrelay.errors import BadInput
from fedrelay.report import recovered
from fedrelay.report.figures import Figure
from fedrelay.runs.folder import SUMMARY
from fedrelay.studies import compare
from fedrelay.studies.recovery import measure, networks, page
from fedrelay.studies.recovery.measure import Measured
from fedrelay.studies.reproduce import runs_study
from fedrelay.studies.reproduce.finished import Figures, Finished
from fedrelay.studies.reproduce.study import Setting, Study, Tables
from fedrelay.system import files

FILE = "recovery.json"
"""In the folder of the panel: what was measured of every finished run."""


@dataclass(frozen=True)
class Options:
    """How images are compared."""

    features: str = networks.INCEPTION
    images: int | None = None


def options_of(tables: Tables) -> Options:
    built, _ = schema.build(Options, config.section_of(tables, "recovery"), "[recovery]", {})
    assert isinstance(built, Options)
    return built


def runs_alone(tables: Tables) -> dict[str, Any]:
    return {key: value for key, value in tables.items() if key != "recovery"}


def carried_out(tables: Tables, folder: Path, name: str, setting: Setting) -> list[str]:
    """The runs, then the distances of those that are done; what was measured already is not measured again."""
    options = options_of(tables)
    network = networks.chosen(options.features)  # if there is none, the runs are in vain
    failed = runs_study.compared(runs_alone(tables), folder, name, setting)
    known = read(folder, options)
    for job in compare.plan(runs_alone(tables), folder)[0]:
        key = f"{job.name}, seed {job.seed}"
        if key in known or not (job.folder / SUMMARY).is_file():
            continue
        try:
            found = measure.measure(job.folder, network, images=options.images, data_dir=setting.data_dir)
        except BadInput as error:  # an attacker that was never visited has made nothing; others have
            failed.append(f"{job.name}: {error}")
            continue
        known[key] = found
        records = {key: measure.as_record(one) for key, one in known.items()}
        files.write(folder / FILE, json.dumps({"options": vars(options), "runs": records}).encode())
    return failed


def read(folder: Path, options: Options) -> dict[str, Measured]:
    """What was measured with these options; nothing of a file that is missing, damaged or of others."""
    try:
        found = json.loads((folder / FILE).read_bytes())
        kept = found["runs"] if found["options"] == vars(options) else {}
        return {key: measure.from_record(one) for key, one in kept.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def gathered(tables: Tables, folder: Path) -> Finished:
    runs, known = runs_study.runs_there(runs_alone(tables), folder), read(folder, options_of(tables))
    figures: dict[str, list[Figures]] = {}
    pictures: list[Figure] = []
    jobs = compare.plan(runs_alone(tables), folder)[0]
    for seed in dict.fromkeys(job.seed for job in jobs):
        keys = {job.name: f"{job.name}, seed {seed}" for job in jobs if job.seed == seed}
        found = {name: known[key] for name, key in keys.items() if key in known}
        level = measure.common_accuracy(list(found.values()))
        for name, one in found.items():
            figures.setdefault(name, []).append({"seed": seed, **measure.figures_at(one, level)})
        if found and not pictures:  # of several seeds the first is drawn
            pictures = drawn(found, {job.name: job.folder for job in jobs if job.seed == seed})
    return Finished(runs.runs, {name: tuple(mine) for name, mine in figures.items()}, pictures=tuple(pictures))


def drawn(found: Mapping[str, Measured], folders: Mapping[str, Path]) -> list[Figure]:
    """The distances over accuracy, and the images themselves."""
    runs = [report.load(folders[name]) for name in found]
    return [*page.curves(found, min(one.images for one in found.values())), *recovered.figures(runs, list(found))]


def check(tables: Tables, data_dir: Path | None) -> None:
    networks.chosen(options_of(tables).features)
    runs_study.check(runs_alone(tables), data_dir)


RECOVERY = Study(runs_study.run_names, runs_study.chosen_runs, carried_out, gathered, check)
