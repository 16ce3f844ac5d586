"""Items that show the runs of another item."""

from __future__ import annotations

import json

import pytest

from fedrelay.cli import main
from fedrelay.errors import BadInput
from fedrelay.studies.reproduce import library, scales
from fedrelay.studies.reproduce.reading import read

BASE = """
title = "a table"
where = "Table 1"
study = "compare"
[experiment]
rounds = 1
data = { name = "digits", clients = 4 }
model = { name = "logistic" }
[experiment.runs]
FedAvg = {}
FedProx = { algorithm = { name = "fedprox" } }
[panels.one]
[panels.two]
seed = 1
[scales.small]
why = "less"
panels = ["one", "two"]
change_in = { two = { seed = 2 } }
[scales.smoke]
why = "least"
panels = ["one"]
[[columns]]
name = "accuracy"
measure = "accuracy"
"""
LIKE = """
title = "a figure"
where = "Figure 1"
like = "table1"
panels = ["one"]
runs = ["FedProx"]
[[columns]]
name = "best"
measure = "best"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "table1.toml").write_text(BASE)
    (tmp_path / "figure1.toml").write_text(LIKE)
    return tmp_path


def test_an_item_that_is_like_another_has_its_experiment_with_the_panels_and_runs_that_it_names(folder):
    base, item = read(folder / "table1.toml"), read(folder / "figure1.toml")
    assert item.experiment == base.experiment
    assert scales.panels_of(item, "small") == ["one"]
    assert scales.rows_of(item, "paper", "one") == ["FedProx"]
    assert [column.name for column in item.columns] == ["best"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('like = "table1"', 'like = "table2"', "like: there is no other item 'table2' beside figure1.toml"),
        ('like = "table1"', 'like = "figure1"', "like: there is no other item 'figure1' beside figure1.toml"),
        ('panels = ["one"]', 'panels = ["three"]', "panels: 'table1' has no 'three'"),
        ('runs = ["FedProx"]', 'runs = ["FedPox"]', "runs: there is no 'FedPox'; did you mean 'FedProx'"),
        ('like = "table1"', 'like = "table1"\nstudy = "groups"', "study is taken from 'table1' and cannot be said"),
        ('like = "table1"\npanels = ["one"]\n', "", "only one that is `like` another chooses some"),
    ],
)
def test_mistakes_are_told_with_the_file_and_the_key(folder, old, new, message):
    (folder / "figure1.toml").write_text(LIKE.replace(old, new))
    with pytest.raises(BadInput) as refused:
        read(folder / "figure1.toml")
    assert str(refused.value).startswith(str(folder / "figure1.toml"))
    assert message in str(refused.value)


def test_an_item_cannot_be_like_one_that_is_like_another(folder):
    (folder / "figure2.toml").write_text(LIKE.replace('like = "table1"', 'like = "figure1"'))
    with pytest.raises(BadInput, match="'figure1' is itself like 'table1': name that one"):
        read(folder / "figure2.toml")


def test_runs_that_a_figure_shares_with_a_table_are_done_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert library.item_of("fedgsp/figure6").like == "fedgsp/table1"
    assert main(["reproduce", "fedgsp/figure6", "--scale", "smoke"]) == 0
    table, figure = (tmp_path / "runs" / "reproduce" / "fedgsp" / name / "smoke" for name in ("table1", "figure6"))
    logs = {path: path.read_bytes() for path in table.glob("runs/*/seed-0/rounds.jsonl")}
    assert {path.parent.parent.name for path in logs} == {"FedAvg", "FedGSP"}
    assert json.loads((figure / "results.json").read_bytes())["item"] == "fedgsp/figure6"
    assert json.loads((table / "results.json").read_bytes())["item"] == "fedgsp/table1"
    assert main(["reproduce", "fedgsp/table1", "--scale", "smoke"]) == 0
    assert {path: path.read_bytes() for path in logs} == logs  # seconds are in there: done again, they would differ
    lines = json.loads((table / "results.json").read_bytes())["parts"][0]["lines"]
    assert all(line["cells"]["accuracy"]["ours"] is not None for line in lines if line["name"] in ("FedAvg", "FedAdam"))
