"""The race: the better half goes on, the winner's file runs, repeated it trains nothing; how advice is judged."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from invented_runs import round_log
from rich.console import Console

from fedrelay import BadInput, config
from fedrelay.cli import main
from fedrelay.studies import tune
from fedrelay.studies.advise import Wishes, advise
from fedrelay.studies.advise.budget import Budget, work
from fedrelay.studies.advise.carry_out import race
from fedrelay.studies.advise.facts import Facts
from fedrelay.studies.advise.outcome import outcome_of
from fedrelay.studies.advise.race import Entry, Race, raced
from fedrelay.studies.advise.validate import Judged, overview, read, wrong
from fedrelay.studies.trials import Attempt, Trial

ROOT = Path(__file__).parents[2]
TABLES = {
    "rounds": 50,
    "data": {"name": "digits", "clients": 20, "partition": {"name": "dirichlet", "alpha": 0.0}, "validation": 0.2},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"batch": 16, "lr": 1.0},
    "algorithm": {"name": "fedavg", "fraction": 0.5},
    "engine": {"name": "inline"},
}


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_a_race_has_a_winner_whose_file_runs_and_repeated_it_trains_nothing(tmp_path):
    advice, experiment = advise(TABLES, Wishes(state=False, reach="none"))
    settings = {"budget": Budget(60)}
    first = race(TABLES, advice, experiment, tmp_path / "race", quiet(), **settings)
    assert sum(one.trial.rounds for one in first.race.entries) <= 60
    assert {one.method for one in first.standings} == {one.method for one in advice.candidates}
    stopped = [one for one in first.race.entries if one.trial.stopped]
    assert len(stopped) >= len(first.race.entries) // 2  # the worse half, and half of the rest
    assert any(one.candidate.method == "fedavg" for one in first.race.left)
    winner = config.read(tmp_path / "race" / "winner.toml", ["rounds=1"])
    assert config.build(winner).algorithm is not None
    assert winner["algorithm"]["name"] == first.winner.method
    kept = json.loads((tmp_path / "race" / "race.json").read_text())
    assert kept["winner"] == first.winner.method
    assert (tmp_path / "race" / "report.html").is_file()
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("race/*/checkpoint/*")}
    again = race(TABLES, advice, experiment, tmp_path / "race", quiet(), **settings)
    assert [(one.method, one.cost) for one in again.standings] == [(one.method, one.cost) for one in first.standings]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("race/*/checkpoint/*")} == times
    with pytest.raises(BadInput, match="something else"):
        race(TABLES, advice, experiment, tmp_path / "race", quiet(), budget=Budget(90))


def test_a_rate_at_the_edge_gets_one_beyond_it_and_one_that_diverges_a_smaller_one(tmp_path):
    advice, _ = advise(TABLES, Wishes(state=False))
    plain = next(one for one in advice.candidates if one.method == "fedavg")
    low = replace(plain, values=(0.01, 0.03))
    found = raced(TABLES, advice.facts, [low], tmp_path / "low", quiet(), rounds=16)
    assert max(one.value for one in found.entries) > 0.05
    wild = replace(plain, values=(1e30,))
    found = raced(TABLES, advice.facts, [wild], tmp_path / "wild", quiet(), rounds=8)
    assert min(one.value for one in found.entries) < 1e30


def test_a_trial_that_has_come_as_far_as_it_shall_is_not_begun_again(tmp_path, monkeypatch):
    """Not even when others join because the best value was the outermost."""
    advice, _ = advise(TABLES, Wishes(state=False))
    plain = next(one for one in advice.candidates if one.method == "fedavg")
    parts, rounds_of = list[tuple[str, int]](), tune.rounds_of

    def counted(stretch):
        parts.append((stretch.folder.name, stretch.goal))
        return rounds_of(stretch)

    monkeypatch.setattr(tune, "rounds_of", counted)
    raced(TABLES, advice.facts, [replace(plain, values=(0.01, 0.03))], tmp_path, quiet(), rounds=8)
    assert len(parts) == len(set(parts))
    assert len({name for name, _ in parts}) > 2


def facts() -> Facts:
    return advise(TABLES, Wishes(state=False))[0].facts


def entry(facts: Facts, figures: list[float], each: int) -> Entry:
    """A trial that spends so many bytes a round and finds these figures."""
    split = {"server_to_client": each, "client_to_server": 0, "client_to_client": 0}
    logs = [replace(round_log(n, value), bytes=split) for n, value in enumerate(figures, start=1)]
    candidate = next(one for one in advise(TABLES)[0].candidates if one.method == "fedavg")
    return Entry(candidate, 0.1, Trial({}, [Attempt(Path("x"), logs=logs)], label=f"{each}"))


def test_trials_are_compared_at_what_the_cheapest_has_spent():
    known = facts()
    dear, cheap = entry(known, [0.2, 0.9, 0.9, 0.9], 40), entry(known, [0.3, 0.5, 0.6, 0.7], 10)
    race = Race(known, {}, 4, [dear, cheap], [dear, cheap])
    assert race.ranked([dear, cheap]) == [cheap, dear]  # at 40 bytes: the mean of four, against the first round
    by_rounds = Race(replace(known, by="rounds"), {}, 4, [dear, cheap], [dear, cheap])
    assert by_rounds.ranked([cheap, dear]) == [dear, cheap]
    assert race.cost_to(cheap, 0.4) == 20  # (0.3 + 0.5) / 2
    assert race.cost_to(cheap, 0.99) is None
    assert outcome_of(race, 0.5).goal == 0.5


def test_the_best_of_values_that_were_all_left_behind_is_told_and_one_that_failed_is_last():
    known = facts()
    worse, better, broken = (entry(known, [figure] * 4, 10) for figure in (0.3, 0.6, 0.9))
    winner = entry(known, [0.8] * 8, 10)
    winner = replace(winner, candidate=replace(winner.candidate, method="fedadam"))
    worse.trial.stopped = better.trial.stopped = "left behind after 4 rounds"
    broken.trial.stopped = "failed: it diverged"
    race = Race(known, {}, 8, [broken, worse, better, winner], [winner])
    assert race.ranked([broken, worse, better]) == [better, worse, broken]
    told = next(one for one in outcome_of(race, 0.5).standings if one.method == "fedavg")
    assert told.entry is better
    assert told.cost == 10  # it was there before it was left behind


def test_time_is_that_of_the_virtual_clock_or_of_the_servers_line():
    known = facts()
    line = replace(known.line, server=2.0)
    slow = Race(replace(known, by="time", line=line, model_bytes=10), {}, 4)
    log = replace(round_log(1, 0.5), simulated_seconds=5.0)
    sent = {"server_to_client": 40, "client_to_server": 40, "client_to_client": 900}
    assert slow.spent(replace(log, bytes=sent)) == 16.0  # eight models
    assert slow.spent(replace(log, bytes={**sent, "server_to_client": 0, "client_to_server": 10})) == 5.0
    dear = Race(replace(known, by="traffic", prices=(2.0, 0.0)), {}, 4)
    assert dear.spent(replace(log, bytes=sent)) == 160.0


def test_a_budget_is_of_rounds_visits_or_minutes():
    _, experiment = advise(TABLES)
    assert Budget.of("600") == Budget(600.0, "rounds")
    assert Budget.of("12000 visits") == Budget(12000.0, "visits")
    assert Budget.of("10m") == Budget(10.0, "minutes")
    counts = {"trials": 9, "methods": 3}
    plan = Budget.of("600rounds").plan(experiment, 10, **counts)
    assert plan == Budget.of("6000visits").plan(experiment, 10, **counts)
    assert plan.most == 600
    assert work(12, plan.rounds) <= 600 < work(12, plan.rounds + 1)
    assert Budget.of("5m").plan(experiment, 10, **counts).rounds >= 8
    for text in ("40rounds", "400visits", "0.00001m"):
        with pytest.raises(BadInput, match="would do") as refused:
            Budget.of(text).plan(experiment, 10, **counts)
        if not text.endswith("m"):
            enough = re.search(r"--budget (\S+) would do", str(refused.value))[1]
            assert Budget.of(enough).plan(experiment, 10, **counts).rounds == 8


@pytest.mark.parametrize("trials", [1, 2, 7, 12])
def test_the_work_of_a_race_is_what_halving_takes_with_one_more_that_goes_on(trials):
    assert work(trials, 40) <= 10 * trials + 10 * (trials / 2 + 1.5) + 20 * (trials / 4 + 2.25)
    assert work(trials, 40) >= 20 * trials


def test_values_beyond_the_advised_ones_do_not_break_the_budget(tmp_path):
    advice, _ = advise(TABLES, Wishes(state=False))
    plain = next(one for one in advice.candidates if one.method == "fedavg")
    low = replace(plain, values=(0.0001, 0.0003))  # three more would be tried
    settings = {"rounds": 8, "most": work(3, 8)}
    found = raced(TABLES, advice.facts, [low], tmp_path / "low", quiet(), **settings)
    assert len(found.entries) == 3
    assert sum(one.trial.rounds for one in found.entries) <= settings["most"]


def test_a_method_that_cannot_be_run_is_skipped_with_a_word(tmp_path):
    advice, _ = advise(TABLES, Wishes(state=False))
    plain = replace(next(one for one in advice.candidates if one.method == "fedavg"), values=(0.5,))
    wrong = replace(plain, method="wrong", algorithm={"name": "fedavg", "fraction": 7.0})
    found = raced(TABLES, advice.facts, [wrong, plain], tmp_path / "race", quiet(), rounds=4)
    assert found.methods == ["fedavg"]
    assert "fraction" in found.refused["wrong"]
    with pytest.raises(BadInput, match="fraction"):
        raced(TABLES, advice.facts, [wrong], tmp_path / "other", quiet(), rounds=4)


def test_a_budget_that_is_none_is_refused():
    for text in ("", "x", "-5", "5 apples", "nan"):
        with pytest.raises(BadInput):
            Budget.of(text)


def test_the_command_races_by_the_clock(tmp_path, monkeypatch, capsys):
    import tomli_w

    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(tomli_w.dumps(TABLES))
    words = ["advise", "mine.toml", "--race", "--by", "time", "--budget", "60rounds", "--no-state"]
    assert main([*words, "--reach", "none", "--target", "0.2"]) == 0
    printed = capsys.readouterr().out
    assert "to the target" in printed
    assert Path("runs/race-mine/winner.toml").is_file()


def judged(name: str, costs: dict[str, float | None], *advised: str) -> Judged:
    told = {"clients": 9, "classes": 3, "h": 0.5, "excess": 0.4, "level": "unlike", "fraction": 0.2, "parameters": 5}
    return Judged(name, name, told, "traffic", advised, costs)


def test_a_first_choice_is_right_within_a_tenth_of_the_best():
    good = judged("good", {"fedavg": 2e6, "fedseq": 1.09e6, "fedadam": 1e6}, "fedseq", "fedavg")
    bad = judged("bad", {"fedavg": 1e6, "fedseq": 1.2e6}, "fedseq")
    never = judged("never", {"fedavg": 1e6, "fedseq": None}, "fedseq")
    assert [one.right for one in (good, bad, never)] == [True, False, False]
    assert bad.regret == pytest.approx(0.2)
    text = overview([good, bad, never])
    assert "in 1 of 3 federations; the best method is on the short-list in 0" in text
    assert "`fedavg` 2" in text
    assert "good" not in wrong([good, bad, never])
    assert "**never** (by traffic): advised `fedseq`. `fedavg` 1 MB, `fedseq` not reached." in wrong([never])


def test_there_are_a_dozen_federations_to_judge_by():
    found = read(ROOT / "experiments" / "advise.toml")
    assert len(found) >= 12
    assert len({one["about"] for one in found.values()}) == len(found)
