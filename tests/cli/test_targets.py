"""Nothing is overwritten: what a command is to write, and what is there already."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from invented_runs import run_folder

from fedrelay.cli.main import main
from fedrelay.cli.targets import check_free
from fedrelay.errors import BadInput
from fedrelay.studies import compare, trials, tune
from fedrelay.studies import compared as compared_rows
from fedrelay.studies import groupings as laboratory
from fedrelay.studies.claims import COMPARISON, SWEEP, claim


def test_a_file_that_is_there_is_refused_and_may_be_forced(tmp_path):
    path = tmp_path / "mine"
    check_free(path, "--out", force=False)
    path.write_text("mine")
    with pytest.raises(BadInput, match=r"mine is there already; nothing was overwritten: .* --out, or add --force"):
        check_free(path, "--out", force=False)
    check_free(path, "--out", force=True)


needs_posix = pytest.mark.skipif(os.name == "nt", reason="pipes, devices and links of POSIX")


@needs_posix
def test_only_plain_files_are_ever_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "pipe", tmp_path / "folder", tmp_path / "link", Path("/dev/null")):
        with pytest.raises(BadInput, match=r"is a folder|is not a plain file"):
            check_free(path, "--out", force=True)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_a_name_that_no_file_can_have_is_refused_in_few_words(tmp_path, name):
    with pytest.raises(BadInput, match=r"--out: .* cannot be a file") as refused:
        check_free(tmp_path / name, "--out", force=False)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("content", [[], ["--csv", "csv"]])
def test_a_report_is_not_written_over_a_file(tmp_path, monkeypatch, capsys, content):
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "run")
    mine = tmp_path / (Path("csv") / "rounds.csv" if content else Path("report.html"))
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    assert main(["report", "run", *content]) == 2
    assert mine.read_text() == "mine"
    assert "nothing was overwritten" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists() or not content
    assert main(["report", "run", "--force", *content]) == 0
    assert mine.read_text() != "mine"


def test_a_picture_or_a_split_is_not_written_over_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "split.png").write_text("mine too")
    for option in ("--picture", "--save"):
        assert main(["data", "show", "digits", option, "mine"]) == 2
    assert main(["data", "show", "digits"]) == 0  # the figures were asked for, the picture was not
    assert "split.png is there already" in capsys.readouterr().out.replace("\n", " ")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "split.png").read_text() == "mine too"
    assert main(["data", "show", "digits", "--picture", "mine", "--force"]) == 0
    assert (tmp_path / "mine").read_bytes().startswith(b"\x89PNG")


@needs_posix
def test_a_model_and_predictions_are_not_written_over_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.pt").write_text("mine")
    for command in (["export", "run"], ["predict", "run", "digits"]):
        assert main([*command, "--out", "mine.pt"]) == 2
        assert "mine.pt is there already" in capsys.readouterr().err
        assert main([*command, "--out", "/dev/null", "--force"]) == 2
        assert "not a plain file" in capsys.readouterr().err


def compared(tmp_path: Path, names: dict[str, list[int]]) -> list[compare.Job]:
    return [compare.Job(name, seed, {}, tmp_path) for name, seeds in names.items() for seed in seeds]


def test_a_comparison_goes_into_its_own_folder_again_but_not_into_that_of_another(tmp_path):
    done = [compared_rows.Row("a", (), ("why", "why"), (0, 1)), compared_rows.Row("b", (), ("why", "why"), (0, 1))]
    compare.write(done, [], tmp_path, "first")

    def into(names: dict[str, list[int]], *, force: bool = False) -> None:
        todo = compared(tmp_path, names)
        claim(tmp_path, COMPARISON, lambda found: compare.covers(todo, found), force=force)

    into({"a": [0, 1], "b": [0, 1]})
    into({"a": [0, 1, 2], "b": [0, 1, 2], "c": [0, 1, 2]})  # more of the same
    others = ({"a": [0, 1]}, {"a": [0, 1], "c": [0, 1]}, {"a": [0], "b": [0]}, {"a": [0, 2], "b": [0, 2]})
    for other in others:
        with pytest.raises(BadInput, match=r"holds results of something else \(results.json, results.md\)"):
            into(other)
        into(other, force=True)
    for row in (record := json.loads((tmp_path / "results.json").read_text())):
        del row["seeds"]  # as earlier versions wrote it
    (tmp_path / "results.json").write_text(json.dumps(record))
    into({"a": [0, 1], "b": [0, 1]})
    with pytest.raises(BadInput, match="something else"):
        into({"a": [0], "b": [0]})


def test_a_sweep_goes_into_its_own_folder_again_but_not_into_that_of_another(tmp_path):
    first = trials.trials_of({"local.lr": [0.1, 0.2]}, tmp_path, [0])
    (tmp_path / "tune.json").write_text(json.dumps([trials.as_record(trial) for trial in first]))

    def into(grid: dict[str, list[float]], seeds: list[int]) -> None:
        todo = trials.trials_of(grid, tmp_path, seeds)
        claim(tmp_path, SWEEP, lambda found: tune.covers(todo, found), force=False)

    into({"local.lr": [0.1, 0.2]}, [0])
    into({"local.lr": [0.1, 0.2, 0.3]}, [0, 1])
    for grid, seeds in (
        ({"local.lr": [0.1, 0.3]}, [0]),
        ({"local.mu": [0.1, 0.2]}, [0]),
        ({"local.lr": [0.1, 0.2]}, [1]),
    ):
        with pytest.raises(BadInput, match="something else"):
            into(grid, seeds)
    with pytest.raises(BadInput, match="something else"):
        claim(tmp_path, COMPARISON, lambda found: True, force=False)  # a sweep is no comparison


def test_groupings_go_into_their_own_folder_again_but_not_into_that_of_others(tmp_path):
    tables = {"data": {"name": "digits"}, "groups": {"repeats": 1}}
    (tmp_path / "results.json").write_text(json.dumps({"work": laboratory.fingerprint(tables)}))
    laboratory.claim_for(tables, tmp_path, force=False)
    other = {**tables, "seed": 1}
    with pytest.raises(BadInput, match="something else"):
        laboratory.claim_for(other, tmp_path, force=False)
    laboratory.claim_for(other, tmp_path, force=True)


@pytest.mark.parametrize("content", ["", "[", "[" * 100_000, "3", '{"a": 1}', '[{"name": 1}]', "\xff"])
def test_results_that_are_not_ours_are_not_replaced(tmp_path, content):
    (tmp_path / "results.json").write_text(content, encoding="latin-1")
    with pytest.raises(BadInput, match="something else"):
        claim(tmp_path, COMPARISON, lambda found: compare.covers([], found), force=False)


@needs_posix
def test_force_replaces_no_link_of_a_study(tmp_path):
    (tmp_path / "report.html").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="not a plain file"):
        claim(tmp_path, COMPARISON, lambda found: True, force=True)
