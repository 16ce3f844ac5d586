"""Runs that are still under way: seeds find their own partners, and no claim is judged by what may change."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_item import tables

from fedrelay.runs.costs import DIRECTIONS
from fedrelay.runs.folder import Run
from fedrelay.runs.log import RoundLog
from fedrelay.studies.reproduce import markdown
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.item import Paper
from fedrelay.studies.reproduce.measures import SpeedUp
from fedrelay.studies.reproduce.outcome import dumped, outcome_of, read
from fedrelay.studies.reproduce.reading import column_of, item_of

NONE = dict.fromkeys(DIRECTIONS, 0)


def run(seed, *accuracies):
    """A run of three rounds that has come as far as these tests; its target is 0.8."""
    logs = [RoundLog(n, 1, 1, 1, 10, 0.1, NONE, NONE, metrics={"accuracy": a}) for n, a in enumerate(accuracies, 1)]
    config = {"seed": seed, "rounds": 3, "evaluate": {"target": 0.8, "smooth": 1, "last": 1}}
    return Run("run", Path(), config, logs, None)


def outcome(fedavg, fedseq, **changes):
    item = item_of(tables(**changes), "mine", Paper("", ""))
    return outcome_of(item, "paper", {"mixed": Finished({"FedAvg": fedavg, "FedSeq": fedseq})})


LOW, HIGH = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
WHOLE = (run(0, *LOW), run(1, *LOW))


@pytest.mark.parametrize(
    ("fedseq", "verdict"),
    [
        ((run(0, *HIGH), run(1, *HIGH)), "held"),
        ((run(0, *HIGH), run(1, *HIGH[:2])), "not tried"),  # a round is still to come
        ((run(0, *HIGH),), "not tried"),  # a seed is
    ],
)
def test_a_claim_is_judged_when_all_its_runs_have_ended(fedseq, verdict):
    assert outcome(WHOLE, fedseq).claims[0].verdict == verdict
    falling = {"text": "FedSeq is worse", "panel": "mixed", "column": "accuracy", "falling": ["FedAvg", "FedSeq"]}
    other = "not held" if verdict == "held" else "not tried"
    assert outcome(WHOLE, fedseq, claims=[falling]).claims[0].verdict == other


def test_what_was_reached_is_judged_before_the_end():
    first = {"text": "FedSeq is first", "panel": "mixed", "column": "rounds", "falling": ["FedAvg", "FedSeq"]}
    columns = [{"name": "rounds", "measure": "rounds_to", "share": 1.0}]
    changes = {"claims": [first], "columns": columns, "paper": {}}
    slow = (run(0, 0.1, 0.9), run(1, 0.1, 0.9))
    assert outcome(slow, (run(0, 0.9), run(1, 0.9)), **changes).claims[0].verdict == "held"
    assert outcome(slow, (run(0, 0.9),), **changes).claims[0].verdict == "not tried"


def test_a_row_beside_one_that_has_not_ended_is_open_too():
    columns = [{"name": "gained", "measure": "final", "minus": "FedAvg"}]
    least = {"text": "it gains", "panel": "mixed", "column": "gained", "least": {"FedSeq": 0.1}}
    changes = {"claims": [least], "columns": columns, "paper": {}}
    fedseq = (run(0, *HIGH), run(1, *HIGH))
    assert outcome(WHOLE, fedseq, **changes).claims[0].verdict == "held"
    assert outcome((run(0, *LOW), run(1, 0.1)), fedseq, **changes).claims[0].verdict == "not tried"


def test_what_is_missing_is_told_and_read_back(tmp_path):
    found = outcome(WHOLE, (run(1, *HIGH[:2]),))
    assert markdown.unfinished(found) == ["mixed, FedSeq: 2 of 3 rounds, 1 of 2 seeds"]
    (tmp_path / "results.json").write_bytes(dumped(found))
    assert read(tmp_path / "results.json") == found


def test_seeds_are_paired_by_their_number_and_not_by_their_place():
    found = Finished({"A": (run(0, 0.9), run(1, 0.1, 0.9)), "B": (run(1, 0.1, 0.2, 0.3, 0.9),)})
    (speed,) = SpeedUp(1.0, "B")(found, "A")
    assert (speed.value, speed.seed) == (2.0, 1)  # 4 rounds by the 2 of seed 1, not by the 1 of seed 0
    column = column_of({"name": "gain", "measure": "final", "minus": "A"}, "[[columns]] 1")
    early = Finished({"A": (run(0, 0.1), run(1, 0.5)), "B": (run(1, 0.75),)})
    (gain,) = column.measure(early, "B")
    assert gain.value == 0.25


def test_figures_and_means_of_panels_are_paired_by_seed_too():
    content = tables(
        columns=[{"name": "value", "measure": "final"}],
        means={"both": {"of": ["one class", "mixed"]}},
        paper={},
        claims=[],
    )
    panels = {"one class": Finished({"FedAvg": WHOLE}), "mixed": Finished({"FedAvg": (run(1, 0.1, 0.2, 0.5),)})}
    made = outcome_of(item_of(content, "mine", Paper("", "")), "paper", panels)
    cell = made.parts[2].cell("FedAvg", "value")
    assert (cell.seeds, cell.ours, cell.open) == (1, 0.4, True)
    column = column_of({"name": "gain", "measure": "figure", "figure": "v", "minus": "A"}, "[[columns]] 1")
    figures = {"A": ({"seed": 3, "v": 1.0}, {"seed": 4, "v": 5.0}), "B": ({"seed": 4, "v": 7.0},)}
    assert [reading.value for reading in column.measure(Finished(figures=figures), "B")] == [2.0]
