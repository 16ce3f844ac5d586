"""The sweep: hopeless values end early, every run has its folder, an interrupted sweep goes on."""

from __future__ import annotations

import io
import json

import pytest
import tomli_w
from invented_runs import round_log
from rich.console import Console

from fedrelay import BadInput
from fedrelay.cli import main
from fedrelay.studies.tune import Trial, advice, give_up_hopeless, trials_of, tune, values_of

TABLES = {
    "rounds": 8,
    "data": {"name": "digits", "clients": 10},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"batch": 16},
    "algorithm": {"name": "fedavg", "fraction": 0.5},
    "evaluate": {"every": 1},
    "engine": {"name": "inline"},
}


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_the_best_value_is_found_and_hopeless_and_diverging_ones_are_stopped(tmp_path):
    ranked = tune(TABLES, {"local.lr": [1e-6, 0.5, 1e30]}, tmp_path, quiet())
    assert ranked[0].settings == {"local.lr": 0.5}
    assert ranked[0].rounds == 8
    assert ranked[0].best > 0.7
    slow, wild = (next(t for t in ranked if t.settings["local.lr"] == lr) for lr in (1e-6, 1e30))
    assert slow.stopped.startswith("hopeless: ")
    assert slow.rounds == 2  # a quarter of the rounds
    assert wild.stopped.startswith("failed: round 1: every chain failed")
    assert "lr" in wild.stopped
    assert (tmp_path / "0.5" / "summary.json").is_file()
    assert (tmp_path / "1e-06" / "rounds.jsonl").is_file()
    kept = json.loads((tmp_path / "tune.json").read_text())
    assert [one["settings"]["local.lr"] for one in kept] == [t.settings["local.lr"] for t in ranked]


def test_a_sweep_repeated_in_its_folder_trains_nothing_and_says_the_same(tmp_path):
    first = tune(TABLES, {"local.lr": [0.1, 0.5]}, tmp_path, quiet())
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/checkpoint/*")}
    again = tune(TABLES, {"local.lr": [0.1, 0.5]}, tmp_path, quiet())
    assert [(t.settings, t.best, t.rounds) for t in again] == [(t.settings, t.best, t.rounds) for t in first]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/checkpoint/*")} == times


def test_values_below_half_of_the_best_are_hopeless(tmp_path):
    trials = trials_of({"local.lr": [1, 2, 3, 4]}, tmp_path)
    for trial, best in zip(trials, (0.8, 0.41, 0.39, None), strict=True):
        trial.logs = [round_log(2, best)]
    give_up_hopeless(trials)
    assert [bool(trial.stopped) for trial in trials] == [False, False, True, False]
    assert trials[2].stopped == "hopeless: 39.0% at round 2, where the best has 80.0%"


def test_without_accuracies_the_loss_decides(tmp_path):
    trials = trials_of({"local.lr": [1, 2]}, tmp_path)
    trials[0].logs, trials[1].logs = [round_log(2, None, 3.0)], [round_log(2, None, 1.0)]
    assert max(trials, key=lambda trial: trial.merit) is trials[1]


def test_several_settings_are_combined(tmp_path):
    trials = trials_of({"local.lr": [0.1, 0.2], "algorithm.mu": [1, 2, 3]}, tmp_path)
    assert len(trials) == 6
    assert trials[1].name == "lr = 0.1, mu = 2"
    assert len({trial.folder for trial in trials}) == 6


def test_the_advice_says_when_the_best_is_at_the_edge(tmp_path):
    grid = {"local.lr": [0.1, 0.2, 0.4]}
    for best, word in ((0.4, "largest"), (0.1, "smallest")):
        told = advice([Trial({"local.lr": best}, tmp_path, [round_log(1, 0.5)])], grid)
        assert told == f"Best: --set local.lr={best}\nlocal.lr = {best} is the {word} that was tried: try beyond it"
    assert advice([Trial({"local.lr": 0.2}, tmp_path, [round_log(1, 0.5)])], grid) == "Best: --set local.lr=0.2"
    assert "try smaller" in advice([Trial({"local.lr": 0.2}, tmp_path, stopped="failed: …")], grid)


def test_values_are_read_as_numbers_where_they_are():
    assert values_of("0.01, 3,fedavg", "x") == [0.01, 3, "fedavg"]
    with pytest.raises(BadInput, match="expected values with commas between"):
        values_of("0.1,,0.2", "x")


def test_the_command_prints_the_table_and_what_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(tomli_w.dumps({**TABLES, "rounds": 4}))
    assert main(["tune", "small.toml", "--lr", "0.1,0.5", "--set", "seed=3"]) == 0
    told = capsys.readouterr().out
    assert "lr = 0.5" in told
    assert "Best: --set local.lr=0.5" in told
    assert (tmp_path / "runs" / "tune-small" / "0.5" / "summary.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to try"),
        (["--lr", "0.1,0.1"], "give different values"),
        (["--lr", "0.1,-1"], "lr must be at least 0"),
        (["--lr", "0.1", "--over", "local.lr=2"], "local.lr is given twice"),
        (["--over", "mu"], "expected key=values"),
        (["--over", "algorithm.mu=1,2"], "unknown key 'mu'"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(tomli_w.dumps(TABLES))
    assert main(["tune", "small.toml", *arguments]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "runs").exists()
