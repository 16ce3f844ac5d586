"""How examples are split among clients, without any training: every row is a split.

`[experiment.runs.NAME]` says what differs in its `data`. The figures are those of `fedrelay data show`; the pictures
have a square for every class of every client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedrelay import config
from fedrelay.config.federation import federate
from fedrelay.data.heterogeneity import describe
from fedrelay.errors import BadInput
from fedrelay.report.figures import Figure, Spec, axes
from fedrelay.studies import compare
from fedrelay.studies.reproduce.finished import Figures, Finished
from fedrelay.studies.reproduce.runs_study import chosen_runs, run_names
from fedrelay.studies.reproduce.study import Setting, Study, Tables
from fedrelay.system import files

FILE = "splits.json"
"""In the folder of the panel: what was found of every split."""
FEW = 12
"""Up to so many clients have their names written out."""


def found_out(tables: Tables, folder: Path, name: str, setting: Setting) -> list[str]:
    """Look at every split that was not looked at yet."""
    known = read(folder)
    for job in compare.plan(tables, folder)[0]:
        section = config.section_of(job.tables, "data")
        if (one := known.get(key_of(job))) is None or one["data"] != section:
            known[key_of(job)] = {"data": section, **looked_at(section, job.seed, setting.data_dir)}
            folder.mkdir(parents=True, exist_ok=True)
            files.write(folder / FILE, (json.dumps(known) + "\n").encode())
    return []


def key_of(job: compare.Job) -> str:
    return f"{job.name}, seed {job.seed}"


def looked_at(section: Tables, seed: int, data_dir: Path | None) -> dict[str, Any]:
    """The figures of a split, and how many examples of which class every client has."""
    federation, _ = federate(section, seed, data_dir)
    about = describe(federation)
    if (mix := about["mix"]) is None:
        raise BadInput(f"the examples of {about['source']} do not have one class each, so there are no class mixes")
    figures = {
        "clients": about["clients"],
        "smallest": about["sizes"]["smallest"],
        "largest": about["sizes"]["largest"],
        "fewest_classes": mix["classes_per_client"]["smallest"],
        "median_classes": mix["classes_per_client"]["median"],
        "total_variation": mix["total_variation"],
    }
    source = federation.source
    classes = source.class_names or tuple(map(str, range(source.classes)))
    return {
        "figures": figures,
        "counts": federation.label_counts().tolist(),
        "clients": list(federation.names),
        "classes": list(classes),
    }


def read(folder: Path) -> dict[str, Any]:
    """What was found before; nothing of a file that is missing, damaged or another program's."""
    try:
        return dict(json.loads((folder / FILE).read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def gathered(tables: Tables, folder: Path) -> Finished:
    known = read(folder)
    figures: dict[str, list[Figures]] = {}
    pictures: list[Figure] = []
    for job in compare.plan(tables, folder)[0]:
        one = known.get(key_of(job))
        if one is None or one["data"] != config.section_of(job.tables, "data"):
            continue
        if job.name not in figures:  # of several seeds the first is drawn
            pictures.append(picture(job.name, one, len(pictures)))
        figures.setdefault(job.name, []).append({"seed": job.seed, **one["figures"]})
    return Finished(figures={name: tuple(mine) for name, mine in figures.items()}, pictures=tuple(pictures))


def picture(name: str, found: Mapping[str, Any], number: int) -> Figure:
    """A square for every class of every client: the darker, the more examples (FedELMY 2024, Fig. 4)."""
    caption = "Examples of every class (down) that every client (to the right) has."
    spec = squares(found["counts"], found["clients"], found["classes"])
    return Figure(f"split{number}", name, caption, spec, wide=True)


def squares(counts: Sequence[Sequence[int]], clients: Sequence[str], classes: Sequence[str]) -> Spec:
    few = len(clients) <= FEW
    trace: Spec = {
        "type": "heatmap",
        "z": [list(row) for row in zip(*counts, strict=True)],
        "zmin": 0,
        "zmax": max(map(max, counts)),
        "colorscale": "Blues",
        "reversescale": True,
        "colorbar": {"thickness": 10},
        "hovertemplate": "class %{y} at client %{x}: %{z}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }
    layout = axes("Client", "Class")
    layout["height"] = 160 + 22 * min(len(classes), 30)
    layout["xaxis"] |= {"showgrid": False, "rangemode": "normal"}
    layout["yaxis"] |= {"showgrid": False, "autorange": "reversed"}
    for axis, names in (("xaxis", clients if few else ()), ("yaxis", classes if len(classes) <= 30 else ())):
        if names:
            layout[axis] |= {"tickvals": list(range(len(names))), "ticktext": [escape(name) for name in names]}
    return {"data": [trace], "layout": layout}


SPLITS = Study(run_names, chosen_runs, found_out, gathered)
