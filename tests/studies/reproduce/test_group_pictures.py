"""Pictures and measures of items that group clients, and of runs that do more in a round than others."""

from __future__ import annotations

import plotly.graph_objects
import pytest

from fedrelay.cli import main
from fedrelay.studies.groupings import results
from fedrelay.studies.reproduce import library, scales
from fedrelay.studies.reproduce.carry_out import gather
from fedrelay.studies.reproduce.finished import Finished, Reading
from fedrelay.studies.reproduce.measures import MEASURES
from fedrelay.studies.reproduce.pictures import drawn

ALONE = {
    f"{epochs} epochs alone": ({"epochs": epochs, "norm": norm},) for epochs, norm in ((1, 10.0), (5, 6.0), (10, 5.0))
}


def smoked(name: str, folder, monkeypatch):
    """The pictures of an item at the scale smoke; Plotly refuses what it does not know."""
    monkeypatch.chdir(folder)
    (item,) = library.wanted(name)
    assert main(["reproduce", name, "--scale", "smoke", "--out", "out"]) == 0
    made = drawn(item, gather(item, "smoke", folder / "out"))
    for figure in made:
        plotly.graph_objects.Figure(figure.spec)
    return made


def test_every_number_of_epochs_has_its_matrix_and_all_have_a_curve(tmp_path, monkeypatch):
    curve, *matrices = smoked("fedseq/figure3", tmp_path, monkeypatch)
    assert curve.spec["data"][0]["x"] == [1, 5, 10, 20, 30, 40]
    assert [figure.title for figure in matrices][:2] == ["Models after 1 epoch alone", "Models after 5 epochs alone"]
    assert len(matrices) == 6


def test_an_item_like_another_draws_the_groupings_that_it_shows(tmp_path, monkeypatch):
    made = smoked("fedseq/figure6", tmp_path, monkeypatch)
    groupings = ["confidence · greedy · kl", "confidence · kmeans · euclidean", "random"]
    assert [figure.title for figure in made] == [f"CIFAR-10, alpha 0: {name}" for name in groupings]
    (item,) = library.wanted("fedseq/figure6")
    assert scales.rows_of(item, "smoke", "CIFAR-10, alpha 0") == groupings


def test_runs_that_have_trained_equally_much_end_at_the_same_place(tmp_path, monkeypatch):
    (figure,) = smoked("fedseq/figure9", tmp_path, monkeypatch)
    once, twice, four_times = (line["x"] for line in figure.spec["data"])
    assert [len(once), len(twice), len(four_times)] == [4, 2, 1]  # rounds of 1, 2 and 4 laps
    assert once[0] < twice[0] < four_times[0]
    assert once[-1] == pytest.approx(four_times[-1], rel=0.3)  # groups are not all of one size


def test_class_distances_of_groups_are_boxes_with_their_means(tmp_path, monkeypatch):
    made = smoked("fedgsp/figure3a", tmp_path, monkeypatch)
    box, means = made[0].spec["data"]
    assert made[0].spec["layout"]["yaxis"]["ticktext"] == ["clients", "histogram · icg · euclidean", "random"]
    (item,) = library.wanted("fedgsp/figure3a")
    (found,) = gather(item, "smoke", tmp_path / "out").values()
    rows = ["clients alone", "histogram · icg · euclidean", "random"]
    assert means["x"][0] == found.figures[rows[0]][0]["cpd_mean"]
    for place, row in enumerate(rows):
        figures = found.figures[row][0]
        assert 0 < figures["cpd_mean"] < figures["cpd"] * 5
        assert box["q1"][place] <= box["median"][place] <= box["q3"][place]
    assert box["median"][1] < box["median"][0]  # groups are more alike than clients


def test_a_panel_that_is_not_done_has_no_picture():
    for name in ("fedseq/figure3", "fedseq/figure6", "fedseq/figure9"):
        (item,) = library.wanted(name)
        assert drawn(item, {"": Finished()}) == []


def test_results_of_older_versions_have_no_pictures_but_are_no_mistake():
    old = {"pretraining": [{"epochs": 1, "norm": 1.0, "components": 0.5}], "groupings": [{"grouper": "random"}]}
    assert results.drawn(old) == []


def test_a_slope_is_the_change_since_the_row_before():
    slope = MEASURES["slope"](figure="norm", along="epochs")
    found = Finished(figures={"random": ({"number": 4},), **ALONE})
    assert [slope(found, row) for row in ALONE] == [[Reading()], [Reading(-1.0)], [Reading(pytest.approx(-0.2))]]
    assert slope(found, "random") == []
