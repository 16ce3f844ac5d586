"""The pictures of who was drawn."""

from __future__ import annotations

import pytest
from invented_runs import line_of, run_folder

from fedrelay import BadInput, report
from fedrelay.report import draws


def drawn(number: int, distinct: int, spread: float, classes: int | None):
    said = {"distinct": distinct, "expected_distinct": 9.0, "spread": spread, "expected_spread": 0.5}
    return line_of(number, sampling=said, classes=classes)


def loaded(folder, sampler: str, *lines):
    return report.load(run_folder(folder, list(lines), extra=f'sampler = {{ name = "{sampler}" }}\n'))


def test_draws_are_means_since_the_start_beside_what_theory_expects(tmp_path):
    run = loaded(tmp_path / "md", "md", drawn(1, 8, 0.25, 5), drawn(2, 10, 0.75, 7))
    classes, distinct, spread = draws.curves([run], ["md"])
    assert [figure.key for figure in (classes, distinct, spread)] == ["classes", "distinct", "spread"]
    assert [trace["y"] for trace in classes.spec["data"]] == [[5, 7]]
    assert [trace["y"] for trace in distinct.spec["data"]] == [[8, 9], [9, 9]]
    assert [trace["y"] for trace in spread.spec["data"]] == [[0.25, 0.5], [0.5, 0.5]]
    assert [trace["line"]["dash"] for trace in spread.spec["data"]] == ["solid", "dot"]
    assert "<html" in report.html([run])


def test_runs_that_draw_uniformly_have_only_their_classes_drawn(tmp_path):
    uniform = loaded(tmp_path / "uniform", "uniform", drawn(1, 8, 0.25, 5), drawn(2, 8, 0.25, 5))
    assert [figure.key for figure in draws.curves([uniform], ["uniform"])] == ["classes"]
    unknown = loaded(tmp_path / "unknown", "uniform", drawn(1, 8, 0.25, None))
    assert draws.curves([unknown], ["unknown"]) == []


def test_a_record_without_draws_is_an_old_one_and_one_with_nonsense_is_refused(tmp_path):
    assert report.load(run_folder(tmp_path / "old")).rounds[0].sampling == {}
    with pytest.raises(BadInput, match="sampling should hold numbers"):
        report.load(run_folder(tmp_path / "bad", [line_of(1, sampling={"distinct": "many"})]))
