"""docs/extend.md names every extension point, its examples do what they say, and its MOON is the package's."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import tomllib
from abc import ABC
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay import config
from fedrelay.algorithms import ALGORITHMS, fedavg, fedseq, moon
from fedrelay.config.catalogue import KINDS
from fedrelay.config.choices import CHOICES
from fedrelay.data.sources import FILES
from fedrelay.tasks import LOSSES, METRICS, Headline, Workspaces

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
SHORT_FORMS = ("pulls", "objectives")  # parts of TERMS
MADE_OF_OTHERS = ("data",)  # SOURCES and FILES


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(fr.__path__, "fedrelay."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


@pytest.fixture(scope="module")
def examples() -> Iterator[dict[str, object]]:
    """What the page's examples define, run one after another."""
    names: dict[str, object] = {}
    before = dict(LOSSES)
    for block in blocks("python"):
        exec(compile(block, "extend.md", "exec"), names)
    yield names
    LOSSES.clear()
    LOSSES.update(before)


def model(state) -> torch.Tensor:
    (params,) = fr.deployed(state).vectors
    return params


def test_every_abstract_class_is_on_the_page():
    classes = {name for module in modules() for name, value in vars(module).items() if is_abstract(value)}
    assert {"Work", "Trait", "Plan", "Merge", "Engine", "Term", "Sampler", "Loss", "Metric", "Predictor"} <= classes
    assert [name for name in sorted(classes) if f"`{name}`" not in PAGE] == []


def is_abstract(value: object) -> bool:
    own = inspect.isclass(value) and value.__module__.startswith("fedrelay.")
    return own and (ABC in value.__bases__ or inspect.isabstract(value))


def test_everything_that_a_configuration_chooses_from_a_table_is_on_the_page():
    assert [kind.__name__ for kind in CHOICES if f"`{kind.__name__}`" not in PAGE] == []


def test_every_table_is_on_the_page():
    tables = {kind: table for kind, table in KINDS.items() if kind not in (*SHORT_FORMS, *MADE_OF_OTHERS)}
    tables |= {"losses": LOSSES, "metrics": METRICS, "files": FILES, "sources": fr.data.SOURCES}
    named: dict[str, set[str]] = {kind: set() for kind in tables}
    for module in modules():
        for name, value in vars(module).items():
            for kind, table in tables.items():
                if value is table:
                    named[kind].add(name)
    assert [kind for kind, names in named.items() if not any(f"`{name}`" in PAGE for name in names)] == []


def test_every_part_is_one_row_and_says_what_must_be_written():
    """Of every abstract class, the members without a default are in its row."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    for module in modules():
        for name, value in vars(module).items():
            if is_abstract(value) and value.__module__ == module.__name__:
                (row,) = [row for row in rows if f"`{name}`" in row.split(" | ")[1]]
                assert all(f"`{member}" in row for member in value.__abstractmethods__), name


def test_the_files_and_folders_that_the_page_names_are_there():
    named = set(re.findall(r"`((?:[a-z0-9_]+/)+(?:[a-z0-9_]+\.py)?|types\.py)`", PAGE))
    assert len(named) > 20
    places = (ROOT / "src" / "fedrelay", ROOT)
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_the_quoted_moon_is_the_whole_file_in_its_order():
    file = (ROOT / "src" / "fedrelay" / "algorithms" / "moon.py").read_text(encoding="utf-8")
    quoted = "\n".join(blocks("python moon.py"))
    assert [line for line in quoted.splitlines() if line] == [line for line in file.splitlines() if line]


def test_the_quoted_row_is_that_of_the_table():
    (row,) = blocks("python row")
    table = (ROOT / "src" / "fedrelay" / "algorithms" / "__init__.py").read_text(encoding="utf-8")
    assert row in table
    assert ALGORITHMS["moon"].recipe is moon


def test_moon_runs_from_the_configuration_of_the_page(tmp_path):
    (table,) = blocks("toml")
    tables = {"rounds": 2, "data": {"name": "digits", "clients": 10}, "model": {"name": "mlp", "hidden": [8]}}
    experiment = config.build({**tables, "local": {"steps": 2}, **tomllib.loads(table)})
    everybody = {"local": fr.Sgd(steps=2), "fraction": 1.0}  # of ten
    assert experiment.algorithm == fr.method(fedseq(max_clients=5), moon(mu=1.0), **everybody)
    assert len(list(experiment.record(tmp_path / "run").run())) == 2


def test_moon_of_the_page_changes_what_fedavg_does_and_with_mu_0_it_does_not(examples):
    run = examples["run"]
    plain = model(run(fedavg()))
    assert torch.equal(model(run(moon(mu=0.0))), plain)
    assert not torch.equal(model(examples["contrast"]), plain)


def test_the_term_is_weight_decay(examples):
    expected = examples["run"](local=fr.Sgd(batch=16, lr=0.1, weight_decay=0.1))
    np.testing.assert_allclose(model(examples["decayed"]), model(expected), atol=1e-6)


def test_the_optimiser_moves_every_number_by_whole_steps(examples):
    local, task, federation = examples["SignSgd"](steps=3, lr=0.5), examples["task"], examples["federation"]
    start = task.init(0)
    visit = fr.types.Visit(federation.client(0), task, {}, {}, 1, 0, 0, Workspaces(task))
    after, _, _ = local(fr.types.Baton(start), visit)
    steps = (after.params - start) / 0.5
    np.testing.assert_allclose(steps, steps.round(), atol=1e-5)
    assert set(steps.round().abs().unique().tolist()) <= {0.0, 1.0, 2.0, 3.0}


def test_the_schedule_is_a_factor(examples):
    assert [examples["WarmUp"](4)(round) for round in (1, 2, 4, 9)] == [0.25, 0.5, 1.0, 1.0]
    plain, warmed = model(examples["run"](fedavg())), model(examples["warmed"])
    assert not torch.equal(plain, warmed)


def test_the_work_needs_no_training(examples):
    assert examples["disturbed"].log.train_loss is None
    assert examples["disturbed"].log.clients == 10


def test_the_plan_is_one_chain_of_everybody_in_the_order_of_sizes(examples):
    state, sizes = examples["in_order"], examples["federation"].sizes
    assert (state.log.chains, state.log.depth) == (1, 20)
    ordered = [sizes[client] for client in state.memo["order"]]
    assert ordered == sorted(sizes, reverse=True)


def test_the_sampler_draws_the_largest(examples):
    sizes = examples["federation"].sizes
    found = [sizes[client] for client in examples["largest"].participants]
    assert sorted(found, reverse=True) == sorted(sizes, reverse=True)[:5]


def test_trait_distance_grouper_and_growth_make_groups(examples):
    assert [len(group) for group in examples["unlike"].memo["groups"]] == [4] * 5
    assert examples["numbered"].memo["groups"] == tuple(tuple(range(n, n + 4)) for n in range(0, 20, 4))
    assert examples["doubled"].log.groups == 4  # in round 3
    first, *_ = fr.train(fr.method(fedseq(traits=examples["MeanInput"](), groups=5)), examples["engine"], rounds=1)
    assert first.log.describing == {"messages": 20, "bytes": 20 * 64 * 4}  # the means, and no model


def test_the_merge_goes_half_the_way(examples):
    start, whole = examples["task"].init(0), model(examples["run"](rounds=1))
    np.testing.assert_allclose(model(examples["half_way"]), (start + whole) / 2, atol=1e-6)


def test_the_loss_is_used_through_the_model(examples):
    other, federation = examples["other"], examples["federation"]
    found = fr.evaluate(fr.deployed(examples["ahead"]), federation.test, Workspaces(other))
    assert found["loss"] < 0.9  # that of an output that is always the same
    assert found["accuracy"] > 0.2
    assert other.headline == Headline("accuracy", higher_is_better=True, share=True)


def test_the_predictor_has_all_models_vote(examples):
    assert len(fr.deployed(examples["voted"], examples["voting"]).vectors) == 4


def test_the_source_is_dealt_evenly(examples):
    assert examples["striped"].sizes == (50,) * 8
    assert set(np.concatenate([part.rows for part in map(examples["striped"].client, range(8))])) == set(range(400))


def test_the_engine_relays_what_the_inner_one_does(examples):
    assert examples["counting"].chains == 3 * 10
    assert torch.equal(model(examples["counted"]), model(examples["run"](fedavg())))
