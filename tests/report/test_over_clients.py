"""Curves of what the model is worth on all clients' own examples."""

from __future__ import annotations

import plotly.graph_objects as go
from invented_runs import line_of, run_folder

from fedrelay import report
from fedrelay.report import over_clients


def test_every_figure_over_clients_has_a_curve(tmp_path):
    own = {"train_loss": 2.0, "train_loss_deviation": 0.5, "test_accuracy": 0.5, "test_accuracy_deviation": 0.25}
    lines = [line_of(number, 0.5, over_clients=own if number % 2 else {}) for number in range(1, 6)]
    runs = [report.load(run_folder(tmp_path / "asked", lines)), report.load(run_folder(tmp_path / "old"))]
    found = over_clients.curves(runs, ["asked", "old"])
    assert [figure.title for figure in found] == [
        "Global training loss",
        "Training loss of clients, deviation",
        "Test accuracy of clients (%)",
        "Test accuracy of clients, deviation (%)",
    ]
    assert [figure.spec["data"][0]["y"] for figure in found] == [[2.0] * 3, [0.5] * 3, [50.0] * 3, [25.0] * 3]
    assert found[0].spec["data"][0]["x"] == found[0].spec["data"][0]["customdata"] == [1, 3, 5]
    assert found[0].spec["data"][1]["x"] == []
    for figure in found:
        go.Figure(figure.spec)
    assert "Global training loss" in report.html(runs)


def test_runs_that_were_not_asked_have_none(tmp_path):
    assert over_clients.curves([report.load(run_folder(tmp_path / "old"))], ["old"]) == []
