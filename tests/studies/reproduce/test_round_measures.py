"""Columns that look at single rounds, on runs that are written down by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedrelay import BadInput
from fedrelay.runs.costs import DIRECTIONS
from fedrelay.runs.folder import Run
from fedrelay.runs.log import RoundLog
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.measures import MEASURES

NONE = dict.fromkeys(DIRECTIONS, 0)


def log(round: int, accuracy: float | None = None, **others: Any) -> RoundLog:
    metrics = {} if accuracy is None else {"accuracy": accuracy}
    return RoundLog(round, 1, 1, 1, 10, 0.1, NONE, NONE, metrics=metrics, **others)


def read(measure: str, *logs: RoundLog, **options: Any) -> float | None:
    """What a column finds in one run of these rounds."""
    found = Finished({"row": (Run("row", Path(), {}, list(logs), None),)})
    (reading,) = MEASURES[measure](**options)(found, "row")
    return reading.value


def test_a_figure_after_a_round_and_what_it_gained_since():
    rounds = [log(number, number / 10) for number in (1, 2, 3)]
    assert read("at_round", *rounds, round=2) == 0.2
    assert read("at_round", *rounds, round=3, since=1) == pytest.approx(0.2)
    assert read("at_round", *rounds, round=4) is None
    with pytest.raises(BadInput, match="round"):
        MEASURES["at_round"](round=0)


def test_a_mean_is_over_the_rounds_that_the_run_itself_takes():
    """Of four tests 0.1, 0.2, 0.3 and 0.7: its last three rounds have two, in rounds 4 and 6."""
    rounds = [log(n, {1: 0.1, 3: 0.2, 4: 0.3, 6: 0.7}.get(n)) for n in range(1, 7)]
    run = Run("row", Path(), {"evaluate": {"last": 4, "last_rounds": 3}}, rounds, None)
    (reading,) = MEASURES["accuracy"]()(Finished({"row": (run,)}), "row")
    assert reading.value == pytest.approx(0.5)
    without = replace(run, config={"evaluate": {"last": 4, "last_rounds": "none"}})
    (reading,) = MEASURES["accuracy"]()(Finished({"row": (without,)}), "row")
    assert reading.value == pytest.approx(1.3 / 4)
    assert read("accuracy", *rounds, rounds=4) == pytest.approx(0.4)
    assert read("accuracy", *rounds, tests=1) == 0.7


def test_a_figure_over_clients_is_a_mean_over_the_last_rounds():
    rounds = [log(number, over_clients={"train_loss": value}) for number, value in ((1, 9.0), (3, 2.0), (4, 1.0))]
    rounds.insert(1, log(2))  # a round that was not evaluated counts nothing
    assert read("over_clients", *rounds, figure="train_loss") == 1.0
    assert read("over_clients", *rounds, figure="train_loss", rounds=2) == 1.5
    assert read("over_clients", *rounds, figure="train_loss", rounds=3) == 1.5
    assert read("over_clients", *rounds, figure="test_loss") is None


def test_a_jump_is_the_mean_way_from_one_test_to_the_next():
    rounds = [log(1, 0.5), log(2), log(3, 0.75), log(4, 0.25)]
    assert read("jump", *rounds) == pytest.approx((0.25 + 0.5) / 2)
    assert read("jump", log(1, 0.5)) is None


def test_who_was_drawn_is_a_mean_or_a_share_of_rounds():
    rounds = [log(number, sampling={"distinct": seen}, classes=6) for number, seen in enumerate((10, 9, 10, 8), 1)]
    assert read("a_round", *rounds, what="distinct") == 9.25
    assert read("a_round", *rounds, what="distinct", least=10) == 0.5
    assert read("a_round", *rounds, what="classes") == 6
    assert read("a_round", log(1), what="classes") is None


def test_distances_of_a_pool_have_a_range_and_a_trend():
    line = [[abs(one - two) for two in range(4)] for one in range(4)]  # models at equal steps on a line
    assert read("pool", log(1, pool={"client": 0, "distances": line}), what="range") == 3
    assert read("pool", log(1, pool={"client": 0, "distances": line}), what="trend") == pytest.approx(1)
    apart = [[float(one != two) for two in range(4)] for one in range(4)]  # every two equally far from one another
    assert read("pool", log(1, pool={"client": 0, "distances": apart}), what="range") == 1
    assert read("pool", log(1, pool={"client": 0, "distances": apart}), what="trend") is None
    assert read("pool", log(1), what="range") is None
