from __future__ import annotations

import pytest
from invented_runs import ACCURACIES, line_of, run_folder

from fedrelay import __version__, report
from fedrelay.report.one_line import federation
from fedrelay.report.time_left import TimeLeft
from fedrelay.runs.folder import read_summary
from fedrelay.studies.compared import Row
from fedrelay.studies.in_one_line import in_one_line


def test_a_run_says_what_was_done_how_good_it_is_and_what_it_took(tmp_path):
    line = report.one_line(report.load(run_folder(tmp_path / "one")))
    assert line == (
        "fedseq on digits, shards: 90.0 % after 4 rounds, 90 % of 80.0 % in round 4, 4.0 kB, seed 0, "
        f"fedrelay {__version__}"
    )


def test_a_target_of_everything_is_not_mentioned_nor_one_that_was_not_reached(tmp_path):
    whole = run_folder(tmp_path / "whole", target=1.0, rounds_to={"0.7": 3, "0.9": None})
    assert ": 90.0 % after 4 rounds, 70 % in round 3, 4.0 kB," in report.one_line(report.load(whole))
    never = run_folder(tmp_path / "never", rounds_to={"0.7": None})
    assert ": 90.0 % after 4 rounds, 4.0 kB," in report.one_line(report.load(never))


def test_a_run_that_is_not_finished_says_so(tmp_path):
    lines = [line_of(number, accuracy) for number, accuracy in enumerate(ACCURACIES[:3], 1)]
    going = run_folder(tmp_path / "going", lines, finished=False)
    assert ": 60.0 % after 3 rounds (not finished), 3.0 kB," in report.one_line(report.load(going))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"name": "digits", "clients": 100, "partition": {"name": "dirichlet", "alpha": 0.0}}, "100 clients, alpha 0"),
        ({"name": "digits", "clients": 1, "partition": {"name": "one_class", "size": 5}}, "1 client, one class"),
        ({"name": "digits", "clients": 9, "partition": "iid"}, "9 clients, iid"),
        ({"name": "digits", "clients": 9, "partition": {"name": "natural"}}, "9 clients"),
    ],
)
def test_a_federation_is_its_data_its_clients_and_how_unlike_they_are(data, words):
    assert federation({"data": data}) == f"digits, {words}"
    assert federation({"data": data | {"name": "table", "path": "data/hospitals.csv"}}) == f"hospitals.csv, {words}"


def test_a_comparison_has_the_best_first_and_what_the_runs_have_in_common(tmp_path):
    rows = []
    for name, accuracies in (("fedavg", (0.5, 0.7)), ("fedseq", (0.8, 0.8))):
        summaries = []
        for seed, accuracy in enumerate(accuracies):
            folder = run_folder(tmp_path / name / f"seed-{seed}", algorithm=name, accuracy=accuracy)
            summaries.append(read_summary(folder / "summary.json"))
        rows.append(Row(name, tuple(summaries), seeds=(0, 1)))
    rows.append(Row("lost", (), ("it failed",), (0, 1)))
    common = f"on digits, shards, 4 rounds, seeds 0, 1, fedrelay {__version__}"
    line = in_one_line(rows, tmp_path)
    assert line.startswith("accuracy: fedseq 80.0 %, fedavg 60.0 % ± 14.1 % on "), line
    assert line.endswith(common)
    assert in_one_line(rows[2:], tmp_path) == ""


def test_time_left_is_the_rest_at_the_pace_so_far():
    now = [0.0]
    left = TimeLeft("runs", 4, lambda: now[0])
    assert (left.seconds, left.__rich__().plain) == (None, "all: 0 of 4 runs")
    now[0] = 30.0
    left.at(1)
    assert left.seconds == 90.0
    assert left.__rich__().plain == "all: 1 of 4 runs, about 90.0 s left"
    now[0] = 40.0
    assert left.seconds == 80.0
    left.at(0)  # a part that is told again takes nothing back
    assert left.done == 1
    now[0] = 1000.0
    assert left.seconds == 0.0
