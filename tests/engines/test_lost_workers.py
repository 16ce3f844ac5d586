"""Workers that stop, die, or find no room: noticed, named honestly, replaced; and nothing of them is left behind."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from needs import posix
from test_pool import SEED, Count, chains, federation, pids, told  # noqa: F401 (a fixture)

from fedrelay import BadInput, RunFailed, Task
from fedrelay.engines import Inline, Pool, packing
from fedrelay.engines.pool.dispatch import Bundles, Stacks
from fedrelay.engines.shared_folder import Folder
from fedrelay.models import Quadratic
from fedrelay.system import processes
from fedrelay.system.processes import Patience, Watch
from fedrelay.types import Work

pytestmark = posix
SHARED = {"told": torch.zeros(2)}
SINGLE = chains((0,), (1,), (2,), (3,), (4,), (5,))
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says of a process that it is stopped")


@pytest.fixture(scope="module")
def pool(federation) -> Iterator[Pool]:  # noqa: F811
    with Pool(federation, Task.of(Quadratic(), federation), SEED, workers=2) as engine:
        list(engine.run(Count(), SINGLE, SHARED, 1))  # they have started
        yield engine


@pytest.fixture
def expected(federation) -> list[object]:  # noqa: F811
    return told(Inline(federation, Task.of(Quadratic(), federation), SEED).run(Count(), SINGLE, SHARED, 1))


@dataclass(frozen=True)
class SlowAfterFirst(Work):
    """As `Count`, but takes its time at all clients but the first."""

    def __call__(self, baton, visit):
        time.sleep(0.4 * (visit.client.id > 0))
        return Count()(baton, visit)


def wait_for(text: str, caplog) -> None:
    until = time.monotonic() + 30
    while text not in caplog.text and time.monotonic() < until:
        time.sleep(0.02)


@linux
def test_a_stopped_worker_is_named_then_replaced_and_the_bits_are_the_same(pool, expected, caplog, monkeypatch):
    monkeypatch.setattr(processes, "LOOK", 0.1)
    monkeypatch.setattr(processes, "STOPPED", Patience(0.3, 1.0))
    outcomes = pool.run(SlowAfterFirst(), SINGLE, SHARED, 1)
    first = next(outcomes)
    (stopped, *_) = pids(pool, busy=True)
    os.kill(stopped, signal.SIGSTOP)
    assert told([first, *outcomes]) == expected
    named, replaced = (record.getMessage() for record in caplog.records)
    assert f"(pid {stopped}) gave no sign of life for" in named
    assert "it is stopped; after 1 s another takes its place" in named
    assert any(f"at client {n} of chain {n}" in named or f"with chain {n} of client {n}" in named for n in range(6))
    assert "another takes its place and runs its chains again" in replaced
    assert stopped not in pids(pool)
    assert not Path(f"/proc/{stopped}").exists()


@linux
def test_a_worker_that_goes_on_in_time_is_kept(pool, expected, caplog, monkeypatch):
    monkeypatch.setattr(processes, "LOOK", 0.1)
    monkeypatch.setattr(processes, "STOPPED", Patience(0.2, 60.0))
    before = pids(pool)
    outcomes = pool.run(SlowAfterFirst(), SINGLE, SHARED, 1)
    first = next(outcomes)
    (stopped, *_) = pids(pool, busy=True)
    os.kill(stopped, signal.SIGSTOP)

    def go_on():
        wait_for("it is stopped", caplog)
        os.kill(stopped, signal.SIGCONT)

    helper = threading.Thread(target=go_on)
    helper.start()
    assert told([first, *outcomes]) == expected
    helper.join()
    assert len(caplog.records) == 1
    assert pids(pool) == before


def test_who_was_asleep_together_with_us_is_not_given_up(monkeypatch):
    """A terminal's Ctrl-Z stops all of us; after `fg` hours have gone by, of which nobody was to blame."""
    clock = [1000.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: clock[0])
    watch = Watch(os.getpid())
    clock[0] += 7200
    assert watch.look(alive=False) is None
    assert watch.silent <= 2 * processes.LOOK
    for _ in range(400):
        clock[0] += processes.LOOK
        found = watch.look(alive=False)
        if watch.silent >= processes.SILENT.given_up:
            break
    assert found == processes.SILENT
    assert watch.look(alive=True) is None
    assert watch.silent == 0


def test_deaths_over_different_stacks_blame_nobody():
    queue = Stacks(chains(*[(client,) for client in range(6)]), [1] * 6, rows=2)
    stacks = [queue.take() for _ in range(3)]
    for stack in stacks * 2:
        queue.put_back(stack)
    with pytest.raises(
        RunFailed, match=r"2 chains that advance together, of clients \d, \d …: which .* cannot be told"
    ):
        queue.put_back(stacks[0])


def test_a_chain_is_blamed_only_for_what_happened_while_it_ran_alone():
    queue = Bundles(chains((0,), (1, 2), *[(3,)] * 62), [1] * 4, workers=1)
    bundle = queue.take()
    assert len(bundle) > 3
    queue.put_back(bundle)
    alone = queue.take()
    assert len(alone) == 1
    queue.put_back(alone, 2)
    assert queue.take() == alone
    queue.put_back(alone, 1)
    assert queue.take() == alone
    with pytest.raises(RunFailed, match=r"3 worker processes ended over the chain of client 1, 2, at client 1, 2;"):
        queue.put_back(alone, 2)


@dataclass(frozen=True)
class Full(Work):
    """The shared memory is full once the worker has come to client 2, which has much to send."""

    def __call__(self, baton, visit):
        after, memory, report = Count()(baton, visit)
        if visit.client.id == 2:

            def full(*args):
                raise OSError(errno.ENOSPC, "No space left on device")

            os.posix_fallocate = full
            memory = {"much": torch.zeros(1_000_000)}
        return after, memory, report


@linux
def test_shared_memory_that_fills_up_in_a_worker_is_said_in_one_line(pool, expected):
    with pytest.raises(RunFailed) as caught:
        list(pool.run(Full(), SINGLE, SHARED, 1))
    said = str(caught.value)
    assert "there is no shared memory for workers" in said
    assert "has no room for 4.8 MB (No space left on device); the engine inline needs none" in said
    assert "\n" not in said
    assert "Block.make" in "".join(caught.value.__notes__) or "no_room" in "".join(caught.value.__notes__)
    pool.close()  # that worker's memory is full for ever
    assert told(pool.run(Count(), SINGLE, SHARED, 1)) == expected


@linux
def test_shared_memory_that_fills_up_at_the_start_leaves_no_folder(federation, monkeypatch, tmp_path):  # noqa: F811
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Folder, "_parent", staticmethod(lambda size: tmp_path))
    monkeypatch.setattr(packing.os, "posix_fallocate", full)
    engine = Pool(federation, Task.of(Quadratic(), federation), SEED, workers=1)
    with pytest.raises(BadInput, match=r"has no room for 0\.1 MB"):
        list(engine.run(Count(), SINGLE, SHARED, 1))
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_a_thread_gives_the_same(pool, expected):
    found = []
    thread = threading.Thread(target=lambda: found.extend(told(pool.run(Count(), SINGLE, SHARED, 1))))
    thread.start()
    thread.join()
    assert found == expected


def resources() -> tuple[int, int]:
    """Open files and child processes."""
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return len(list(Path("/proc/self/fd").iterdir())), len(children)


@linux
def test_engines_that_have_ended_leave_no_file_no_process_and_no_memory(federation, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(Folder, "_parent", staticmethod(lambda size: tmp_path))

    def short_run(signal_number: int | None) -> None:
        with Pool(federation, Task.of(Quadratic(), federation), SEED, workers=1) as engine:
            list(engine.run(Count(), chains((0,)), SHARED, 1))
            if signal_number is not None:  # one that was idle when it died
                os.kill(pids(engine)[0], signal_number)
                list(engine.run(Count(), chains((0,)), SHARED, 2))
                assert len(list(next(tmp_path.iterdir()).glob("*-1-*"))) == 0
        assert list(tmp_path.iterdir()) == []

    short_run(None)
    before = resources()
    short_run(signal.SIGKILL)
    short_run(None)
    assert resources() == before


FORK = """
import os, sys, time, warnings
sys.path[:0] = {path!r}
warnings.simplefilter("ignore")
from test_pool import Count, chains
import torch
from fedrelay import Federation, Task
from fedrelay.data import Natural, quadratic
from fedrelay.engines import Pool
from fedrelay.models import Quadratic
from fedrelay.plans.background import in_process

def outcome(engine):
    (found,) = engine.run(Count(), chains((0,)), {{"told": torch.zeros(2)}}, 1)
    return found.baton.params.tolist()

if __name__ == "__main__":
    federation = Federation.split(quadratic(clients=6, dimension=2, seed=2), Natural())
    engine = Pool(federation, Task.of(Quadratic(), federation), workers=1)
    first, there = outcome(engine), in_process(os.getpid)
    worker = engine._pool.pool.workers[0].process.pid
    child = os.fork()
    if child == 0:
        del engine
        sys.exit(0 if in_process(abs, -1) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert engine._pool.pool.workers[0].process.pid == worker
    assert outcome(engine) == first
    assert engine._pool.pool.workers[0].process.pid == worker, "the fork has ended our worker"
    assert in_process(os.getpid) == there, "the fork has ended our other process"
    print("all is well")
"""


def test_a_fork_that_ends_does_not_end_the_workers_of_its_parent(tmp_path):
    script = tmp_path / "fork.py"
    script.write_text(FORK.format(path=[str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "all is well\n", done.stderr
    assert done.stderr == ""
