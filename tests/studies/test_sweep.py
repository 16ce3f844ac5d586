"""The pictures of a sweep: curves over one setting, maps over two."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest
from invented_runs import round_log

from fedrelay.studies.sweep import figures
from fedrelay.studies.trials import trials_of
from fedrelay.tasks import Headline


def swept(grid, values, tmp_path, seeds=(0, 1)):
    """Trials whose seeds have these figures."""
    trials = trials_of(grid, tmp_path, seeds)
    for trial, by_seed in zip(trials, values, strict=True):
        for attempt, value in zip(trial.attempts, by_seed, strict=True):
            attempt.logs = [] if value is None else [round_log(1, value)]
    return trials


def drawn(trials, grid):
    (figure,) = figures(trials, grid)
    go.Figure(figure.spec)  # refuses an unknown property or value
    return figure, figure.spec["data"][0], figure.spec["layout"]


def test_over_one_number_there_is_a_curve_with_the_deviation_over_seeds(tmp_path):
    grid = {"algorithm.alpha": [0.4, 0.2, 0.6]}
    figure, trace, layout = drawn(swept(grid, [(0.5, 0.7), (0.2, 0.4), (0.9, 0.9)], tmp_path), grid)
    assert figure.title == "Validation accuracy over alpha"
    assert (trace["x"], trace["y"]) == ([0.2, 0.4, 0.6], pytest.approx([30, 60, 90]))
    assert trace["error_y"]["array"] == pytest.approx([2**0.5 * 10, 2**0.5 * 10, 0])
    assert layout["yaxis"]["ticksuffix"] == " %"
    assert "Mean over 2 seeds" in figure.caption


def test_values_far_apart_have_a_logarithmic_axis_with_a_mark_for_each(tmp_path):
    grid = {"local.lr": [0.001, 0.01, 1]}
    _, _, layout = drawn(swept(grid, [(0.5,), (0.6,), (0.7,)], tmp_path, seeds=()), grid)
    assert layout["xaxis"]["type"] == "log"
    assert layout["xaxis"]["ticktext"] == ["0.001", "0.01", "1"]


def test_orders_lie_side_by_side_as_they_were_given(tmp_path):
    grid = {"algorithm.order": [[3, 2, 1, 0], "random", [0, 1, 2, 3]]}
    figure, trace, layout = drawn(swept(grid, [(0.5,), (0.6,), (None,)], tmp_path, seeds=()), grid)
    assert (trace["mode"], trace["x"], trace["y"]) == ("markers", [0, 1], [50, 60])
    assert layout["xaxis"]["ticktext"] == ["[3, 2, 1, 0]", "random", "[0, 1, 2, 3]"]
    assert "error_y" not in trace
    assert "One seed" in figure.caption


def test_over_two_settings_there_is_a_map_with_its_figures(tmp_path):
    grid = {"algorithm.alpha": [1, 2], "algorithm.beta": [3, 4, 5], "local.batch": [16]}
    values = [(0.1,), (0.2,), (0.3,), (0.4,), (None,), (0.6,)]
    figure, trace, layout = drawn(swept(grid, values, tmp_path, seeds=()), grid)
    assert figure.title == "Validation accuracy over alpha and beta"
    assert trace["z"] == [[10, 40], [20, None], [30, 60]]  # rows are beta
    assert trace["text"][2] == ["30.0%", "60.0%"]
    assert (layout["xaxis"]["ticktext"], layout["yaxis"]["ticktext"]) == (["1", "2"], ["3", "4", "5"])


def test_of_errors_low_is_bright(tmp_path):
    grid = {"a": [1, 2], "b": [1, 2]}
    trials = swept(grid, [(0.1,), (0.2,), (0.3,), (0.4,)], tmp_path, seeds=())
    for trial in trials:
        trial.headline = Headline("accuracy", higher_is_better=False, share=False)
    _, trace, _ = drawn(trials, grid)
    assert trace["reversescale"]
    assert trace["z"] == [[0.1, 0.3], [0.2, 0.4]]


def test_values_that_were_stopped_early_are_told(tmp_path):
    grid = {"a": [1, 2]}
    trials = swept(grid, [(0.1,), (0.9,)], tmp_path, seeds=())
    trials[0].stopped = "hopeless"
    assert "1 of 2 values were stopped early" in drawn(trials, grid)[0].caption
    assert "--to-the-end" in drawn(trials, grid)[0].caption


def test_three_settings_or_no_figure_at_all_have_no_picture(tmp_path):
    grid = {"a": [1, 2], "b": [1, 2], "c": [1, 2]}
    assert figures(swept(grid, [(0.5,)] * 8, tmp_path, seeds=()), grid) == []
    assert figures(swept({"a": [1, 2]}, [(None,)] * 2, tmp_path, seeds=()), {"a": [1, 2]}) == []
