from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from invented_runs import round_log

import fedrelay as fr
from fedrelay import BadInput, Federation, Recorder, RunFailed, Task, config
from fedrelay.algorithms import fedavg, fedseqinter
from fedrelay.data import Iid, digits
from fedrelay.engines import Inline
from fedrelay.models import Logistic
from fedrelay.runs import checkpoint, testing
from fedrelay.runs.costs import Estimate
from fedrelay.runs.json_files import dumps
from fedrelay.runs.labels import Labels, read_labels
from fedrelay.runs.log import Dropped, RoundLog, Summary, Undescribed
from fedrelay.runs.rounds import Lines, encode, read_rounds
from fedrelay.runs.summary import Evaluate, rounds_to, summarise
from fedrelay.tasks import Ensemble, Headline, Workspaces
from fedrelay.types import Baton, Report, State, Work

TABLES = {
    "rounds": 8,
    "seed": 3,
    "checkpoint": 3,
    "data": {"name": "digits", "clients": 20, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 8, "lr": 0.1},
    "algorithm": {"name": "fedseq", "max_clients": 5, "fraction": 0.5},
    "evaluate": {"every": 2},
    "engine": {"name": "inline"},
}


def recorder_in(folder: Path, *, resume: bool = False, **changes):
    return config.build({**TABLES, **changes}).record(folder, resume=resume)


def run_whole(folder: Path, **changes) -> Summary:
    recorder = recorder_in(folder, **changes)
    for _ in recorder.run():
        pass
    return recorder.summary()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, Summary]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, run_whole(folder)


def timeless(path: Path) -> list[RoundLog]:
    return [replace(log, seconds=0.0) for log in read_rounds(path / "rounds.jsonl")]


def test_a_run_folder_holds_what_the_contract_says(whole):
    folder, summary = whole
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint",
        "config.toml",
        "labels.json",
        "model.json",
        "model.pt",
        "quality.json",
        "rounds.jsonl",
        "summary.json",
    ]
    written = json.loads((folder / "summary.json").read_text())
    assert written == asdict(summary)
    contract = "algorithm rounds accuracy best_accuracy final_accuracy rounds_to messages bytes examples seconds "
    contract += "examples_per_second drops params_sha256"
    assert set(contract.split()) <= set(written)
    lines = read_rounds(folder / "rounds.jsonl")
    assert [line.round for line in lines] == list(range(1, 9))
    assert [line.accuracy is not None for line in lines] == [False, True] * 4
    wanted = "accuracy loss clients drops messages bytes depth seconds examples"
    raw = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert all(set(wanted.split()) <= set(line) for line in raw)
    assert summary.examples == sum(line.examples for line in lines)
    assert summary.messages["total"] == 8 * (2 + 10)  # two groups of five a round: 2 + Σ 5, as in Table 3
    assert summary.final_accuracy == lines[-1].accuracy


def test_the_last_round_is_always_evaluated(tmp_path):
    run_whole(tmp_path / "run", rounds=3, evaluate={"every": 2})
    assert read_rounds(tmp_path / "run" / "rounds.jsonl")[-1].accuracy is not None


@pytest.mark.parametrize("stop_after", [1, 3, 5, 7])
def test_a_run_stopped_by_its_consumer_goes_on_to_the_same_bits(whole, tmp_path, stop_after):
    for line in recorder_in(tmp_path / "run").run():
        if line.round == stop_after:
            break
    resumed = recorder_in(tmp_path / "run", resume=True)
    lines = list(resumed.run())
    assert [line.round for line in lines] == list(range(1, 9))
    assert resumed.summary().params_sha256 == whole[1].params_sha256
    assert timeless(tmp_path / "run") == timeless(whole[0])


def test_ctrl_c_in_the_middle_of_a_round_leaves_a_checkpoint_of_the_round_before(whole, tmp_path):
    @dataclass(frozen=True)
    class Interrupted(Work):
        work: object

        def __call__(self, baton: Baton, visit) -> tuple[Baton, dict, Report]:
            if visit.round == 6 and visit.hop == 2:
                raise KeyboardInterrupt
            return self.work(baton, visit)

    recorder = recorder_in(tmp_path / "run")
    stopped = replace(recorder, algorithm=replace(recorder.algorithm, update=Interrupted(recorder.algorithm.update)))
    with pytest.raises(KeyboardInterrupt):
        list(stopped.run())
    saved = checkpoint.load(tmp_path / "run" / "checkpoint")
    assert saved is not None
    assert saved[0].round == 5
    assert not (tmp_path / "run" / "summary.json").exists()
    resumed = recorder_in(tmp_path / "run", resume=True)
    list(resumed.run())
    assert resumed.summary().params_sha256 == whole[1].params_sha256


def test_when_every_chain_fails_the_last_good_state_is_on_disk(tmp_path):
    @dataclass(frozen=True)
    class FailsLater(Work):
        work: object

        def __call__(self, baton, visit):
            if visit.round == 5:
                raise ZeroDivisionError("broken")
            return self.work(baton, visit)

    recorder = recorder_in(tmp_path / "run")
    failing = replace(recorder, algorithm=replace(recorder.algorithm, update=FailsLater(recorder.algorithm.update)))
    with pytest.raises(RunFailed, match=r"round 5: every chain failed.*ZeroDivisionError: broken"):
        list(failing.run())
    saved = checkpoint.load(tmp_path / "run" / "checkpoint")
    assert saved is not None
    assert saved[0].round == 4


def test_more_rounds_can_be_asked_of_a_finished_run(whole, tmp_path):
    run_whole(tmp_path / "run", rounds=5)
    longer = recorder_in(tmp_path / "run", resume=True)
    list(longer.run())
    assert longer.summary().params_sha256 == whole[1].params_sha256
    with pytest.raises(BadInput, match="at round 8 already"):
        list(recorder_in(tmp_path / "run", resume=True, rounds=2).run())


def test_resuming_a_finished_run_trains_nothing_and_gives_its_summary(tmp_path):
    before = run_whole(tmp_path / "run")
    again = recorder_in(tmp_path / "run", resume=True)
    assert len(list(again.run())) == 8
    assert again.summary() == before


def test_a_half_written_last_line_is_passed_over_on_resume(whole, tmp_path):
    for line in recorder_in(tmp_path / "run").run():
        if line.round == 4:
            break
    with (tmp_path / "run" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 5, "accu')
    resumed = recorder_in(tmp_path / "run", resume=True)
    list(resumed.run())
    assert timeless(tmp_path / "run") == timeless(whole[0])


def test_a_damaged_checkpoint_is_refused_and_left_alone(tmp_path):
    run_whole(tmp_path / "run")
    (path,) = (tmp_path / "run" / "checkpoint").glob("*.pt")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"checkpoint .* is damaged"):
        list(recorder_in(tmp_path / "run", resume=True, rounds=10).run())
    assert path.read_bytes() == content


def test_a_folder_of_another_configuration_is_refused_and_left_alone(whole):
    folder, _ = whole
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(BadInput, match=r"another configuration \(it differs in local.lr\)"):
        recorder_in(folder, resume=True, local={"batch": 8, "lr": 0.2})
    with pytest.raises(BadInput, match="holds this run already: add --resume"):
        recorder_in(folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(BadInput, match="is not a run folder"):
        recorder_in(tmp_path, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_interrupt_during_the_evaluation_loses_nothing(whole, tmp_path, monkeypatch):
    recorder = recorder_in(tmp_path / "run")
    evaluate, calls = testing.evaluate, []

    def interrupted(predictor, *arguments):
        calls.append(predictor)
        if len(calls) == 2:  # that of round 4
            raise KeyboardInterrupt
        return evaluate(predictor, *arguments)

    monkeypatch.setattr(testing, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(recorder.run())
    assert len(read_rounds(tmp_path / "run" / "rounds.jsonl")) == 3
    resumed = recorder_in(tmp_path / "run", resume=True)
    list(resumed.run())
    assert resumed.summary().params_sha256 == whole[1].params_sha256
    assert timeless(tmp_path / "run") == timeless(whole[0])


@pytest.mark.parametrize("evaluate", [{"every": 3}, {"every": 2, "sample": 50}])
def test_a_longer_run_has_the_evaluations_it_would_have_had_at_once(tmp_path, evaluate):
    run_whole(tmp_path / "once", rounds=8, evaluate=evaluate)
    run_whole(tmp_path / "twice", rounds=4, evaluate=evaluate)
    list(recorder_in(tmp_path / "twice", rounds=8, evaluate=evaluate, resume=True).run())
    assert timeless(tmp_path / "once") == timeless(tmp_path / "twice")


def test_on_the_way_some_test_examples_are_tested_and_in_the_end_all(whole, tmp_path):
    summary = run_whole(tmp_path / "run", evaluate={"every": 2, "sample": 50})
    assert summary.params_sha256 == whole[1].params_sha256
    found, of_all = (
        [log.accuracy for log in timeless(folder) if log.metrics] for folder in (tmp_path / "run", whole[0])
    )
    assert found[-1] == of_all[-1]
    assert found[:-1] != of_all[:-1]
    assert all(accuracy * 50 == pytest.approx(round(accuracy * 50)) for accuracy in found[:-1])
    assert run_whole(tmp_path / "more", evaluate={"every": 2, "sample": 10**6}).mean == whole[1].mean


def test_rounds_without_a_checkpoint_are_refused_and_left_alone(tmp_path):
    run_whole(tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoint").glob("*.pt"):
        path.unlink()
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    with pytest.raises(BadInput, match="has rounds but no checkpoint"):
        list(recorder_in(tmp_path / "run", resume=True).run())
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before


def test_a_refused_resume_leaves_the_configuration_as_it_was(tmp_path):
    run_whole(tmp_path / "run")
    before = (tmp_path / "run" / "config.toml").read_bytes()
    with pytest.raises(BadInput, match="at round 8 already"):
        list(recorder_in(tmp_path / "run", resume=True, rounds=2).run())
    assert (tmp_path / "run" / "config.toml").read_bytes() == before


def test_a_run_that_could_not_start_does_not_claim_its_folder(tmp_path):
    bad = recorder_in(tmp_path / "run", algorithm={"name": "fedseq", "min_examples": 5000})
    with pytest.raises(BadInput, match="min_examples"):
        list(bad.run())
    run_whole(tmp_path / "run")


def test_two_processes_cannot_write_one_run(tmp_path):
    first = recorder_in(tmp_path / "run").run()
    next(first)
    with pytest.raises(BadInput, match="in use by another process"):
        list(recorder_in(tmp_path / "run", resume=True).run())
    first.close()
    list(recorder_in(tmp_path / "run", resume=True).run())


def test_a_recorder_made_in_python_refuses_the_folder_of_another_method(tmp_path):
    federation = Federation.split(digits(), Iid(), 5)
    engine = Inline(federation, Task.of(Logistic(), federation))

    def recorder(algorithm, rounds=2, **more):
        return Recorder(tmp_path / "run", algorithm, engine, federation.test, rounds=rounds, **more)

    list(recorder(fr.method(fedavg())).run())
    with pytest.raises(BadInput, match="another configuration"):
        list(recorder(fr.method(fedavg(), fraction=0.5), rounds=4, resume=True).run())
    assert len(list(recorder(fr.method(fedavg()), rounds=4, resume=True).run())) == 4


def vote_of_all(state: State) -> Ensemble:
    return Ensemble(tuple(baton.params for baton in state.batons))


def test_a_run_is_tested_and_fingerprinted_as_its_method_predicts(tmp_path):
    federation = Federation.split(digits(), Iid(), 6)
    task = Task.of(Logistic(), federation)
    engine = Inline(federation, task)
    voting = fr.method(fedseqinter(max_clients=2, period=9), fr.Change(predictor=vote_of_all), fraction=1.0)
    recorder = Recorder(tmp_path / "run", voting, engine, federation.test, rounds=2)
    *_, log = recorder.run()
    *_, state = fr.train(voting, engine, rounds=2)
    assert len(state.batons) == 3
    assert log.metrics == fr.evaluate(vote_of_all(state), federation.test, Workspaces(task))
    assert log.metrics != fr.evaluate(fr.deployed(state), federation.test, Workspaces(task))
    bits = b"".join(baton.params.numpy().tobytes() for baton in state.batons)
    assert recorder.summary().params_sha256 == hashlib.sha256(bits).hexdigest()


def test_an_option_that_is_new_since_a_run_began_does_not_lock_it_out(tmp_path):
    run_whole(tmp_path / "run", rounds=4)
    path = tmp_path / "run" / "config.toml"
    tables = tomllib.loads(path.read_text())
    del tables["local"]["momentum"]  # as if the program of that day had not known it
    path.write_text(tomli_w.dumps(tables))
    list(recorder_in(tmp_path / "run", resume=True).run())
    path.write_text(tomli_w.dumps(tables))
    with pytest.raises(BadInput, match=r"differs in local.momentum"):
        recorder_in(tmp_path / "run", resume=True, local={"batch": 8, "lr": 0.1, "momentum": 0.5})


@pytest.mark.parametrize(("content", "why"), [("", "name is missing"), ("engine = 5\n", "engine must be a section")])
def test_a_configuration_in_a_folder_that_no_run_wrote_is_refused_by_its_name(tmp_path, content, why):
    """The user's own file is another one, and there is nothing wrong with it."""
    run_whole(tmp_path / "run", rounds=1)
    (tmp_path / "run" / "config.toml").write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=rf"run.config.toml is damaged or of another version \(.*{why}"):
        recorder_in(tmp_path / "run", resume=True, rounds=1, engine={"name": "auto"})


def test_numbers_that_are_not_finite_are_null_in_json():
    assert dumps({"loss": float("inf"), "all": [1.5, float("nan")]}) == '{"loss": null, "all": [1.5, null]}'


def log(round: int, accuracy: float | None) -> RoundLog:
    directions = {"server_to_client": 2, "client_to_server": 1, "client_to_client": 4}
    return round_log(
        round,
        accuracy,
        0.5,
        messages=directions,
        bytes={key: 10 * value for key, value in directions.items()},
        examples=20,
    )


def test_a_summary_of_rounds_made_by_hand():
    logs = [log(r, a) for r, a in enumerate([0.1, 0.3, 0.5, None, 0.9, 0.7], start=1)]
    wanted = Evaluate(every=1, last=3, smooth=1, shares=(0.5,), target=0.8)
    found = summarise("x", logs, wanted, params_sha256="")
    assert found.accuracy == pytest.approx((0.5 + 0.9 + 0.7) / 3)
    assert found.best_accuracy == 0.9
    assert found.final_accuracy == 0.7
    assert found.jump == pytest.approx((0.2 + 0.2 + 0.4 + 0.2) / 4)
    assert found.rounds_to == {"0.5": 3}  # 0.5 is the first of at least 0.4
    assert found.traffic_to == {"0.5": 3 * 70}
    assert found.messages == {"server_to_client": 12, "client_to_server": 6, "client_to_client": 24, "total": 42}
    assert (found.examples, found.seconds, found.examples_per_second) == (120, 3.0, 40.0)


@pytest.mark.parametrize(
    ("last_rounds", "mean"), [(1, 0.9), (2, 0.85), (5, (0.6 + 0.8 + 0.9) / 3), (100, (0.1 + 0.6 + 0.8 + 0.9) / 4)]
)
def test_the_mean_over_the_last_rounds_is_that_of_their_evaluations(last_rounds, mean):
    """Every third of ten rounds is tested, and the last; the loss is averaged over the same rounds."""
    tested = {3: 0.1, 6: 0.6, 9: 0.8, 10: 0.9}
    logs = [
        round_log(number, tested.get(number), 2 * tested[number] if number in tested else None)
        for number in range(1, 11)
    ]
    wanted = Evaluate(every=3, last=1, last_rounds=last_rounds)
    found = summarise("x", logs, wanted, params_sha256="")
    assert (found.mean, found.accuracy, found.mean_loss) == (pytest.approx(mean),) * 2 + (pytest.approx(2 * mean),)


def test_time_and_traffic_to_the_target_are_those_of_its_rounds():
    """Two chains of five visits and ten examples; a model of 25 numbers, whose example takes 1000 operations."""
    logs = [round_log(r, a, chains=2, visits=5, examples=10) for r, a in enumerate([0.1, 0.4, 0.7, 0.8], start=1)]
    wanted = Evaluate(every=1, smooth=1, shares=(0.5, 0.8, 1.0), target=0.8)
    found = summarise("x", logs, wanted, params_sha256="", estimate=Estimate(1000, 25))
    assert found.rounds_to == {"0.5": 2, "0.8": 3, "1": 4}
    by = found.estimates_to
    assert by["traffic_bytes"] == {"0.5": 2 * 10 * 100, "0.8": 2 * 15 * 100, "1": 2 * 20 * 100}  # Eq. 17: 2 κKMR
    assert by["communication_seconds"]["0.8"] == pytest.approx(8 * 15 * 100 * 2 / 567e6)
    assert by["computing_seconds"]["0.8"] == pytest.approx(3 * (1000 * 5 + 25) / 567e9)
    assert {name: shares["1"] for name, shares in by.items()} == found.estimates
    never = summarise("x", logs, replace(wanted, target=1.0), params_sha256="", estimate=Estimate(1000, 25))
    assert never.estimates_to["traffic_bytes"] == {"0.5": 3000, "0.8": 4000, "1": None}


def test_a_round_is_read_back_as_it_was_written(tmp_path):
    whole = replace(
        log(1, 0.5),
        drops=(Dropped(3, 0, 1, "lost"),),
        undescribed=(Undescribed(4, "silent"),),
        sampling={"distinct": 8.0, "expected_distinct": None},
        simulated_seconds=1.25,
        classes=7,
        metrics={"accuracy": 0.5, "loss": 0.1, "f1": 0.3},
        over_clients={"train_loss": 0.2, "train_loss_deviation": None},
    )
    untested = replace(log(2, None), metrics={})
    Lines(tmp_path / "rounds.jsonl").restart([encode(whole), encode(untested)])
    assert read_rounds(tmp_path / "rounds.jsonl") == [whole, untested]


def test_what_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path):
    for odd in (np.float64(1), np.zeros(2), range(3), {1, 2}):
        with pytest.raises(TypeError, match=r"state.memo\['odd'\]"):
            checkpoint.save(tmp_path, State(1, (Baton(torch.zeros(2)),), {}, {}, {"odd": odd}), {})


def test_a_checkpoint_holds_no_code(tmp_path, monkeypatch):
    """Only our own records and tensors are loaded: a pickle that wants anything else is refused by torch."""
    monkeypatch.setattr(checkpoint, "check", lambda tree: None)

    class Evil:
        def __reduce__(self):
            return (os.system, ("true",))

    path = checkpoint.save(tmp_path, State(1, (Baton(torch.zeros(2)),), {}, {}, {"x": Evil()}), {})
    assert path.exists()
    with pytest.raises(Exception, match=r"weights_only|Unsupported|not allowed"):
        checkpoint.load(tmp_path)


def test_rounds_to_averages_the_evaluations_of_the_last_rounds():
    lines = [round_log(r, a) for r, a in enumerate([0.1, 0.9, 0.2, 0.8, 0.8, None, 0.8], start=1)]
    assert rounds_to(lines, 0.5, smooth=1) == 2
    assert rounds_to(lines, 0.5, smooth=2) == 2
    assert rounds_to(lines, 0.6, smooth=3) == 4  # (0.9 + 0.2 + 0.8) / 3
    assert rounds_to(lines, 0.8, smooth=2) == 5
    assert rounds_to(lines, 0.95, smooth=1) is None


MAE = Headline("mae", higher_is_better=False, share=False)


def test_an_error_reaches_its_target_from_above():
    """At or below 4 / 0.5 = 8 and 4 / 0.8 = 5; the mean of the last two is 4.5, the best 4."""
    values = [16.0, 9.0, 8.0, None, 4.0, 5.0]
    logs = [replace(log(r, None), metrics={} if v is None else {"mae": v}) for r, v in enumerate(values, start=1)]
    wanted = Evaluate(every=1, last=2, smooth=1, shares=(0.5, 0.8, 1.0), target=4.0)
    found = summarise("x", logs, wanted, params_sha256="", headline=MAE)
    assert found.rounds_to == {"0.5": 3, "0.8": 5, "1": 5}
    assert (found.metric, found.higher_is_better, found.mean, found.best, found.final) == ("mae", False, 4.5, 4.0, 5.0)
    assert (found.accuracy, found.best_accuracy, found.final_accuracy) == (None, None, None)
    assert found.jump == pytest.approx((7 + 1 + 4 + 1) / 4)


def test_an_error_without_a_target_is_measured_against_nothing():
    logs = [replace(log(1, None), metrics={"mae": 0.5})]
    found = summarise("x", logs, Evaluate(every=1), params_sha256="", headline=MAE)
    assert (found.target, set(found.rounds_to.values())) == (None, {None})


def test_the_accuracies_stay_beside_another_headline():
    logs = [replace(log(r, None), metrics={"f1": r / 10, "accuracy": 0.5 - r / 10}) for r in (1, 2)]
    headline = Headline("f1")
    found = summarise("x", logs, Evaluate(every=1), params_sha256="", headline=headline)
    assert (found.best, found.final) == (0.2, 0.2)
    assert (found.best_accuracy, found.final_accuracy) == (0.4, 0.3)


def test_what_is_measured_as_a_share_has_no_target_above_one():
    assert Evaluate().of(Headline()).target == 1.0
    assert Evaluate(target=45.0).of(MAE).target == 45.0
    with pytest.raises(BadInput, match=r"target must be above 0 and at most 1, not 1\.5"):
        Evaluate(target=1.5).of(Headline())


@pytest.mark.parametrize(
    "bad",
    [
        {"every": 0},
        {"target": 0.0},
        {"shares": (2.0,)},
        {"last": 0},
        {"last_rounds": 0},
        {"clients_every": 0},
        {"smooth": 0},
    ],
)
def test_evaluation_settings_out_of_range_are_refused(bad):
    with pytest.raises(BadInput, match="must be"):
        Evaluate(**bad)


def test_sigkill_at_five_random_moments_and_resume_gives_the_same_bits(tmp_path):
    """A real process, killed for real, resumed until it ends; compared with an uninterrupted process."""
    rounds = 200
    file = tmp_path / "run.toml"
    changes = {"rounds": rounds, "checkpoint": 2}
    file.write_text(tomli_w.dumps({**TABLES, **changes}))
    command = [sys.executable, "-m", "fedrelay.cli", "run", str(file), "--json"]
    done = subprocess.run([*command, "--out", str(tmp_path / "whole")], capture_output=True, check=True, text=True)
    expected = json.loads(done.stdout)["params_sha256"]
    killed = [*command, "--out", str(tmp_path / "killed"), "--resume"]
    moments = random.Random(5)
    folder = tmp_path / "killed"
    for kill in range(5):
        process = subprocess.Popen(killed, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        goal = (kill + 1) * 8  # each time a little further into the run …
        while process.poll() is None and written(folder) < goal:
            time.sleep(0.002)
        time.sleep(moments.random() * 0.05)  # … and then at any moment
        process.kill()
        process.communicate()
    assert not (folder / "summary.json").exists()
    done = subprocess.run(killed, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout)["params_sha256"] == expected
    assert timeless(folder) == timeless(tmp_path / "whole")


def written(folder: Path) -> int:
    path = folder / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


LATENCY = {
    "speed": {"name": "tiers", "values": [5.0, 50.0]},
    "bandwidth": {"name": "lognormal", "median": 1.0},
    "availability": {"name": "constant", "value": 0.9},
}


def test_with_a_latency_every_line_has_its_time_and_the_summary_the_time_to_each_share(tmp_path):
    summary = run_whole(tmp_path / "run", latency=LATENCY, evaluate={"every": 1, "target": 0.2})
    lines = read_rounds(tmp_path / "run" / "rounds.jsonl")
    assert all(line.simulated_seconds > 0 for line in lines)
    for share, reached in summary.rounds_to.items():
        spent = None if reached is None else sum(line.simulated_seconds for line in lines[:reached])
        assert summary.time_to[share] == spent
    assert any(time is not None for time in summary.time_to.values())
    assert summary.simulated_seconds == sum(line.simulated_seconds for line in lines)


def test_without_a_latency_there_is_no_time_that_was_not_measured(whole):
    _, summary = whole
    assert summary.simulated_seconds is None
    assert set(summary.time_to.values()) == {None}


def test_the_summary_counts_groups_relayed_traffic_and_estimates(tmp_path):
    summary = run_whole(
        tmp_path / "run",
        rounds=4,
        algorithm={"name": "fedgsp", "fraction": 0.5, "growth": {"name": "constant", "groups": 4}},
    )
    model = (64 * 8 + 8 + 8 * 10 + 10) * 4
    visits = 4 * 2 * 5  # rounds, chains, clients of a chain
    assert summary.parallelism == 4
    assert summary.relayed == {"messages": 2 * 4 * 2 * 4, "bytes": 2 * 4 * 2 * 4 * model}
    assert summary.estimates["traffic_bytes"] == 2 * visits * model
    assert summary.describing == {"messages": 20, "bytes": 20 * 10 * 4}  # every client's class counts
    assert summary.bytes["total"] == 2 * visits * model + 20 * 10 * 4
    assert summary.estimates["communication_seconds"] == pytest.approx(8 * visits * model * 2 / 567e6)
    # forwards: two operations for each of 64 · 8 + 8 · 10 weights; backwards twice as much
    training = 3 * 2 * (64 * 8 + 8 * 10) * summary.examples / 2
    assert summary.estimates["computing_seconds"] == pytest.approx((training + 4 * model / 4) / 567e9)


@pytest.mark.parametrize("algorithm", ["fedseqinter", "fedasyncseq", "fedseq2par", "fedgsp", "naivegsp"])
def test_methods_with_more_state_are_resumed_to_the_same_bits(algorithm, tmp_path):
    changes = {"algorithm": {"name": algorithm, "fraction": 0.5}, "latency": LATENCY}
    one = run_whole(tmp_path / "whole", **changes)
    for line in recorder_in(tmp_path / "run", **changes).run():
        if line.round == 5:
            break
    resumed = recorder_in(tmp_path / "run", resume=True, **changes)
    list(resumed.run())
    assert resumed.summary().params_sha256 == one.params_sha256
    assert timeless(tmp_path / "run") == timeless(tmp_path / "whole")


def test_a_latency_for_other_clients_is_refused_before_the_run(tmp_path):
    with pytest.raises(BadInput, match=r"latency\.speed: 3 values are given for 20 clients"):
        recorder_in(tmp_path / "run", latency={"speed": {"name": "given", "values": [1.0, 2.0, 3.0]}})
    with pytest.raises(BadInput, match=r"\[latency\]: unknown key 'speeds'; did you mean 'speed'"):
        recorder_in(tmp_path / "run", latency={"speeds": {"name": "constant", "value": 1.0}})


def test_the_main_class_of_every_client_is_written_where_it_is_known(whole, tmp_path):
    """Counted by hand from the labels that every client has."""
    federation = config.build(TABLES).federation
    labels = [federation.source.train.labels[list(rows)] for rows in owned(federation)]
    expected = [max(range(10), key=lambda kind, mine=mine: (int((mine == kind).sum()), -kind)) for mine in labels]
    assert read_labels(whole[0]) == Labels(tuple(map(str, range(10))), tuple(expected))
    engine = Inline(federation, Task.of(Logistic(), federation))
    recorder = Recorder(tmp_path / "run", fr.method(), engine, federation.test, rounds=1)
    assert len(list(recorder.run())) == 1
    assert read_labels(tmp_path / "run") is None  # who is not told of the federation cannot know


def owned(federation):
    """The rows of every client."""
    starts = federation.starts.tolist()
    return [federation.order[a:b].tolist() for a, b in pairwise(starts)]
