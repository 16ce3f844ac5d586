"""Pages of runs of one round: bars and points in place of curves, and words that fit, with a server or without."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest
from invented_runs import line_of, run_folder

from fedrelay import report
from fedrelay.report import draws, figures, measures
from fedrelay.report.headline import headline, notes, others

BETWEEN_CLIENTS = {
    "messages": {"server_to_client": 0, "client_to_server": 0, "client_to_client": 9},
    "bytes": {"server_to_client": 0, "client_to_server": 0, "client_to_client": 900},
}


def one_round(tmp_path, accuracy=0.5, *, sent=None, **line):
    totals = {"bytes": {"server_to_client": 0, "client_to_server": 0, "client_to_client": sent, "total": sent}}
    changes = {"best_accuracy": accuracy, "final_accuracy": accuracy, "accuracy": accuracy}
    changes |= totals if sent is not None else {}
    return report.load(run_folder(tmp_path, [line_of(1, accuracy, **line)], rounds=1, **changes))


def test_one_round_has_a_bar_for_every_run_and_points_where_runs_lie_apart(tmp_path):
    runs = [one_round(tmp_path / "a", 0.5), one_round(tmp_path / "b", 0.25, depth=7)]
    drawn = {figure.key: figure for figure in figures.curves(runs, ["a", "b"])}
    for figure in drawn.values():
        go.Figure(figure.spec)
    assert drawn["rounds"].title == "Test accuracy"
    first, second = drawn["rounds"].spec["data"]
    assert (first["type"], first["x"], first["y"]) == ("bar", [50], [0])
    assert (second["x"], second["y"]) == ([25], [1])
    assert drawn["loss"].spec["data"][1]["x"] == [0.75]
    hops = drawn["hops"].spec["data"]
    assert [(trace["x"], trace["y"]) for trace in hops] == [([3], [50]), ([7], [25])]
    assert all(trace["marker"]["size"] > 5 for trace in hops)  # a point without a line must be seen


def test_a_run_that_is_at_its_first_round_of_many_has_curves(tmp_path):
    going = report.load(run_folder(tmp_path / "going", [line_of(1)], finished=False))
    assert not measures.once([going])
    assert figures.curves([going], ["going"])[0].title == "Test accuracy over rounds"


def test_a_run_of_several_rounds_that_was_tested_once_has_no_curve_but_one_of_its_loss(tmp_path):
    lines = [line_of(1, None), line_of(2, None), line_of(3, 0.5)]
    run = report.load(run_folder(tmp_path / "run", lines, rounds=3))
    titles = [figure.title for figure in figures.curves([run], ["run"])]
    assert "Test accuracy" in titles
    assert "Training loss over rounds" in titles


def test_what_was_tested_is_told_where_it_is_not_one_model(tmp_path):
    mixed = report.load(run_folder(tmp_path / "mixed", tested="the mean of 10 models"))
    plain = [report.load(run_folder(tmp_path / name, tested="the model")) for name in ("a", "b")]
    names = ["mixed", "a", "b"]
    assert "What was tested: the mean of 10 models (mixed); the model (a and b)." in notes([mixed, *plain], names)
    assert not any("tested" in note for note in notes(plain, names[1:]))


def test_a_reference_of_many_rounds_is_a_bar_beside_runs_of_one(tmp_path):
    reference = report.load(run_folder(tmp_path / "centralized", algorithm="centralized"))
    runs = [one_round(tmp_path / "a", 0.5), reference]
    bars = figures.curves(runs, ["a", "centralized"])[0].spec["data"]
    assert [trace["x"] for trace in bars] == [[50], [90]]  # its last test


def test_a_run_that_was_not_tested_keeps_its_place_without_a_bar(tmp_path):
    runs = [one_round(tmp_path / "a", None), one_round(tmp_path / "b", 0.5)]
    first, second = figures.curves(runs, ["a", "b"])[0].spec["data"]
    assert (first["x"], first["y"]) == ([], [])
    assert second["y"] == [1]


def test_the_headline_names_the_best_and_who_sent_least(tmp_path):
    runs = [one_round(tmp_path / "a", 0.5, sent=4000), one_round(tmp_path / "b", 0.75, sent=9000)]
    assert headline(runs, ["a", "b"]) == "b has the best accuracy: 75.0 %; a sent the least (4.0 kB)."
    assert others(runs, ["a", "b"]) is None
    assert headline(runs[:1], ["a"]) == "a has the best accuracy: 50.0 %."
    alike = [one_round(tmp_path / "c", 0.5), one_round(tmp_path / "d", 0.25)]
    assert headline(alike, ["c", "d"]) == "c has the best accuracy: 50.0 %."


@pytest.mark.parametrize(("sent", "said"), [(BETWEEN_CLIENTS, "there is no server"), ({}, "models were merged")])
def test_a_server_is_named_only_where_there_is_one(tmp_path, sent, said):
    lines = [line_of(number, **sent) for number in (1, 2)]
    run = report.load(run_folder(tmp_path / "run", lines, finished=False))
    assert measures.serverless([run]) is bool(sent)
    assert said in figures.curves([run], ["run"])[0].caption


def test_runs_that_were_tested_once_are_compared_by_all_their_work(tmp_path):
    """Three rounds of 20 examples are as much as one round of 60."""
    slow = [line_of(number, 0.5 if number == 3 else None, examples=20, visits=2) for number in (1, 2, 3)]
    runs = [
        report.load(run_folder(tmp_path / "three", slow, rounds=3)),
        one_round(tmp_path / "one", 0.5, visits=6),
    ]
    assert notes(runs, ["three", "one"]) == []
    more = one_round(tmp_path / "more", 0.5, visits=6, examples=120)
    assert notes([*runs, more], ["three", "one", "more"]) == [
        "The runs differ in examples (three 60, one 60, more 120), so they did not have the same work."
    ]
    many = [more, *runs * 4]
    names = [f"run {number}" for number in range(9)]
    assert "examples (from run 1 60 to run 0 120)" in notes(many, names)[0]


def test_without_shares_nothing_is_said_of_a_target(tmp_path):
    none = {"rounds_to": {}, "traffic_to": {}}
    run_folder(tmp_path / "run", **none)
    page = report.write([tmp_path / "run"], tmp_path / "page.html").read_text()
    assert "The target is" not in page
    assert "Reaching the target" not in page
    assert "What came out" in page


def test_one_round_has_no_curves_of_who_was_drawn(tmp_path):
    assert draws.curves([one_round(tmp_path / "a", classes=5)], ["a"]) == []
    several = report.load(run_folder(tmp_path / "b", [line_of(n, classes=5) for n in (1, 2)], finished=False))
    assert [figure.key for figure in draws.curves([several], ["b"])] == ["classes"]


def test_the_page_of_one_round_opens(tmp_path):
    one_round(tmp_path / "a", 0.5)
    page = report.write([tmp_path / "a"], tmp_path / "page.html").read_text()
    assert "Test accuracy over rounds" not in page
    assert "After the last round." in page
