from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from needs import posix
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Federation, RunFailed, Sgd, Task, deployed, train, vectors
from fedrelay.algorithms import fedseq
from fedrelay.data import Dirichlet, Natural, digits, quadratic
from fedrelay.engines import Inline, Pool
from fedrelay.engines.pool.dispatch import Bundles
from fedrelay.kernels.winograd import best_points
from fedrelay.models import Own, Quadratic, SmallCnn
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Chain, Report, Work

SEED = 3


@dataclass(frozen=True)
class Count(Work):
    """Adds one to the model; keeps a counter and a vector; reports a vector; misbehaves where it is told to."""

    raising: frozenset[int] = field(default_factory=frozenset)
    spoiling: frozenset[int] = field(default_factory=frozenset)

    def __call__(self, baton, visit):
        client = visit.client.id
        if client in self.raising:
            raise OSError(f"disk of {client} is full")
        params = baton.params + (float("nan") if client in self.spoiling else 1.0)
        visits = visit.memory.get("visits", 0) + 1
        memory = {"visits": visits, "last": params * visits, "array": np.arange(visits)}
        uplink = {"twice": params * 2, "told": visit.shared["told"] + client}
        return Baton(params, baton.weight + visit.client.size), memory, Report(client, 5, {"loss": 0.5}, uplink)


@dataclass(frozen=True)
class Deadly(Work):
    """Ends its own process at the first `lives` visits to client 2, as a system short of memory would."""

    folder: str
    lives: int

    def __call__(self, baton, visit):
        if visit.client.id == 2:
            seen = len(list(Path(self.folder).iterdir()))
            if seen < self.lives:
                (Path(self.folder) / f"{seen}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return Count()(baton, visit)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(quadratic(clients=6, dimension=2, seed=2), Natural())


@pytest.fixture(scope="module")
def pool(federation) -> Iterator[Pool]:
    with Pool(federation, Task.of(Quadratic(), federation), SEED, workers=2) as engine:
        yield engine


@pytest.fixture
def inline(federation) -> Inline:
    return Inline(federation, Task.of(Quadratic(), federation), SEED)


CHAINS = [(0, 1), (3,), (2, 4, 5)]


def chains(*clients: tuple[int, ...]) -> list[Chain]:
    return [Chain(Baton(torch.full((2,), float(number))), one) for number, one in enumerate(clients)]


def plain(tree: object) -> object:
    """A tree with its tensors as lists, so that == compares all of it."""
    if isinstance(tree, torch.Tensor | np.ndarray):
        return tree.tolist()
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return tree


def told(outcomes) -> list[object]:
    return [
        (
            o.chain.clients,
            o.baton.params.tolist(),
            o.baton.weight,
            [(r.client, r.examples, r.metrics, plain(r.uplink)) for r in o.reports],
            o.dropped,
        )
        for o in outcomes
    ]


def test_outcomes_and_memories_are_those_of_inline_in_the_order_of_chains(pool, inline):
    work = Count(raising=frozenset({4}), spoiling=frozenset({3}))
    shared = {"told": torch.tensor([7.0, 8.0])}
    pool.remember(0, {})
    for round in (1, 2, 3):
        there, here = (list(engine.run(work, chains(*CHAINS), shared, round)) for engine in (pool, inline))
        assert told(there) == told(here)
        for engine in (pool, inline):
            engine.commit(round)
        (a, kept), (b, expected) = pool.memories(), inline.memories()
        assert a == b == round
        assert plain(dict(kept)) == plain(dict(expected))
    assert kept[0]["visits"] == 3
    assert sorted(kept) == [0, 1, 2, 5]


def test_an_uncommitted_round_leaves_nothing_behind(pool):
    shared = {"told": torch.zeros(2)}
    pool.remember(0, {})
    list(pool.run(Count(), chains(*CHAINS), shared, 1))
    list(pool.run(Count(), chains(*CHAINS), shared, 1))
    pool.commit(1)
    assert {memory["visits"] for memory in pool.memories()[1].values()} == {1}


def test_results_stay_good_when_the_shared_memory_is_used_again(pool):
    shared = {"told": torch.zeros(2)}
    (first,) = pool.run(Count(), chains((0, 1)), shared, 1)
    before = told([first])
    list(pool.run(Count(), chains((3, 4, 5), (2,)), shared, 2))
    assert told([first]) == before


WIDE = Own(
    nn.Sequential(
        *(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 5, padding=2), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dropout(0.25), nn.Linear(1024, 10)),
    )
)
"""Steps straight into the weights, with dropout and a convolution of few multiplications."""


def test_the_wide_model_has_what_it_is_for():
    assert best_points((64, 5, 5, 64), 32, 8, 8) is not None
    assert Workspaces(Task(WIDE, (1, 8, 8), 10)).main.draws


@pytest.mark.parametrize(
    ("model", "local"),
    [(SmallCnn(channels=(4,)), Sgd(batch=8, lr=0.1, momentum=0.5)), (WIDE, Sgd(batch=32, lr=0.01))],
    ids=["small", "wide"],
)
def test_the_model_is_the_same_to_the_bit_as_inline_whatever_the_number_of_workers(model, local):
    federation = Federation.split(digits(), Dirichlet(alpha=0.1, deal="classes"), 12, SEED)
    algorithm = fr.method(fedseq(max_clients=2), local=local, fraction=1.0)

    def fingerprints(engine) -> list[str]:
        return [vectors.sha256(deployed(state).params) for state in train(algorithm, engine, rounds=2)]

    task = Task.of(model, federation)
    expected = fingerprints(Inline(federation, task, SEED, threads=1))
    assert expected[0] != expected[1]
    with Pool(federation, task, SEED, workers=1) as engine:
        for workers in (1, 2, 3):
            engine.workers = workers  # one after another is quicker than three engines
            assert fingerprints(engine) == expected
            assert len(pids(engine)) == workers


class Threads:
    """Is pickled as the number of threads that operators have where it is pickled."""

    def __reduce__(self):
        return int, (torch.get_num_threads(),)


@dataclass(frozen=True)
class Tell(Work):
    def __call__(self, baton, visit):
        return baton, visit.memory, Report(visit.client.id, 1, {}, {"threads": Threads()})


def test_workers_have_one_thread_between_visits_too(federation, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # what a worker would have by itself
    with Pool(federation, Task.of(Quadratic(), federation), SEED, workers=1) as engine:
        (outcome,) = engine.run(Tell(), chains((0,)), {}, 1)
    assert outcome.reports[0].uplink == {"threads": 1}


@posix
def test_a_worker_that_is_killed_is_replaced_and_its_chains_are_run_again(pool, inline, tmp_path, caplog):
    shared = {"told": torch.zeros(2)}
    pool.remember(0, {})
    found = list(pool.run(Deadly(str(tmp_path), lives=2), chains(*CHAINS), shared, 1))
    pool.commit(1)
    assert len(list(tmp_path.iterdir())) == 2
    assert told(found) == told(inline.run(Count(), chains(*CHAINS), shared, 1))
    assert [memory["visits"] for memory in pool.memories()[1].values()] == [1] * 6
    assert caplog.text.count("killed by SIGKILL") == 2


@posix
def test_a_worker_killed_from_outside_in_the_middle_of_a_round_is_replaced(pool, inline, caplog):
    shared, round = {"told": torch.zeros(2)}, chains((0,), (1,), (2,), (3,), (4,), (5,))
    expected = told(inline.run(Count(), round, shared, 1))
    outcomes = pool.run(Sluggish(), round, shared, 1)
    first = next(outcomes)
    os.kill(pids(pool, busy=True)[0], signal.SIGKILL)
    assert told([first, *outcomes]) == expected
    assert "killed by SIGKILL" in caplog.text


@dataclass(frozen=True)
class Sluggish(Work):
    """As `Count`, but takes its time."""

    def __call__(self, baton, visit):
        time.sleep(0.2)
        return Count()(baton, visit)


@posix
def test_a_chain_that_ends_every_worker_stops_the_run_and_is_named(pool, tmp_path):
    with pytest.raises(RunFailed, match=r"3 worker processes ended over the chain of client 2, 4, 5"):
        list(pool.run(Deadly(str(tmp_path), lives=99), chains(*CHAINS), {"told": torch.zeros(2)}, 1))
    assert [o.chain.clients for o in pool.run(Count(), chains((2,)), {"told": torch.zeros(2)}, 1)] == [(2,)]


def test_zero_workers_are_refused(federation):
    with pytest.raises(BadInput, match="workers must be at least 1, not 0"):
        Pool(federation, Task.of(Quadratic(), federation), workers=0)


def test_more_workers_than_chains_is_said_once_and_idle_ones_are_not_started(federation, caplog):
    with Pool(federation, Task.of(Quadratic(), federation), SEED, workers=5) as engine:
        for round in (1, 2):
            list(engine.run(Count(), chains((0,)), {"told": torch.zeros(2)}, round))
        assert len(engine._pool.pool.workers) == 1
    assert caplog.text.count("5 workers for 1 chain(s) in round 1") == 1


def pids(engine: Pool, *, busy: bool = False) -> list[int]:
    return [one.process.pid for one in engine._pool.pool.workers if one.job is not None or not busy]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        if sys.platform != "linux":
            return True
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"  # ended, and its new parent has not looked yet


def ended(pids: list[int]) -> bool:
    deadline = time.monotonic() + 120
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(is_alive, pids))


@posix
def test_no_process_and_no_file_survives_the_engine(federation):
    engine = Pool(federation, Task.of(Quadratic(), federation), workers=1)
    list(engine.run(Count(), chains(*CHAINS), {"told": torch.zeros(2)}, 1))
    workers, folder = pids(engine), engine._pool.pool._folder.path
    assert len(workers) == 1
    assert folder.is_dir()
    del engine
    gc.collect()
    assert ended(workers)
    assert not folder.exists()


@posix
def test_a_round_that_is_left_halfway_stops_its_workers_and_the_next_one_is_right(pool):
    outcomes = pool.run(Slow(), chains(*CHAINS), {}, 1)
    assert next(outcomes).chain.clients == (0, 1)
    busy = pids(pool, busy=True)
    assert busy
    outcomes.close()
    assert ended(busy)
    found = list(pool.run(Count(), chains(*CHAINS), {"told": torch.zeros(2)}, 2))
    assert [o.baton.params.tolist() for o in found] == [[2, 2], [2, 2], [5, 5]]


@dataclass(frozen=True)
class Slow(Work):
    """Quick at clients 0 and 1, hours at the others."""

    def __call__(self, baton, visit):
        if visit.client.id > 1:
            time.sleep(9999)
        return baton, visit.memory, Report(visit.client.id, 1)


PARENT = """
import sys, time
sys.path[:0] = {path!r}
import test_pool
from fedrelay import Federation, Task
from fedrelay.data import Natural, quadratic
from fedrelay.engines import Pool
from fedrelay.models import Quadratic

if __name__ == "__main__":
    federation = Federation.split(quadratic(clients=6, dimension=2, seed=2), Natural())
    engine = Pool(federation, Task.of(Quadratic(), federation), workers=1)
    outcomes = engine.run(test_pool.Slow(), test_pool.chains((0, 1), (3,)), {{}}, 1)
    next(outcomes)
    print(engine._pool.pool._folder.path, *[one.process.pid for one in engine._pool.pool.workers], flush=True)
    {rest}
"""


@posix
@pytest.mark.parametrize("end", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("rest", ["next(outcomes)", "time.sleep(99)"], ids=["at work", "idle"])
def test_workers_do_not_outlive_their_parent(tmp_path, end, rest):
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(path=[str(Path(__file__).parent), *sys.path], rest=rest))
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        folder, *workers = run.stdout.readline().split()
        run.send_signal(getattr(signal, end))
        try:
            assert ended([int(pid) for pid in workers])
            run.wait(120)
        finally:
            run.kill()  # leaving the block waits for it, and it would sleep for hours
    until = time.monotonic() + 120  # whoever ends last takes the folder along, on a busy machine a little later
    while Path(folder).exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(folder).exists()


def test_longest_chains_go_first_in_bundles_that_become_smaller():
    queue = Bundles(chains((0,), (1,), (2,), (3, 4)), [5, 1, 9, 3, 4], workers=1)
    assert [queue.take() for _ in range(5)] == [(2,), (3,), (0,), (1,), ()]
    queue = Bundles(chains(*[(0,)] * 64), [1], workers=2)
    taken = []
    while numbers := queue.take():
        taken.append(numbers)
    assert [number for numbers in taken for number in numbers] == list(range(64))
    lengths = [len(numbers) for numbers in taken]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == 16
    assert lengths[-2:] == [1, 1]
