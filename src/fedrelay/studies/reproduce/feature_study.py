"""Runs side by side, and then where their models put the test examples: features in the plane (t-SNE).

`[experiment.features]` may say `points`, `perplexity` and `seed`; the rest is a comparison. The figure `alike` is how
often the nearest example is of the same class.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrelay import config
from fedrelay.config import schema
from fedrelay.errors import BadInput
from fedrelay.report.figures import Figure
from fedrelay.report.scatter import Cloud, cloud_figure
from fedrelay.runs.folder import SUMMARY
from fedrelay.studies import compare, features
from fedrelay.studies.reproduce import runs_study
from fedrelay.studies.reproduce.finished import Figures, Finished
from fedrelay.studies.reproduce.study import Setting, Study, Tables
from fedrelay.system import files

FILE = "features.json"
"""In the folder of the panel: what was found of every finished run."""


@dataclass(frozen=True)
class Options:
    """How features are drawn."""

    points: int = features.POINTS
    perplexity: float = features.PERPLEXITY
    seed: int = 0


def options_of(tables: Tables) -> Options:
    built, _ = schema.build(Options, config.section_of(tables, "features"), "[features]", {})
    assert isinstance(built, Options)
    return built


def runs_alone(tables: Tables) -> dict[str, Any]:
    return {key: value for key, value in tables.items() if key != "features"}


def carried_out(tables: Tables, folder: Path, name: str, setting: Setting) -> list[str]:
    """The runs, then the features of those that are done; what was drawn already is not drawn again."""
    failed = runs_study.compared(runs_alone(tables), folder, name, setting)
    options = options_of(tables)
    known = read(folder, options)
    for job in compare.plan(runs_alone(tables), folder)[0]:
        key = f"{job.name}, seed {job.seed}"
        if key in known or not (job.folder / SUMMARY).is_file():
            continue
        try:
            placed = features.place(
                job.folder,
                points=options.points,
                perplexity=options.perplexity,
                seed=options.seed,
                data_dir=setting.data_dir,
            )
        except BadInput as error:  # a method without one model in common has no features to draw; the others have
            failed.append(f"{job.name}: {error}")
            continue
        known[key] = as_record(placed)
        files.write(folder / FILE, json.dumps({"options": vars(options), "runs": known}).encode())
    return failed


def as_record(placed: features.Placed) -> dict[str, Any]:
    return {
        "alike": float(placed.alike.mean()),
        "right": float(placed.right.mean()),
        "places": placed.places.round(3).tolist(),
        "labels": placed.labels.tolist(),
        "classes": list(placed.class_names),
    }


def read(folder: Path, options: Options) -> dict[str, Any]:
    """What was drawn with these options; nothing of a file that is missing, damaged or of others."""
    try:
        found = json.loads((folder / FILE).read_bytes())
        return dict(found["runs"]) if found["options"] == vars(options) else {}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def gathered(tables: Tables, folder: Path) -> Finished:
    runs, known = runs_study.runs_there(runs_alone(tables), folder), read(folder, options_of(tables))
    figures: dict[str, list[Figures]] = {}
    pictures: list[Figure] = []
    for job in compare.plan(runs_alone(tables), folder)[0]:
        found = known.get(f"{job.name}, seed {job.seed}")
        if found is None:
            continue
        if job.name not in figures:  # of several seeds the first is drawn
            pictures.append(picture(job.name, found, len(pictures)))
        figures.setdefault(job.name, []).append({"seed": job.seed, **{key: found[key] for key in ("alike", "right")}})
    return Finished(runs.runs, {name: tuple(mine) for name, mine in figures.items()}, pictures=tuple(pictures))


def picture(name: str, found: Mapping[str, Any], number: int) -> Figure:
    """Test examples in the plane, by class."""
    cloud = Cloud(name, np.array(found["places"], np.float32), np.array(found["labels"]), tuple(found["classes"]))
    caption = f"{features.CAPTION} The nearest is of the same class for {found['alike']:.1%}."
    return cloud_figure(f"cloud{number}", cloud, caption)


def names(tables: Tables) -> list[str]:
    return runs_study.run_names(tables)


def check(tables: Tables, data_dir: Path | None) -> None:
    options_of(tables)
    runs_study.check(runs_alone(tables), data_dir)


FEATURES = Study(names, runs_study.chosen_runs, carried_out, gathered, check)
