"""What items ask for is what configurations know: every run of every panel at every scale, without any data.

With invented images in place of the paper's, one run of every data set is built for good, with the paper's networks;
and what cannot run for want of data (CIFAR-100, StackOverflow) runs on a little that is invented.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import published
import pytest

from fedrelay import config
from fedrelay.config import schema
from fedrelay.config.choices import CHOICES
from fedrelay.config.experiment import NUMBERS, OPTIONAL, SECTIONS, named
from fedrelay.config.federation import keys_of
from fedrelay.config.local import build_local
from fedrelay.config.method import build_method, usual_of
from fedrelay.data import PARTITIONS
from fedrelay.engines import ENGINES
from fedrelay.models import MODELS
from fedrelay.runs.log import RoundLog
from fedrelay.runs.loop import check_rounds
from fedrelay.runs.summary import Evaluate
from fedrelay.studies import compare, groupings
from fedrelay.studies.reproduce import library, scales
from fedrelay.studies.reproduce.item import SCALES, Item

IMAGES = {
    "cifar10": ([3, 32, 32], 10),
    "cifar100": ([3, 32, 32], 100),
    "mnist": ([1, 28, 28], 10),
    "femnist": ([1, 28, 28], 62),
    "pacs": ([3, 64, 64], 7),
    "office-caltech-10": ([3, 64, 64], 10),
    "tiny-imagenet": ([3, 64, 64], 200),
}
"""Shape and number of classes of the images that others take the place of."""


def runs_of(item: Item, scale: str, panel: str) -> dict[str, Mapping[str, Any]]:
    """The configurations that a panel asks for, by name; of formulas there are none, and of splits no whole ones."""
    tables = scales.tables_of(item, scale, panel)
    if item.study in ("compare", "features", "recovery"):
        whole = {key: value for key, value in tables.items() if key not in ("features", "recovery")}
        return {job.name: job.tables for job in compare.plan(whole, Path())[0]}
    if item.study == "splits":
        rest = {"algorithm": {"name": "fedavg"}, "model": {"name": "mlp"}}
        return {job.name: {**rest, **job.tables} for job in compare.plan(tables, Path())[0]}
    if item.study == "formulas":
        return {}
    if item.study == "groups":
        groups = {**tables["groups"], "traits": [probed(trait) for trait in tables["groups"].get("traits", [])]}
        asked = {key: value for key, value in groups.items() if value != []}
        groupings.read(asked, tables.get("algorithm", {}), exemplars=True)
    rest = {key: value for key, value in tables.items() if key not in ("groups", "tune", "seeds")}
    return {"": {"algorithm": {"name": "fedavg"}, **rest}}


def without_weights(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The same with a probe that needs no file of weights."""
    algorithm = config.section_of(tables, "algorithm")
    if "traits" not in algorithm:
        return dict(tables)
    return {**tables, "algorithm": {**algorithm, "traits": probed(algorithm["traits"])}}


def probed(trait: Any) -> Any:
    """A trait with a probe that needs no file."""
    probe = trait.get("probe") if isinstance(trait, dict) else None
    return {**trait, "probe": "model"} if isinstance(probe, dict) and "weights" in probe else trait


def check(tables: Mapping[str, Any]) -> None:
    """All that can be said against a configuration without its data."""
    schema.check_keys(tables, (*NUMBERS, *SECTIONS, *OPTIONAL), "configuration")
    part = {section: config.section_of(tables, section) for section in SECTIONS}
    local, _ = build_local(part["local"], "[local]", CHOICES, usual_of(part["algorithm"])[0])
    schema.build(Evaluate, part["evaluate"], "[evaluate]", CHOICES)
    algorithm, _ = build_method(part["algorithm"], local)
    check_rounds(algorithm, tables.get("rounds", algorithm.plan.rounds or 1))
    schema.check_keys(part["data"], keys_of(part["data"]["name"]), "[data]")
    if "partition" in part["data"]:
        schema.build_named(PARTITIONS, part["data"]["partition"], "[data].partition", CHOICES)
    named(MODELS, part["model"], "[model]", {})
    schema.choose(ENGINES, part["engine"].get("name", "auto"), "[engine]")


@pytest.mark.parametrize("name", library.names())
def test_every_run_of_an_item_is_one_that_configurations_know(name):
    item = library.item_of(name)
    for scale in SCALES:
        for panel in scales.panels_of(item, scale):
            for tables in runs_of(item, scale, panel).values():
                check(without_weights(tables))


def invented(data: Mapping[str, Any]) -> dict[str, Any]:
    """A few images of the same shape and classes, for a few clients."""
    shape, classes = IMAGES[data["name"]]
    few = {"examples": 2 * max(classes, 20), "test_examples": 2 * max(classes, 20)}
    return {"name": "synthetic", "shape": shape, "classes": classes, "clients": 4, "exemplars": 1, **few}


@pytest.mark.parametrize("name", library.names())
def test_a_run_of_every_data_set_can_be_built_at_the_papers_size(name):
    item = library.item_of(name)
    several = [runs_of(item, "paper", panel) for panel in scales.panels_of(item, "paper")]
    images = {tables["data"]["name"]: tables for runs in several for tables in list(runs.values())[-1:]}
    for tables in [images[data] for data in images if data in IMAGES]:
        built = config.build({**without_weights(tables), "data": invented(tables["data"])})
        assert built.tables["rounds"] == tables.get("rounds", built.tables["rounds"])
        assert built.task.classes == IMAGES[tables["data"]["name"]][1]


def run(tables: Mapping[str, Any], folder: Path, **changes: Any) -> list[RoundLog]:
    """Two rounds of these, in one process."""
    engine = {"name": "inline"}
    small = {**without_weights(tables), "rounds": 2, "engine": engine, **changes}
    return list(config.build(small, data_dir=folder).record(folder / "run").run())


@pytest.mark.parametrize("name", ["FedAvg", "FedSeq1 + FedDyn"])
def test_cifar_100_runs_on_invented_images(name, tmp_path):
    item = library.item_of("fedseq/table2")
    tables = runs_of(item, "paper", "CIFAR-100, alpha 0.2")[name]
    fewer = {"min_examples": 100} if "min_examples" in tables["algorithm"] else {}
    (*_, last) = run(tables, tmp_path, data=invented(tables["data"]), algorithm={**tables["algorithm"], **fewer})
    assert last.clients
    assert 0 <= last.metrics["accuracy"] <= 1


@pytest.mark.parametrize("name", ["FedAvg", "FedSeq"])
def test_stackoverflow_runs_on_invented_sentences(name, tmp_path):
    """The whole panel but for its size: the published files, the word LSTM, authors as clients, sampled tests."""
    said = {str(author): [f"how to sort {word}" for word in ("lists", "words", "odd")] for author in range(4)}
    published.stackoverflow_hdf5(tmp_path / "stackoverflow", said, {"9": ["how to sort words", "sort odd lists"] * 3})
    tables = runs_of(library.item_of("fedseq-journal/table2"), "paper", "STACKOVERFLOW")[name]
    fewer = {"groups": 2, "grouper": "random", "traits": "none", "distance": "none"} if name == "FedSeq" else {}
    changes = {
        "data": {**tables["data"], "clients": 4, "words": 6},
        "model": {**tables["model"], "embedding": 4, "hidden": 6},
        "algorithm": {**tables["algorithm"], "fraction": 0.5, **fewer},
        "evaluate": {**tables["evaluate"], "sample": 2},
    }
    first, last = run(tables, tmp_path, **changes)
    for log in (first, last):
        assert {"accuracy", "word_accuracy"} <= log.metrics.keys()
