"""Columns that count messages, estimate costs, and set rows beside one another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedrelay.cli import main
from fedrelay.errors import BadInput
from fedrelay.runs.folder import Run
from fedrelay.runs.log import RoundLog
from fedrelay.runs.summary import Evaluate, summarise
from fedrelay.studies.reproduce.finished import Finished, Reading
from fedrelay.studies.reproduce.measures import MEASURES
from fedrelay.studies.reproduce.outcome import Head
from fedrelay.studies.reproduce.reading import column_of

FOUND = Finished(figures={"clients": ({"cpd": 0.5}, {"cpd": 0.4}), "groups": ({"cpd": 0.1}, {"cpd": None})})
SENT = dict.fromkeys(("server_to_client", "client_to_server", "client_to_client"), 1)


@pytest.mark.parametrize(("key", "value"), [("per", 0.2), ("less_than", 0.8), ("minus", -0.4)])
def test_a_row_is_set_beside_another_seed_by_seed(key, value):
    column = column_of({"name": "beside", "measure": "cpd", key: "clients"}, "[[columns]] 1")
    first, second = column.measure(FOUND, "groups")
    assert first.value == pytest.approx(value)
    assert second.value is None


def test_a_column_is_beside_one_row_only():
    with pytest.raises(BadInput, match=r"\[\[columns\]\] 1: say one of per, less_than, minus, not per and minus"):
        column_of({"name": "beside", "measure": "cpd", "per": "a", "minus": "b"}, "[[columns]] 1")


def test_what_is_set_beside_nothing_is_nothing():
    column = column_of({"name": "beside", "measure": "cpd", "per": "nobody"}, "[[columns]] 1")
    assert column.measure(FOUND, "groups") == []


@pytest.mark.parametrize(("unit", "title"), [("s", "time (s)"), ("GB", "time (GB)"), ("%", "time"), ("", "time")])
def test_a_unit_stands_above_its_column_unless_every_number_has_it(unit, title):
    assert Head("time", unit).title == title


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Table 3 of the journal paper, which is the same at every scale."""
    folder = tmp_path_factory.mktemp("table3")
    assert main(["reproduce", "fedseq-journal/table3", "--scale", "smoke", "--out", str(folder / "out")]) == 0
    (part,) = json.loads((folder / "out" / "results.json").read_bytes())["parts"]
    return {line["name"]: line["cells"] for line in part["lines"]}


def test_runs_send_as_many_messages_as_the_formulas_of_table_3_say(counted):
    cells = [cell for row in counted.values() for cell in row.values() if cell["paper"] is not None]
    assert len(cells) == 6 * 5
    assert all(cell["ours"] == pytest.approx(cell["paper"]) for cell in cells)


def test_the_formulas_of_table_3_come_to_what_the_text_works_out(counted):
    assert counted["FedSeq, equal groups"]["total @ round"]["paper"] == pytest.approx(0.2 * (50 + 500))
    assert counted["SCAFFOLD"]["total @ round"]["paper"] == 2 * counted["FedAvg"]["total @ round"]["paper"]


def test_the_estimated_time_to_communicate_is_proportional_to_the_share_of_groups(tmp_path):
    assert main(["reproduce", "fedgsp/figure5", "--scale", "smoke", "--out", str(tmp_path / "out")]) == 0
    (part,) = json.loads((tmp_path / "out" / "results.json").read_bytes())["parts"]
    found = {line["name"]: line["cells"]["normalised T_comm"]["ours"] for line in part["lines"]}
    # FedGSP 2022, Eq. 16: T_comm = 8 kappa K M R (1/R_in + 1/R_out)
    assert found == pytest.approx({"kappa 0.1": 0.1, "kappa 0.3": 0.3, "kappa 1.0": 1.0})


@pytest.mark.parametrize(("losses", "rise"), [((0.9, 0.5, 0.4), 0.0), ((0.9, 0.4, 0.6), 0.2), ((), None)])
def test_a_loss_that_goes_up_after_its_least_has_risen(losses, rise):
    logs = [RoundLog(n, 1, 1, 1, 1, 1.0, SENT, SENT, metrics={"loss": loss}) for n, loss in enumerate(losses, 1)]
    found = Finished(runs={"row": (Run("row", Path(), {}, logs, None),)})
    (reading,) = MEASURES["loss_rise"](tests=1)(found, "row")
    assert reading.value == (None if rise is None else pytest.approx(rise))


@pytest.mark.parametrize(
    ("what", "whole", "until"),
    [("seconds", 100.0, 40.0), ("communication_share", 0.9, 0.8), ("traffic_bytes", 7.0, 3.0)],
)
def test_the_time_is_computing_and_communicating_together(what, whole, until):
    reached = estimated({"computing_seconds": 10.0, "communication_seconds": 90.0, "traffic_bytes": 7.0}, "0.8")
    (in_all,) = MEASURES["estimate"](what=what)(reached, "row")
    (to_target,) = MEASURES["estimate"](what=what, share=0.8)(reached, "row")
    assert (in_all.value, to_target.value) == (pytest.approx(whole), pytest.approx(until))


def test_a_time_that_was_not_enough_lies_beyond_that_of_the_whole_run():
    never = estimated({"computing_seconds": 10.0, "communication_seconds": 90.0}, "0.7")
    assert MEASURES["estimate"](what="seconds", share=0.8)(never, "row") == [Reading(beyond=100.0)]
    assert MEASURES["estimate"](what="communication_share", share=0.8)(never, "row") == [Reading()]


def estimated(whole: dict[str, float], share: str) -> Finished:
    """One run with these estimates, and others until a share was reached."""
    logs = [RoundLog(1, 1, 1, 1, 1, 1.0, SENT, SENT, metrics={"accuracy": 0.5})]
    plain = summarise("row", logs, Evaluate(), params_sha256="")
    until = {"computing_seconds": 8.0, "communication_seconds": 32.0, "traffic_bytes": 3.0}
    summary = replace(plain, estimates=whole, estimates_to={what: {share: value} for what, value in until.items()})
    return Finished(runs={"row": (Run("row", Path(), {}, logs, summary),)})
