"""Every item of the package reads, names only what there is, and runs at the scale smoke."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedrelay.cli import main
from fedrelay.studies import compare
from fedrelay.studies.reproduce import library, scales
from fedrelay.studies.reproduce.item import SCALES

NAMES = library.names()


@pytest.mark.parametrize("name", NAMES)
def test_every_item_has_rows_and_a_reason_at_every_scale(name):
    (item,) = library.wanted(name)
    assert set(item.scales) == {"small", "smoke"}
    assert all(scale.why for scale in item.scales.values())
    for scale in SCALES:
        for panel in scales.panels_of(item, scale):
            assert scales.rows_of(item, scale, panel)


@pytest.mark.parametrize("name", [name for name in NAMES if library.item_of(name).study == "compare"])
@pytest.mark.parametrize("scale", SCALES)
def test_no_two_rows_of_a_panel_are_the_same_run(name, scale):
    item = library.item_of(name)
    for panel in scales.panels_of(item, scale):
        jobs, _ = compare.plan(scales.tables_of(item, scale, panel), Path())
        rows: dict[str, set[str]] = {}
        for job in jobs:
            rows.setdefault(json.dumps(job.tables, sort_keys=True), set()).add(job.name)
        assert [same for same in rows.values() if len(same) > 1] == [], panel


@pytest.mark.parametrize("name", NAMES)
def test_every_item_runs_at_the_scale_smoke(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", name, "--scale", "smoke", "--out", "out"]) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert found["item"] == name
    ours = [cell for part in found["parts"] for line in part["lines"] for cell in line["cells"].values()]
    assert any(cell["ours"] is not None or cell["beyond"] is not None for cell in ours)
    assert (tmp_path / "out" / "table.md").read_text(encoding="utf-8") in capsys.readouterr().out


def test_the_list_has_every_name_whole_in_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["reproduce"]) == 0
    said = capsys.readouterr().out
    assert [name for name in library.names() if f" {name} " not in said] == []
