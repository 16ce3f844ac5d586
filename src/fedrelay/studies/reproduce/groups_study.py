"""Groupings without training: the rows are groupings, the clients alone, and models after some epochs alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrelay import config
from fedrelay.studies import groupings
from fedrelay.studies.groupings import results
from fedrelay.studies.groupings.request import label_of
from fedrelay.studies.reproduce.finished import Figures, Finished
from fedrelay.studies.reproduce.kinds_apart import kinds_apart
from fedrelay.studies.reproduce.study import Setting, Study, Tables, all_rows, of_seeds

ALONE = "clients alone"
"""The row of the clients before they are grouped."""
NOMINAL = 1000
"""Pixels that no probe has which is really asked for."""
SHOWN = 10
"""Groups in a picture of what is in them, as in the papers (FedSeq 2022, Figs. 6-8)."""


def request_of(tables: Tables) -> groupings.Request:
    data = config.section_of(tables, "data")
    section = config.section_of(tables, "groups")
    return groupings.read(section, config.section_of(tables, "algorithm"), exemplars=bool(data.get("exemplars", 0)))


def grouping_names(tables: Tables) -> list[str]:
    """The rows. They are asked for wherever items are listed, so a probe's file of weights need not be there."""
    section = dict(config.section_of(tables, "groups"))
    stands_for = {}
    if isinstance(section.get("traits"), list):
        nominal = [without_file(trait, number) for number, trait in enumerate(section["traits"])]
        stands_for = {
            label_of(new): label_of(old) for new, old in zip(nominal, section["traits"], strict=True) if new != old
        }
        section["traits"] = nominal
    request = request_of({**tables, "groups": section})
    combinations = request.combinations()
    made = [row_name(stands_for.get(trait, trait), grouper, distance) for trait, grouper, distance, _ in combinations]
    return [ALONE, *made, *(after(epochs) for epochs in request.epochs)]


def without_file(trait: Any, number: int) -> Any:
    """The same trait, its probe one that needs no file; the number keeps two of them apart."""
    probe = trait.get("probe") if isinstance(trait, dict) and "name" in trait else None
    if not isinstance(probe, dict) or "weights" not in probe:
        return trait
    return {**trait, "probe": {"name": "efficientnet_lite0", "side": NOMINAL + number}}


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
    """The figures of every seed, and the pictures of the first."""
    rows: dict[str, list[Figures]] = {}
    there = {
        one["seed"]: found for one, place in of_seeds(tables, folder) if (found := found_of(one, place)) is not None
    }
    for seed, found in there.items():
        for name, figures in figures_of(found).items():
            rows.setdefault(name, []).append({"seed": seed, **figures})
    pictures = tuple(results.drawn(next(iter(there.values())), most=SHOWN)) if there else ()
    return Finished(figures={name: tuple(figures) for name, figures in rows.items()}, pictures=pictures)


def figures_of(found: Mapping[str, Any]) -> dict[str, Figures]:
    """The rows of one study of groupings."""
    numbers = ("number", "balance_ratio", "covered_classes", "cpd", "cpd_mean", "seconds")
    apart = kinds_apart(found.get("distances", ()))
    made = {
        row_name(one["trait"], one["grouper"], one["distance"]): {
            **{key: one.get(key) for key in numbers},
            "kinds_apart": apart.get(one["trait"]),
        }
        for one in found["groupings"]
    }
    alone = {
        after(one["epochs"]): {key: one[key] for key in ("epochs", "norm", "components")}
        for one in found["pretraining"]
    }
    box = found.get("clients_cpd_box") or {}  # those of before there was one have none
    clients = {"number": found["clients"], "cpd": found["clients_cpd"], "cpd_mean": box.get("mean")}
    return {ALONE: clients, **made, **alone}


def check(tables: Tables, data_dir: Path | None) -> None:
    request_of(tables)
    rest = {key: value for key, value in tables.items() if key not in ("groups", "seeds")}
    config.build({**rest, "algorithm": {"name": "fedavg"}}, data_dir)


# Describing the clients, which takes the time, is the same for all rows.
GROUPS = Study(grouping_names, all_rows, grouped, groupings_there, check)
