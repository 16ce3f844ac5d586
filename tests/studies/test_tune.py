"""The sweep: hopeless values end early, every run has its folder, an interrupted sweep goes on."""

from __future__ import annotations

import io
import json
import tomllib
from dataclasses import replace

import pytest
import tomli_w
from invented_runs import round_log
from rich.console import Console

from fedrelay import BadInput, config
from fedrelay.cli import main
from fedrelay.runs import record as record_module
from fedrelay.runs.summary import Evaluate
from fedrelay.studies import tune as tune_module
from fedrelay.studies.trials import Attempt, Trial, advice, give_up_hopeless, trials_of
from fedrelay.studies.tune import tune, values_of
from fedrelay.tasks import LOSS, Headline

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
    assert [(t.settings, t.figure, t.rounds) for t in again] == [(t.settings, t.figure, t.rounds) for t in first]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/checkpoint/*")} == times


def test_values_below_half_of_the_best_are_hopeless(tmp_path):
    trials = trials_of({"local.lr": [1, 2, 3, 4]}, tmp_path)
    for trial, best in zip(trials, (0.8, 0.41, 0.39, None), strict=True):
        trial.attempts[0].logs = [round_log(2, best)]
    give_up_hopeless(trials)
    assert [bool(trial.stopped) for trial in trials] == [False, False, True, False]
    assert trials[2].stopped == "hopeless: 39.0% at round 2, where the best has 80.0%"


def test_of_errors_those_above_twice_the_best_are_hopeless(tmp_path):
    trials = trials_of({"local.lr": [1, 2, 3, 4]}, tmp_path)
    for trial, best in zip(trials, (10.0, 19.0, 21.0, None), strict=True):
        trial.headline = Headline("mae", higher_is_better=False, share=False)
        trial.attempts[0].logs = [replace(round_log(2), metrics={"mae": best})]
    give_up_hopeless(trials)
    assert [trial.stopped for trial in trials] == ["", "", "hopeless: 21 at round 2, where the best has 10", ""]
    assert max(trials, key=lambda trial: trial.merit) is trials[0]


def test_what_may_be_negative_has_no_half(tmp_path):
    trials = trials_of({"local.lr": [1, 2]}, tmp_path)
    for trial, best in zip(trials, (-0.1, -3.0), strict=True):
        trial.headline = Headline("r2", share=False)
        trial.attempts[0].logs = [replace(round_log(2), metrics={"r2": best})]
    give_up_hopeless(trials)
    assert [trial.stopped for trial in trials] == ["", ""]


def test_the_lowest_error_wins_a_sweep(tmp_path):
    numbers = {"data": {"name": "diabetes", "clients": 4}, "model": {"name": "logistic"}, "task": {"metrics": ["mae"]}}
    ranked = tune({**TABLES, **numbers}, {"local.lr": [1e-5, 0.05]}, tmp_path, quiet())
    assert ranked[0].settings == {"local.lr": 0.05}
    kept = json.loads((tmp_path / "tune.json").read_text())
    assert kept[0]["metric"] == "mae"
    assert kept[0]["best"] < kept[1]["best"]


def test_where_the_loss_is_the_headline_the_lower_one_is_better_and_nobody_is_hopeless(tmp_path):
    trials = trials_of({"local.lr": [1, 2]}, tmp_path)
    for trial, loss in zip(trials, (3.0, 1.0), strict=True):
        trial.headline, trial.attempts[0].logs = LOSS, [round_log(2, None, loss)]
    give_up_hopeless(trials)
    assert not any(trial.stopped for trial in trials)
    assert max(trials, key=lambda trial: trial.merit) is trials[1]


def test_several_settings_are_combined(tmp_path):
    trials = trials_of({"local.lr": [0.1, 0.2], "algorithm.mu": [1, 2, 3]}, tmp_path)
    assert len(trials) == 6
    assert trials[1].name == "lr = 0.1, mu = 2"
    assert len({trial.attempts[0].folder for trial in trials}) == 6


def test_a_trial_is_judged_by_the_mean_of_its_last_tests_over_all_seeds(tmp_path):
    (trial,) = trials_of({"local.lr": [1]}, tmp_path, seeds=(3, 4))
    trial.evaluate = Evaluate(last=2)
    assert [attempt.folder for attempt in trial.attempts] == [tmp_path / "1" / "seed-3", tmp_path / "1" / "seed-4"]
    first, second = trial.attempts
    first.logs = [round_log(1, 0.9), round_log(2, None), round_log(3, 0.4), round_log(4, 0.6)]
    assert trial.figure is None  # of the other seed there is nothing yet
    second.logs = [round_log(1, 0.7)]
    assert trial.figure == pytest.approx((0.5 + 0.7) / 2)
    assert trial.best == pytest.approx((0.9 + 0.7) / 2)


def trial_of(value, folder, **changes):
    return Trial({"local.lr": value}, [Attempt(folder, None, [round_log(1, 0.5)])], **changes)


def test_the_advice_says_when_the_best_is_at_the_edge(tmp_path):
    grid = {"local.lr": [0.1, 0.2, 0.4]}
    for best, word in ((0.4, "largest"), (0.1, "smallest")):
        edge = f"local.lr = {best} is the {word} that was tried: try beyond it"
        assert advice([trial_of(best, tmp_path)], grid) == [f"Best: --set local.lr={best}", edge]
    assert advice([trial_of(0.2, tmp_path)], grid) == ["Best: --set local.lr=0.2"]
    (told,) = advice([trial_of(0.2, tmp_path, stopped="failed: …")], grid)
    assert "try smaller" in told


def test_the_test_set_is_looked_at_once_and_only_for_the_best(tmp_path, monkeypatch):
    """Whoever evaluates on as many examples as the test set has is counted."""
    looked = []

    def counted(where, real):
        def figures_of(predictor, examples, *others):
            looked.append((where, len(examples)))
            return real(predictor, examples, *others)

        return figures_of

    for module in (record_module, tune_module):
        monkeypatch.setattr(module, "figures_of", counted(module.__name__, module.figures_of))
    ranked = tune({**TABLES, "rounds": 2}, {"local.lr": [0.1, 0.5]}, tmp_path, quiet())
    federation = config.build({**TABLES, "data": {**TABLES["data"], "validation": 0.1}}).federation
    by_part = {where: {size for there, size in looked if there == where} for where, _ in looked}
    assert by_part[record_module.__name__] == {len(federation.validation_rows)}
    assert looked[-1] == (tune_module.__name__, len(federation.evaluated))
    assert [where for where, _ in looked].count(tune_module.__name__) == 1
    assert len(federation.evaluated) != len(federation.validation_rows)
    assert [trial.test is None for trial in ranked] == [False, True]


def test_the_share_that_is_held_out_can_be_said(tmp_path):
    tables = {**TABLES, "rounds": 1, "data": {"name": "digits", "clients": 10, "validation": 0.3}}
    tune(tables, {"local.lr": [0.5]}, tmp_path, quiet())
    assert tomllib.loads((tmp_path / "0.5" / "config.toml").read_text())["data"]["validation"] == 0.3


def test_several_seeds_and_jobs_give_a_mean_a_table_and_a_page(tmp_path):
    several = tune({**TABLES, "rounds": 2}, {"local.lr": [0.1, 0.5]}, tmp_path / "a", quiet(), seeds=(0, 1), jobs=2)
    one = tune({**TABLES, "rounds": 2}, {"local.lr": [0.1, 0.5]}, tmp_path / "b", quiet())
    assert several[0].settings == {"local.lr": 0.5}
    assert several[0].attempts[0].figures("accuracy") == one[0].attempts[0].figures("accuracy")  # seed 0 is the default
    kept = json.loads((tmp_path / "a" / "tune.json").read_text())
    assert [len(row["test"] or ()) for row in kept] == [2, 0]
    text = (tmp_path / "a" / "results.md").read_text()
    assert "validation accuracy" in text
    assert "on the test set, which nothing was chosen by" in text
    page = (tmp_path / "a" / "report.html").read_text()
    assert "<h2>Validation accuracy</h2>" in page
    assert "Validation accuracy over lr" in page
    assert "Test accuracy" not in page


def test_values_are_read_as_numbers_where_they_are():
    assert values_of("0.01, 3,fedavg", "x") == [0.01, 3, "fedavg"]
    with pytest.raises(BadInput, match="expected values with commas between"):
        values_of("0.1,,0.2", "x")


def test_lists_tables_and_texts_are_values_too():
    assert values_of("[0, 1,2],[2,1,0], random", "x") == [[0, 1, 2], [2, 1, 0], "random"]
    assert values_of('{ name = "tiers", values = [1, 2] },true,"a,b",[', "x") == [
        {"name": "tiers", "values": [1, 2]},
        True,
        "a,b",
        "[",
    ]
    assert values_of("2024-05-01", "x") == ["2024-05-01"]  # not a date, which no setting takes


def test_every_value_has_a_folder_that_a_file_system_takes(tmp_path):
    values = [[0, 1], "../up", "a/b", "a b", 0.5, {"name": "x"}]
    folders = [trial.attempts[0].folder for trial in trials_of({"order": values}, tmp_path)]
    assert len(set(folders)) == len(values)
    assert {folder.parent for folder in folders} == {tmp_path}
    assert folders[0].name == "0_1"
    assert folders[4].name == "0.5"
    with pytest.raises(BadInput, match="give different values"):
        trials_of({"order": [[0, 1], [0, 1]]}, tmp_path)


def test_lists_are_swept_and_the_best_is_said_as_a_configuration_says_it(tmp_path):
    ranked = tune({**TABLES, "rounds": 1}, {"model.hidden": [[4], [8, 4]]}, tmp_path, quiet())
    assert sorted(trial.name for trial in ranked) == ["hidden = [4]", "hidden = [8, 4]"]
    kept = tomllib.loads((tmp_path / "8_4" / "config.toml").read_text())
    assert kept["model"]["hidden"] == [8, 4]
    (best, *_) = advice(ranked, {"model.hidden": [[4], [8, 4]]})
    assert best == f"Best: --set 'model.hidden={ranked[0].settings['model.hidden']}'"


def test_values_of_several_kinds_have_no_edge(tmp_path):
    trial = Trial({"x": 3}, [Attempt(tmp_path, None, [round_log(1, 0.5)])])
    assert advice([trial], {"x": [3, "auto"]}) == ["Best: --set x=3"]


def test_to_the_end_nobody_is_given_up(tmp_path):
    ranked = tune(TABLES, {"local.lr": [1e-6, 0.5]}, tmp_path, quiet(), to_the_end=True)
    assert [(trial.rounds, trial.stopped) for trial in ranked] == [(8, ""), (8, "")]


def test_orders_of_one_pass_are_swept_and_nobody_who_is_done_is_hopeless(tmp_path):
    algorithm = {"name": "sequential"}
    local = {"epochs": 1, "batch": 16, "validation": 0.2}
    tables = {**TABLES, "rounds": 1, "data": {"name": "digits", "clients": 3}, "algorithm": algorithm, "local": local}
    orders = [[0, 1, 2], [2, 1, 0], "random"]
    ranked = tune(tables, {"algorithm.order": orders, "local.lr": [1e-9, 0.01]}, tmp_path, quiet())
    assert len(ranked) == 6
    assert not any(trial.stopped for trial in ranked)
    assert ranked[0].best > 2 * ranked[-1].best  # it would have been given up, had there been rounds left
    kept = tomllib.loads((tmp_path / "2_1_0-0.01" / "config.toml").read_text())
    assert kept["algorithm"]["order"] == [2, 1, 0]
    page = (tmp_path / "report.html").read_text()
    assert "Validation accuracy over order and lr" in page


def test_the_deviation_over_seeds_stands_beside_the_mean(tmp_path):
    (trial,) = trials_of({"local.lr": [1]}, tmp_path, seeds=(0, 1))
    assert trial.deviation is None
    for attempt, value in zip(trial.attempts, (0.4, 0.6), strict=True):
        attempt.logs = [round_log(1, value)]
    assert trial.deviation == pytest.approx(0.02**0.5)
    assert trial.told == "50.0% ± 14.1%"


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
        (["--lr", "0.1", "--seeds", "0,x"], "--seeds 0,x: expected whole numbers"),
        (["--lr", "0.1", "--seeds", "1,1"], "seeds: give different values"),
        (["--lr", "0.1", "--jobs", "0"], "jobs must be at least 1"),
        (["--lr", "0.1", "--set", "data.validation=1.5"], "[data].validation"),
        (["--over", "algorithm.mu=1,2"], "unknown key 'mu'"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(tomli_w.dumps(TABLES))
    assert main(["tune", "small.toml", *arguments]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "runs").exists()
