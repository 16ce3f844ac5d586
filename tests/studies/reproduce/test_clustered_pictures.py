"""Pictures of clustered sampling and of sweeps, on runs that are written down by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedrelay.runs.costs import DIRECTIONS
from fedrelay.runs.folder import Run
from fedrelay.runs.log import RoundLog
from fedrelay.studies.reproduce import library
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.pictures import PICTURES

NONE = dict.fromkeys(DIRECTIONS, 0)


def run(name: str, values: list[float], **others: int) -> Run:
    """A run whose training loss and accuracy after each round are these."""
    logs = [
        RoundLog(
            number,
            1,
            1,
            1,
            10,
            0.1,
            NONE,
            NONE,
            metrics={"accuracy": value},
            over_clients={"train_loss": value},
            **others,
        )
        for number, value in enumerate(values, 1)
    ]
    return Run(name, Path(name), {}, logs, None)


def drawn(picture: str, item: str, **runs: Run):
    (found,) = library.wanted(item)
    panels = {"a panel": Finished({name: (mine,) for name, mine in runs.items()})}
    return PICTURES[picture](found, panels)


def test_the_rolling_loss_is_the_mean_over_fifty_rounds():
    values = [float(number) for number in range(1, 101)]
    (figure,) = drawn("rolling_50", "clustered/figure2", MD=run("MD", values))
    (line,) = figure.spec["data"]
    assert "a panel" in figure.title
    assert "50 rounds" in figure.title
    assert line["y"][0] == 1.0
    assert line["y"][-1] == pytest.approx((51 + 100) / 2)
    (plain,) = drawn("over_clients", "clustered/figure2", MD=run("MD", values))
    assert plain.spec["data"][0]["y"] == values


def test_classes_of_a_round_are_drawn_where_they_are_known():
    (figure,) = drawn("classes", "clustered/figure1", MD=run("MD", [0.1, 0.2], classes=7))
    assert figure.spec["data"][0]["y"] == [7, 7]
    assert drawn("classes", "clustered/figure1", MD=run("MD", [0.1])) == []


def test_a_sweep_is_drawn_over_the_values_in_its_rows_names():
    runs = {f"S = {value}": run("run", [0.1, value / 100]) for value in (10, 3, 5)}
    (found,) = library.wanted("fedelmy/figure11")
    item = replace(found, panels={"S": {}})
    panels = {"S": Finished({name: (mine, mine) for name, mine in runs.items()} | {"another": (run("x", [1.0]),)})}
    (figure,) = PICTURES["sweep"](item, panels)
    (line,) = figure.spec["data"]
    assert figure.title == "Accuracy over S"
    assert line["x"] == [3, 5, 10]
    assert line["y"] == pytest.approx([3, 5, 10])  # in percent
