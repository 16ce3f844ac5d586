"""Clients and classes in the report: tables, pictures, the page in a browser, and the terminal."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest
from invented_runs import HOSPITALS, judged_folder, rendered, run_folder
from test_page import Tags

from fedrelay import report
from fedrelay.report import few_clients, judged


@pytest.fixture
def runs(tmp_path):
    one = judged_folder(tmp_path / "one", HOSPITALS)
    other = judged_folder(tmp_path / "other", {"Ulm": 0.4, "Genf": 0.6}, quality=None)
    return [report.load(one), report.load(other)]


def test_clients_of_several_runs_stand_beside_each_other_by_name(runs):
    listed = judged.by_client([judged.judged(run) for run in runs])
    assert {line.name: line.cells for line in listed.lines} == {
        "Ulm": ("90.0 %", "40.0 %"),
        "<b>Wien</b>": ("50.0 %", "–"),
        "Basel": ("70.0 %", "–"),
        "Genf": ("–", "60.0 %"),
    }


def test_the_spread_of_every_run_is_a_row(runs):
    columns = {column.title: column.cells for column in judged.spread([judged.judged(run) for run in runs])}
    assert columns["tested"] == ("3", "2")
    assert columns["worst"] == ("50.0 %", "40.0 %")
    assert columns["median"] == ("70.0 %", "50.0 %")
    assert columns["10th percentile"] == ("54.0 %", "42.0 %")
    assert columns["deviation"] == ("16.3 %", "10.0 %")  # of 90, 50 and 70: √(800 / 3)


def test_of_many_clients_the_worst_are_shown(tmp_path):
    many = {f"h{number}": number / 100 for number in range(100)}
    run = report.load(judged_folder(tmp_path / "many", many))
    listed = judged.by_client([judged.judged(run)])
    assert listed.clients == 100
    assert [line.name for line in listed.lines] == [f"h{number}" for number in range(judged.MOST_CLIENTS)]
    assert "of 100 clients" in Tags(report.html([run])).text


def test_the_commonest_mistakes_come_first(runs):
    found = judged.mistakes([judged.judged(run) for run in runs], ["one", "other"])
    assert [(each.truth, each.taken_for, each.times, each.share) for each in found] == [
        ("<dog>", "cat", 5, "50.0 %"),
        ("cat", "<dog>", 2, "20.0 %"),
        ("cow", "<dog>", 1, "10.0 %"),
    ]


def test_every_picture_of_clients_and_classes_is_one_that_plotly_accepts(runs):
    drawn = judged.figures(runs, [judged.judged(run) for run in runs], ["one", "other"])
    assert [figure.key for figure in drawn] == ["clients", "reliability", "confusion-0"]
    for figure in drawn:
        go.Figure(figure.spec)


def test_a_few_clients_are_drawn_by_name(runs):
    drawn = judged.figures(runs, [judged.judged(run) for run in runs], ["one", "other"])
    go.Figure(drawn[0].spec)
    assert drawn[0].title == "Accuracy of every client"
    first, second = drawn[0].spec["data"]
    assert (first["x"], first["y"]) == ([0, 1, 2], pytest.approx([90, 50, 70]))
    assert (second["meta"], second["marker"]["color"]) != (first["meta"], first["marker"]["color"])
    assert drawn[0].spec["layout"]["xaxis"]["ticktext"][:2] == ["Ulm", "&lt;b&gt;Wien&lt;/b&gt;"]


def test_many_clients_are_drawn_from_the_worst_to_the_best(runs, monkeypatch):
    monkeypatch.setattr(few_clients, "MOST", 2)
    drawn = judged.figures(runs, [judged.judged(run) for run in runs], ["one", "other"])
    first, second = drawn[0].spec["data"]
    assert first["y"] == pytest.approx([50, 70, 90])
    assert first["x"] == pytest.approx([100 / 3, 200 / 3, 100])
    assert first["text"] == ["&lt;b&gt;Wien&lt;/b&gt;", "Basel", "Ulm"]
    assert second["y"] == pytest.approx([40, 60])


def test_the_page_tells_of_clients_and_classes_and_names_are_text(runs):
    page = Tags(report.html(runs))
    assert "<b>Wien</b>" in page.text
    assert page.named("b") == []
    assert "Expected calibration error: one 12.5 %." in page.text
    assert "The commonest mistakes" in page.text


def test_a_page_of_runs_without_clients_has_no_such_part(tmp_path):
    page = Tags(report.html([report.load(run_folder(tmp_path / "run"))]))
    assert "What the final model is worth" not in page.text
    assert "commonest mistakes" not in page.text


def test_a_run_that_is_still_going_is_not_judged(tmp_path):
    run = report.load(judged_folder(tmp_path / "going", HOSPITALS, finished=False))
    assert judged.judged(run) == judged.Judged()


def test_a_loss_is_no_share_and_the_worst_is_the_largest(tmp_path):
    folder = judged_folder(tmp_path / "run", HOSPITALS)
    clients = json.loads((folder / "clients.json").read_text()) | {"headline": "loss", "higher_is_better": False}
    clients["clients"][2]["metrics"] = {"loss": 3.25}
    (folder / "clients.json").write_text(json.dumps(clients))
    found = [judged.judged(report.load(folder))]
    assert next(column for column in judged.spread(found) if column.title == "worst").cells == ("3.25",)
    go.Figure(judged.figures([report.load(folder)], found, ["run"])[0].spec)


def test_a_client_without_a_figure_has_a_dash_and_does_not_count(tmp_path):
    run = report.load(judged_folder(tmp_path / "run", HOSPITALS | {"Genf": None}))
    listed = judged.by_client([judged.judged(run)])
    assert next(line for line in listed.lines if line.name == "Genf").cells == ("–",)
    assert judged.judged(run).spread.clients == 3


def test_the_terminal_has_the_same_table(runs):
    text = rendered(report.client_table(runs), 100)
    assert "<b>Wien</b>" in text
    assert "10th percentile" in text
    assert "54.0 %" in text
    assert report.client_table([]) is None


def test_a_browser_draws_clients_calibration_and_confusion(runs, tmp_path, browser):
    path = report.write([run.folder for run in runs], tmp_path / "report.html")
    with browser.page(path.as_uri()) as page:
        page.wait("document.documentElement.dataset.drawn !== undefined")
        drawn = "document.querySelectorAll('[data-figure=\"0-{}\"] .{}').length"
        assert page.run(drawn.format("clients", "point")) == 5
        assert page.run(drawn.format("reliability", "point")) == 1
        assert page.run(drawn.format("confusion-0", "heatmaplayer image")) == 1
        assert page.complaints() == []
