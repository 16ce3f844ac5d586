"""Folders as users have them: damaged, empty, not finished, of other data. What can be shown is shown, and told."""

from __future__ import annotations

import json

import pytest
from invented_runs import line_of, run_folder
from test_page import Tags

from fedrelay import cli, report
from fedrelay.errors import BadInput
from fedrelay.report.federations import apart
from fedrelay.runs.salvage import salvaged


def damaged(folder, *, line, finished=True):
    """A run one line of which was written over."""
    run_folder(folder, finished=finished)
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    lines[line] = lines[line][:20] + "#####"
    (folder / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_damaged_lines_are_skipped_and_counted(tmp_path):
    found = salvaged(damaged(tmp_path / "run", line=1))
    assert [log.round for log in found.run.rounds] == [1, 3, 4]
    assert "1 damaged line of" in found.damage
    assert found.run.summary is not None
    page = Tags(report.write([tmp_path / "run"], tmp_path / "page.html").read_text())
    assert found.damage in page.text


def test_a_damaged_summary_leaves_a_run_without_an_end(tmp_path):
    folder = run_folder(tmp_path / "run")
    (folder / "summary.json").write_text("{")
    found = salvaged(folder)
    assert found.run.summary is None
    assert len(found.run.rounds) == 4
    assert "summary.json is damaged" in found.damage


def test_the_rest_is_still_made(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("no run")
    run_folder(tmp_path / "good")
    damaged(tmp_path / "bad", line=0, finished=False)
    names = ("good", "empty", "notes", "bad", "nowhere", "good")
    out = tmp_path / "page.html"
    assert cli.main(["report", *(str(tmp_path / name) for name in names), "--out", str(out)]) == 1
    told = capsys.readouterr().err
    for words in ("empty is empty", "notes has no run inside", "1 damaged line", "nowhere is not a run folder"):
        assert words in told
        assert words in out.read_text()
    runs, _ = report.gathered([tmp_path / name for name in names])
    assert [run.name for run in runs] == ["good", "bad"]


def test_nothing_but_empty_folders_is_refused(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="empty is empty: name a folder that"):
        report.gathered([tmp_path / "empty"])
    assert cli.main(["report", str(tmp_path / "empty"), "--out", str(tmp_path / "page.html")]) == 2
    assert not (tmp_path / "page.html").exists()


def test_a_folder_of_runs_stands_for_them_in_the_order_of_their_seeds(tmp_path):
    for seed in (0, 2, 10):
        run_folder(tmp_path / "all" / "FedAvg" / f"seed-{seed}", seed=seed)
    runs, said = report.gathered([tmp_path / "all"])
    assert [run.name for run in runs] == ["seed-0", "seed-2", "seed-10"]
    assert said == []


def test_runs_of_different_data_are_apart(tmp_path):
    split = "[data.split_of]\nx = 1\n"
    one, two = run_folder(tmp_path / "a"), run_folder(tmp_path / "b", data="mnist")
    other_seed = run_folder(tmp_path / "c", seed=1)
    more = run_folder(tmp_path / "d", extra=split)
    found = apart([report.load(folder) for folder in (one, two, other_seed, more)])
    assert [federation.places for federation in found] == [[0, 2], [1], [3]]
    assert found[1].words == "mnist, shards"


def test_runs_that_are_judged_by_other_examples_are_apart(tmp_path):
    one = run_folder(tmp_path / "a")
    other = run_folder(tmp_path / "b", extra='[evaluate]\non = "validation"\n')
    found = apart([report.load(folder) for folder in (one, other)])
    assert [federation.places for federation in found] == [[0], [1]]
    assert found[1].words == "digits, shards, by validation examples"


def test_the_same_seed_with_another_split_is_other_data(tmp_path):
    """Somebody has changed the table of a hospital between two runs."""
    folders = []
    for number, (seed, split) in enumerate(((0, "aa"), (1, "bb"), (0, "cc"))):
        folder = run_folder(tmp_path / str(number), seed=seed)
        config = (folder / "config.toml").read_text().replace("[data]\n", f'[data]\nsplit = "{split}"\n')
        (folder / "config.toml").write_text(config)
        folders.append(folder)
    found = apart([report.load(folder) for folder in folders])
    assert [federation.places for federation in found] == [[0, 1], [2]]


def test_a_run_that_has_not_finished_is_marked_in_every_table(tmp_path):
    run_folder(tmp_path / "done")
    run_folder(tmp_path / "going", [line_of(1), line_of(2)], finished=False)
    text = Tags(report.html(report.gathered([tmp_path])[0])).text
    assert text.count("not finished") >= 3
    assert "round 2 of 4" in text


def test_damaged_labels_leave_chains_without_colours(tmp_path):
    folder = run_folder(tmp_path / "run", [line_of(1, order=[[0, 1], [2]])], rounds=1)
    for text in ("{", '{"main": "x"}', '{"classes": [1], "main": [0]}'):
        (folder / "labels.json").write_text(text)
        assert report.page.order.orders([report.load(folder)], ["run"])[0]["main"] == []
    (folder / "labels.json").write_text(json.dumps({"classes": ["cat"], "main": [0, 0, 0]}))
    assert report.page.order.orders([report.load(folder)], ["run"])[0]["main"] == [0, 0, 0]
