"""The kinds of study: rows are named before they are done, done once, and gathered with their figures."""

from __future__ import annotations

import pytest
from example_item import TABLES
from needs import needed
from rich.console import Console

from fedrelay.errors import BadInput
from fedrelay.studies import features
from fedrelay.studies.recovery import measure
from fedrelay.studies.reproduce import feature_study
from fedrelay.studies.reproduce.studies import STUDIES
from fedrelay.studies.reproduce.study import Setting

BASE = {key: value for key, value in TABLES["experiment"].items() if key not in ("runs", "algorithm")}
QUIET = Setting(Console(quiet=True))


def test_formulas_are_reckoned_as_the_paper_counts():
    # FedELMY 2024, Fig. 5: ten clients, models of 46.2 MB; a chain sends N - 1, a star N, a mesh N (N - 1)
    tables = {
        "clients": 10,
        "model": 46.2e6,
        "runs": {"FedELMY": {"method": "fedelmy"}, "DENSE": {"method": "dense"}, "DFedSAM": {"method": "dfedsam"}},
    }
    study = STUDIES["formulas"]
    found = study.gather(tables, None)
    assert study.rows(tables) == ["FedELMY", "DENSE", "DFedSAM"]
    assert [found.figures[row][0]["models"] for row in study.rows(tables)] == [9, 10, 90]
    assert found.figures["FedELMY"][0]["bytes"] == pytest.approx(415.8e6)
    with pytest.raises(BadInput, match="unknown name 'fedelm'; did you mean 'fedelmy'"):
        study.gather({"clients": 10, "model": 1, "runs": {"A": {"method": "fedelm"}}}, None)


def test_a_sweep_has_a_row_for_every_value_and_is_not_done_twice(tmp_path, monkeypatch):
    tables = {**BASE, "algorithm": {"name": "fedavg"}, "tune": {"over": {"local.lr": [0.01, 0.3]}}}
    study = STUDIES["tune"]
    assert study.rows(tables) == ["lr = 0.01", "lr = 0.3"]
    assert study.carry_out(tables, tmp_path, "sweep", QUIET) == []
    found = study.gather(tables, tmp_path)
    assert set(found.figures) == {"lr = 0.01", "lr = 0.3"}
    assert sum(figures[0]["test"] is not None for figures in found.figures.values()) == 1  # only the best is tested
    before = (tmp_path / "tune.json").stat().st_mtime_ns
    study.carry_out(tables, tmp_path, "sweep", QUIET)
    assert (tmp_path / "tune.json").stat().st_mtime_ns == before
    assert not study.gather({**tables, "tune": {"over": {"local.lr": [0.01, 0.2]}}}, tmp_path).figures


@pytest.mark.parametrize("kind", ["compare", "tune"])
def test_runs_of_a_study_are_done_on_a_cluster_if_one_is_named(kind, tmp_path):
    needed("ray")
    more = {
        "compare": {"runs": {"A": {"algorithm": {"name": "fedavg"}}}},
        "tune": {"tune": {"over": {"local.lr": [0.1]}}},
    }
    tables = {**BASE, "algorithm": {"name": "fedavg"}, "engine": {"name": "inline"}, **more[kind]}
    with pytest.raises(BadInput, match=r"nobody answers at address '127\.0\.0\.1:1'"):
        STUDIES[kind].carry_out(tables, tmp_path, "far", Setting(Console(quiet=True), ray="127.0.0.1:1"))


def test_groupings_have_rows_for_clients_groups_and_epochs_alone(tmp_path):
    groups = {"traits": ["histogram"], "groupers": ["greedy", "random"], "distances": ["cosine"], "groups": 2}
    tables = {**BASE, "groups": {**groups, "repeats": 1, "epochs": [1]}}
    study = STUDIES["groups"]
    rows = ["clients alone", "histogram · greedy · cosine", "random", "1 epochs alone"]
    assert study.rows(tables) == rows
    study.carry_out(tables, tmp_path, "groups", QUIET)
    found = study.gather(tables, tmp_path)
    assert list(found.figures) == rows
    assert all(len(seeds) == 2 for seeds in found.figures.values())
    assert found.figures["clients alone"][0]["number"] == 10
    assert found.figures["histogram · greedy · cosine"][0]["number"] == 2
    assert not study.gather({**tables, "groups": groups}, tmp_path).figures  # other tables: not done


def test_features_are_drawn_once_for_every_finished_run(tmp_path, monkeypatch):
    tables = {
        **BASE,
        "seeds": [0],
        "features": {"points": 30, "perplexity": 5.0},
        "runs": {"FedAvg": {"algorithm": {"name": "fedavg"}}},
    }
    study = STUDIES["features"]
    assert study.carry_out(tables, tmp_path, "features", QUIET) == []
    found = study.gather(tables, tmp_path)
    assert 0 <= found.figures["FedAvg"][0]["alike"] <= 1
    assert len(found.pictures) == 1
    assert sum(len(trace["x"]) for trace in found.pictures[0].spec["data"]) == 30
    monkeypatch.setattr(features, "place", None)  # would fail if it were called
    assert study.carry_out(tables, tmp_path, "features", QUIET) == []
    assert feature_study.read(tmp_path, feature_study.Options()) == {}  # others are not taken for these


def test_distances_of_recovered_images_are_measured_once_for_every_finished_run(tmp_path, monkeypatch):
    attack = {"name": "recovery", "epochs": 1, "width": 1, "images": 20, "every": 1, "who": {"name": "count"}}
    tables = {
        **BASE,
        "seeds": [0],
        "model": {"name": "small_cnn", "channels": [2]},
        "attack": attack,
        "evaluate": {"every": 1},
        "recovery": {"features": "pixels"},
        "runs": {"FedAvg": {"rounds": 3, "algorithm": {"name": "fedavg", "fraction": 1.0}}},
    }
    study = STUDIES["recovery"]
    assert study.carry_out(tables, tmp_path, "recovery", QUIET) == []
    found = study.gather(tables, tmp_path)
    assert found.figures["FedAvg"][0]["fid_received"] > 0
    assert [figure.key for figure in found.pictures][:2] == ["fid", "kid"]
    monkeypatch.setattr(measure, "measure", None)  # would fail if it were called
    assert study.carry_out(tables, tmp_path, "recovery", QUIET) == []
    assert not study.gather({**tables, "recovery": {"features": "pixels", "images": 9}}, tmp_path).figures
