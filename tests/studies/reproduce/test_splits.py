"""Splits as items: figures and a square for every class of every client, without any training."""

from __future__ import annotations

import pytest
from rich.console import Console

from fedrelay import BadInput
from fedrelay.data import digits
from fedrelay.studies.reproduce import splits_study
from fedrelay.studies.reproduce.studies import STUDIES
from fedrelay.studies.reproduce.study import Setting

QUIET = Setting(Console(quiet=True))
TABLES = {
    "seeds": [0, 1],
    "data": {"name": "digits", "clients": 10, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "runs": {"one class": {}, "even": {"data": {"partition": {"name": "iid"}}}},
}


def test_a_split_has_figures_of_every_seed_and_one_picture(tmp_path, monkeypatch):
    study = STUDIES["splits"]
    assert study.rows(TABLES) == ["one class", "even"]
    assert not study.gather(TABLES, tmp_path).figures
    assert study.carry_out(TABLES, tmp_path, "splits", QUIET) == []
    found = study.gather(TABLES, tmp_path)
    alone, even = (found.figures[row] for row in ("one class", "even"))
    assert len(alone) == len(even) == 2
    assert [(one["fewest_classes"], one["median_classes"]) for one in alone] == [(1, 1), (1, 1)]
    # A client of one class among ten even ones lacks nine tenths of the overall mix.
    assert alone[0]["total_variation"] == pytest.approx(0.9, abs=0.01)
    assert even[0]["largest"] - even[0]["smallest"] <= 1
    (squares, _) = found.pictures
    (heat,) = squares.spec["data"]
    assert (len(heat["z"]), len(heat["z"][0])) == (10, 10)
    assert sum(map(sum, heat["z"])) == len(digits().train)
    monkeypatch.setattr(splits_study, "federate", None)  # would fail if it were called
    assert study.carry_out(TABLES, tmp_path, "splits", QUIET) == []


def test_another_split_of_the_same_name_is_looked_at_anew(tmp_path):
    study = STUDIES["splits"]
    study.carry_out(TABLES, tmp_path, "splits", QUIET)
    other = {**TABLES, "data": {**TABLES["data"], "clients": 20}}
    assert not study.gather(other, tmp_path).figures
    study.carry_out(other, tmp_path, "splits", QUIET)
    assert study.gather(other, tmp_path).figures["even"][0]["clients"] == 20


def test_examples_without_a_class_are_refused(tmp_path):
    tables = {"data": {"name": "diabetes", "clients": 4}, "runs": {"one": {}}}
    with pytest.raises(BadInput, match="diabetes do not have one class each"):
        STUDIES["splits"].carry_out(tables, tmp_path, "splits", QUIET)
