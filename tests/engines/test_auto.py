"""The engine that chooses: what it takes, that it says so, and that the choice makes a run repeatable."""

from __future__ import annotations

import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from needs import lacking

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, config, deployed, train
from fedrelay.algorithms import elmy, fedavg, fedcyclic, fedper
from fedrelay.data import Dirichlet, Iid, digits
from fedrelay.data.stores.on_disk import RowsFile, StoredExamples
from fedrelay.engines import Auto, Inline, auto, bits
from fedrelay.engines import sample as measuring
from fedrelay.engines.auto import makespan
from fedrelay.engines.relay import Context, Simulation
from fedrelay.engines.sample import Sample
from fedrelay.kernels import native
from fedrelay.models import Mlp
from fedrelay.runs.log import Summary
from fedrelay.types import Baton, Chain, Report, Work

TABLES = {
    "rounds": 4,
    "seed": 3,
    "checkpoint": 2,
    "data": {"name": "digits", "clients": 12, "partition": {"name": "dirichlet", "alpha": 0.3}},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 8, "lr": 0.1},
    "algorithm": {"name": "fedavg", "fraction": 0.5},
}


@pytest.fixture
def speeds(monkeypatch):
    """Says what measuring finds: seconds an example with one thread, with all, and stacked; on two cores."""

    def say(one: float, all_threads: float, stacked: float, native: float = 1.0, stacked_native: float = 1.0) -> None:
        def one_by_one(self, threads, **_):
            return native if self.simulation.native else one if threads == 1 else all_threads

        monkeypatch.setattr(Sample, "one_by_one", one_by_one)

        def together(self, rows):
            return stacked_native if self.simulation.native else stacked

        monkeypatch.setattr(Sample, "together", together)
        monkeypatch.setattr(Sample, "in_threads", lambda self, threads: True)
        monkeypatch.setattr(auto, "cores", lambda: 2)
        monkeypatch.setattr(auto, "found_native", lambda: True)  # also where there was no compiler

    return say


def run(folder: Path, *, resume: bool = False, **changes) -> Summary:
    recorder = config.build({**TABLES, **changes}).record(folder, resume=resume)
    for _ in recorder.run():
        pass
    return recorder.summary()


def engine_of(folder: Path) -> dict:
    return tomllib.loads((folder / "config.toml").read_text())["engine"]


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ((1e-6, 1e-6, 1e-6), {"name": "inline", "threads": 1}),  # all the same: the portable one
        ((1e-6, 0.95e-6, 0.95e-6), {"name": "inline", "threads": 1}),  # not enough to change bits for
        ((1e-6, 0.5e-6, 0.9e-6), {"name": "inline", "threads": 2}),
        ((1e-6, 0.9e-6, 0.3e-6), {"name": "stacked", "rows": 3, "workers": 1}),
        ((1e-2, 1e-2, 1e-2), {"name": "pool", "workers": 2}),  # rounds so long that workers pay
        ((1e-2, 1e-2, 0.2e-2), {"name": "stacked", "rows": 3, "workers": 2}),
        ((1e-6, 1e-6, 1e-6, 0.95e-6), {"name": "inline", "threads": 1}),  # not enough to change bits for either
        ((1e-6, 1e-6, 0.5e-6, 0.3e-6), {"name": "inline", "threads": 1, "native": True}),
        ((1e-2, 1e-2, 0.5e-2, 0.3e-2), {"name": "pool", "workers": 2, "native": True}),
        ((1e-6, 1e-6, 0.5e-6, 0.3e-6, 0.2e-6), {"name": "stacked", "rows": 6, "threads": 1, "native": True}),
        ((1e-2, 1e-2, 0.5e-2, 0.3e-2, 0.2e-2), {"name": "stacked", "rows": 6, "threads": 2, "native": True}),
        # Rounds so long that they must not be lost: what workers have done of them is kept.
        ((1.0, 1.0, 1.0, 0.2, 0.1), {"name": "pool", "workers": 2, "native": True}),
    ],
)
def test_the_fastest_way_is_taken_if_it_is_worth_it(speeds, found, chosen):
    speeds(*found)
    federation = Federation.split(digits(), Dirichlet(alpha=0.3, deal="classes"), 12)
    engine = Auto(federation, Task.of(Mlp(hidden=(8,)), federation))
    taken: list[dict] = []
    engine.choose = lambda settings: taken.append(dict(settings))  # so that nothing is started
    next(iter(train(fr.method(fedavg(), local=Sgd(batch=8), fraction=0.5), engine, rounds=1)))
    assert taken == [chosen]


@pytest.mark.parametrize("found", [(1e-2, 0.1e-2, 1e-2), (1e-2, 1e-2, 0.2e-2), (1e-2, 1e-2, 1e-2, 0.3e-2, 0.2e-2)])
def test_on_one_core_nothing_is_shared(speeds, monkeypatch, found):
    speeds(*found)
    monkeypatch.setattr(auto, "cores", lambda: 1)
    federation = Federation.split(digits(), Dirichlet(alpha=0.3, deal="classes"), 12)
    engine = Auto(federation, Task.of(Mlp(hidden=(8,)), federation))
    next(iter(train(fr.method(fedavg(), local=Sgd(batch=8), fraction=0.5), engine, rounds=1)))
    assert engine.settings["name"] != "pool"
    assert all(engine.settings.get(key, 1) == 1 for key in ("workers", "threads"))


def test_threads_are_reckoned_with_only_where_they_train(speeds, monkeypatch):
    """The user's own transform is run by one thread."""
    if not native.available():
        lacking(f"the compiled part is not there: {native.found()}")
    shares = Sample.in_threads
    speeds(1e-2, 1e-2, 0.5e-2, 0.3e-2, 0.2e-2)
    monkeypatch.setattr(Sample, "in_threads", shares)
    source = digits()
    taken = []
    for train_part in (source.train, source.train.with_transform(lambda x, rng: x)):
        changed = replace(source, train=train_part)
        federation = Federation.split(changed, Dirichlet(alpha=0.3, deal="classes"), 12)
        engine = Auto(federation, Task.of(Mlp(hidden=(8,)), federation))
        monkeypatch.setattr(engine, "choose", lambda settings: taken.append(settings.get("threads")))
        next(iter(train(fr.method(fedavg(), local=Sgd(batch=8), fraction=0.5), engine, rounds=1)))
    assert taken[0] == 2
    assert taken[1] in (1, None)


def test_one_chain_is_never_given_to_workers_or_stacked(speeds):
    speeds(1.0, 2.0, 0.1)
    federation = Federation.split(digits(), Dirichlet(alpha=0.3, deal="classes"), 12)
    engine = Auto(federation, Task.of(Mlp(hidden=(8,)), federation))
    next(iter(train(fr.method(fedcyclic(), local=Sgd(batch=8), fraction=0.2), engine, rounds=1)))
    assert engine.settings == {"name": "inline", "threads": 1}


def test_the_choice_is_written_down_and_a_run_from_that_file_has_the_same_bits(speeds, tmp_path):
    speeds(1e-6, 1e-6, 0.1e-6)
    summary = run(tmp_path / "first")
    assert engine_of(tmp_path / "first") == {"name": "stacked", "rows": 3, "workers": 1}
    speeds(1e-6, 1e-6, 1e-6)  # measuring again would find something else
    tables = config.read(tmp_path / "first" / "config.toml")
    recorder = config.build(tables).record(tmp_path / "again")
    list(recorder.run())
    assert recorder.summary().params_sha256 == summary.params_sha256
    assert run(tmp_path / "other").params_sha256 != summary.params_sha256


def test_a_native_choice_is_written_down_and_a_run_from_that_file_has_the_same_bits(speeds, tmp_path):
    if not native.available():
        lacking(f"the compiled part is not there: {native.found()}")
    speeds(1e-6, 1e-6, 1e-6, 0.5e-6, 0.1e-6)
    summary = run(tmp_path / "first")
    assert engine_of(tmp_path / "first") == {"name": "stacked", "rows": 6, "threads": 1, "native": True}
    recorder = config.build(config.read(tmp_path / "first" / "config.toml")).record(tmp_path / "again")
    list(recorder.run())
    assert recorder.summary().params_sha256 == summary.params_sha256
    alone = {"name": "inline", "threads": 1, "native": True}
    assert run(tmp_path / "alone", engine=alone).params_sha256 == summary.params_sha256


def test_a_run_that_goes_on_keeps_its_choice_without_measuring(speeds, tmp_path, monkeypatch):
    speeds(1e-6, 1e-6, 0.1e-6)
    whole = run(tmp_path / "whole", rounds=6)
    run(tmp_path / "parts", rounds=3)
    monkeypatch.setattr(Sample, "__init__", lambda *arguments: pytest.fail("it measured"))
    assert run(tmp_path / "parts", rounds=6, resume=True).params_sha256 == whole.params_sha256
    assert engine_of(tmp_path / "parts") == {"name": "stacked", "rows": 3, "workers": 1}


def test_a_run_can_go_on_with_another_engine_only_if_its_bits_are_the_same(speeds, tmp_path):
    speeds(1e-6, 1e-6, 1e-6)
    run(tmp_path / "run", rounds=2)
    whole = run(tmp_path / "whole", rounds=4)
    with pytest.raises(BadInput, match="it differs in engine"):
        run(tmp_path / "run", rounds=4, resume=True, engine={"name": "stacked"})
    summary = run(tmp_path / "run", rounds=4, resume=True, engine={"name": "pool", "workers": 1})
    assert summary.params_sha256 == whole.params_sha256


def test_measuring_for_real_leaves_nothing_behind(tmp_path):
    """Whatever is chosen here, the run from its file is the same: measuring kept no memory and changed no model."""
    local = {**TABLES["algorithm"], "name": "scaffold"}
    summary = run(tmp_path / "first", algorithm=local)
    assert engine_of(tmp_path / "first")["name"] in ("inline", "pool", "stacked")
    again = run(tmp_path / "again", algorithm=local, engine=engine_of(tmp_path / "first"))
    assert again.params_sha256 == summary.params_sha256


@dataclass(frozen=True)
class Diary(Work):
    """Counts the visits of every client, in its memory."""

    def __call__(self, baton, visit):
        visits = visit.memory.get("visits", 0) + 1
        return Baton(baton.params + visits, baton.weight + 1), {"visits": visits}, Report(visit.client.id, 1)


@pytest.mark.parametrize(
    ("slow", "kept", "words"),
    [("pool", "inline", "workers turned out slower"), ("inline", "pool", "faster than without")],
)
def test_workers_that_look_slower_are_given_up_if_rounds_without_them_are_faster(
    speeds, monkeypatch, slow, kept, words
):
    """Whatever was measured before the first round: when others use the machine, all is slower than it was."""
    speeds(1.0, 2.0, 1.0)
    monkeypatch.setitem(auto.KINDS, "pool", Sluggard if slow == "pool" else Idler)
    monkeypatch.setitem(auto.KINDS, "inline", Sluggard if slow == "inline" else Idler)
    federation = Federation.split(digits(), Dirichlet(alpha=0.3, deal="classes"), 12)
    task = Task.of(Mlp(hidden=(8,)), federation)
    algorithm = replace(fr.method(fedavg(), fraction=0.5), update=Diary())
    engine = Auto(federation, task, memory_limit=1.0)
    names, states = [], []
    for state in train(algorithm, engine, rounds=8):
        states.append(state)
        if engine._trial is not None:
            engine._trial = replace(engine._trial, alone=0.0)  # whatever they take seems too long
        names.append(engine.settings["name"])
    rest = 8 - auto.TRIAL - auto.CONTROL
    assert names == ["pool"] * auto.TRIAL + ["inline"] * auto.CONTROL + [kept] * rest
    assert words in engine.explanation
    assert engine.settings["memory_limit"] == 1.0
    *_, expected = train(algorithm, plain := Inline(federation, task), rounds=8)
    assert torch.equal(deployed(states[-1]).params, deployed(expected).params)
    assert dict(engine.memories()[1]) == dict(plain.memories()[1])


class Idler(Inline):
    """Stands in for any engine, so that no process is started."""

    pause = 0.0

    def __init__(self, federation, task, seed, *, memory_limit, **settings):
        super().__init__(federation, task, seed, memory_limit=memory_limit)

    def run(self, *arguments):
        time.sleep(self.pause)
        yield from super().run(*arguments)


class Sluggard(Idler):
    pause = 0.1


def test_what_others_do_on_the_machine_does_not_change_what_one_thread_is_measured_to_take():
    """Work that waits for its turn, as it would for a core: only its own time on one counts."""
    assert time.get_clock_info("thread_time").resolution < 1e-5

    def turn(_: int) -> int:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        time.sleep(0.02)
        return 1

    assert measuring.timed(turn, measuring.clock_of(1)) == pytest.approx(0.002, rel=0.5)
    assert measuring.timed(turn, measuring.clock_of(2)) > 0.02


def test_waiting_for_examples_that_are_not_in_memory_counts(tmp_path, monkeypatch):
    source = digits()
    np.save(tmp_path / "x.npy", source.train.x.numpy())
    stored = StoredExamples(tmp_path / "x.npy", torch.arange(len(source.train)), source.train.y, source.train.transform)
    federation = Federation.split(replace(source, train=stored), Iid(), 40)
    task = Task.of(Mlp(hidden=(4,)), federation)
    take = RowsFile.take

    def slowly(self, rows):
        time.sleep(0.01)  # as a disk that turns
        return take(self, rows)

    monkeypatch.setattr(RowsFile, "take", slowly)
    chains = [Chain(Baton(task.init(0)), (client,)) for client in range(4)]
    context = Context(fr.method(fedavg(), local=Sgd(batch=1000)).update, {}, 1)
    sample = Sample(Simulation(federation, task, 0), context, chains, {})
    assert sample.one_by_one(threads=1) * max(federation.sizes) > 0.01


def test_clients_of_unlike_sizes_stay_unlike_when_they_are_cut_for_measuring():
    """Together they take as long as the largest: cut to one size, stacking them would look faster than it is."""
    sizes = (1000, 100, 100, 60)
    rows = [np.arange(sum(sizes[:n]), sum(sizes[: n + 1])) for n in range(4)]
    federation = Federation.of(digits(), rows)
    task = Task.of(Mlp(hidden=(8,)), federation)
    chains = [Chain(Baton(task.init(0)), (client,)) for client in range(4)]
    context = Context(fr.method(fedavg(), local=Sgd(batch=8)).update, {}, 1)
    sample = Sample(Simulation(federation, task, 0), context, chains, {})
    assert [visit.client.size for _, visit in sample._visits] == [128, 13, 13, 8]


def test_the_explanation_names_every_way_with_its_time(speeds):
    speeds(1e-6, 0.5e-6, 0.2e-6)
    federation = Federation.split(digits(), Dirichlet(alpha=0.3, deal="classes"), 12)
    engine = Auto(federation, Task.of(Mlp(hidden=(8,)), federation))
    assert engine.settings == {"name": "auto"}
    next(iter(train(fr.method(fedavg(), local=Sgd(batch=8), fraction=0.5), engine, rounds=1)))
    assert engine.explanation.startswith("stacked (rows 3, workers 1): about ")
    for words in ("inline (threads 1)", "inline (threads 2)", "pool (workers 2)"):
        assert words in engine.explanation


def test_what_is_not_chosen_among_is_refused():
    federation = Federation.split(digits(), Dirichlet(alpha=0.3, deal="classes"), 12)
    with pytest.raises(BadInput, match="auto chooses among inline, pool, stacked, not 'auto'"):
        Auto(federation, Task.of(Mlp(hidden=(8,)), federation)).choose({"name": "auto"})
    with pytest.raises(BadInput, match=r"the engine inline cannot have \{'thread': 1\}: .*'thread'"):
        Auto(federation, Task.of(Mlp(hidden=(8,)), federation)).choose({"name": "inline", "thread": 1})


def test_settings_that_do_not_show_in_the_results_are_interchangeable():
    assert bits({"name": "inline", "threads": 1}) == bits({"name": "pool", "workers": 7}) == bits({"name": "pool"})
    assert bits({"name": "inline", "threads": 2}) != bits({"name": "pool"})
    assert bits({"name": "stacked", "rows": 4, "workers": 1}) == bits({"name": "stacked", "rows": 4, "workers": 2})
    assert bits({"name": "stacked", "rows": 4}) != bits({"name": "stacked", "rows": 8})
    assert bits({"name": "stacked", "rows": 4}) != bits({"name": "stacked", "rows": 4, "native": True})


def test_the_makespan_is_what_the_busiest_worker_does():
    assert makespan([5, 4, 3, 3], 2) == 8
    assert makespan([9], 2) == 9


def test_measured_visits_are_cut_short(monkeypatch):
    federation = Federation.split(digits(), Dirichlet(alpha=100.0), 4)
    assert min(federation.sizes) > measuring.MOST_EXAMPLES
    seen: list[int] = []
    task = Task.of(Mlp(hidden=(8,)), federation)
    monkeypatch.setattr(measuring, "SECONDS", 0.0)
    monkeypatch.setattr(measuring, "attempt", lambda work, baton, visit: seen.append(visit.client.size))
    monkeypatch.setattr(Sample, "together", lambda self, rows: 1.0)
    next(iter(train(fr.method(fedavg(), local=Sgd(batch=8), fraction=1.0), Auto(federation, task), rounds=1)))
    assert set(seen) == {measuring.MOST_EXAMPLES}
    assert len(seen) < 12


@pytest.mark.parametrize(
    ("local", "changes", "times"),
    [
        (Sgd(epochs=200, keep="best", validation=0.1), (), 200),
        (Sgd(steps=500), (), 50),
        (Sgd(epochs=40), (elmy(models=5, warm_up=30),), 200),
        (Sgd(epochs=40), (fedper(), elmy(models=5)), 200),
        (Sgd(), (), 1),
    ],
)
def test_a_visit_that_takes_long_is_measured_by_a_part_of_it(local, changes, times, monkeypatch):
    federation = Federation.split(digits(), Dirichlet(alpha=100.0), 4)
    task = Task.of(Mlp(hidden=(8,)), federation)
    work, seen = fr.method(*changes, local=local).update, []
    monkeypatch.setattr(measuring, "timed", lambda visits, clock: 2.0)
    monkeypatch.setattr(measuring, "attempt", lambda work, baton, visit: seen.append(work(baton, visit)[2].examples))
    chains = [Chain(Baton(task.init(0)), (0,))]
    sample = Sample(Simulation(federation, task, 0), Context(work, {}, 1), chains, {})
    assert sample.one_by_one(threads=1) == 2.0 * times
    assert max(seen) <= 10 * 32  # ten steps of the usual batch, or one pass over what the client is cut down to


def test_threads_that_wait_for_each_other_are_given_up_after_one_visit():
    made = []

    @dataclass(frozen=True)
    class Slow(Work):
        """As if threads waited for each other."""

        def __call__(self, baton, visit, /):
            made.append(torch.get_num_threads())
            time.sleep(0.3 if made[-1] > 1 else 0.01)
            return baton, visit.memory, Report(visit.client.id, visit.client.size)

    federation = Federation.split(digits(), Iid(), 10)
    task = Task.of(Mlp(hidden=(4,)), federation)
    chains = [Chain(Baton(task.init(0)), (client,)) for client in range(10)]
    sample = Sample(Simulation(federation, task, 0), Context(Slow(), {}, 1), chains, {})
    alone = sample.one_by_one(threads=1)
    assert sample.one_by_one(threads=2, hopeless=3 * alone) > 3 * alone
    assert made.count(2) == 1
