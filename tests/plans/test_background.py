"""What is computed in the background: the same results, whatever happens to the process that computes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from needs import posix

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, advance, start, train
from fedrelay.algorithms import fedgsp
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.merges import Mean
from fedrelay.models import Mlp
from fedrelay.plans import Fixed, Grouping, Limits, Traits, regroup
from fedrelay.plans.background import _side_process, in_process, in_thread
from fedrelay.plans.grouping.distances import Euclidean
from fedrelay.plans.grouping.groups import random_groups
from fedrelay.plans.grouping.icg import Icg
from fedrelay.system import processes
from fedrelay.types import Algorithm, Report, Work


def whoever() -> int:
    return os.getpid()


whoever.__module__ = "__main__"  # as in a user's own script
__import__("__main__").whoever = whoever
TRAITS = Traits(np.random.default_rng(0).dirichlet(np.full(5, 0.1), 60), 5)


def test_groups_made_in_the_other_process_are_those_made_here():
    def ask(grouper):
        return grouper(TRAITS, [1] * 60, Euclidean(), Limits(groups=6), np.random.default_rng(4))

    there = in_process(Icg(), TRAITS, [1] * 60, Euclidean(), Limits(groups=6), np.random.default_rng(4))
    assert there == ask(Icg())


def test_it_is_another_process_and_the_same_one_every_time():
    there = in_process(os.getpid)
    assert there != os.getpid()
    assert in_process(os.getpid) == there


def test_a_mistake_there_is_raised_here_as_itself():
    with pytest.raises(BadInput, match="groups = 99 but there are 60 clients"):
        in_process(Icg(), TRAITS, [1] * 60, Euclidean(), Limits(groups=99), np.random.default_rng(4))


def test_what_cannot_be_sent_is_computed_here_and_the_other_process_goes_on():
    there = in_process(os.getpid)
    assert in_process(lambda: os.getpid()) == os.getpid()
    assert in_process(whoever) == os.getpid()  # there is no such module there
    assert in_process(os.getpid) == there


def test_when_it_dies_nothing_is_lost():
    first = in_process(os.getpid)
    os.kill(first, signal.SIGKILL)
    assert in_process(abs, -3) == 3
    assert in_process(os.getpid) not in (first, os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says of a process that it is stopped")
def test_when_it_is_stopped_that_is_said_and_then_the_work_is_done_here(monkeypatch, caplog):
    monkeypatch.setattr(processes, "LOOK", 0.1)
    monkeypatch.setattr(processes, "STOPPED", processes.Patience(0.2, 0.6))
    there = in_process(os.getpid)
    os.kill(there, signal.SIGSTOP)
    assert in_process(os.getpid) == os.getpid()
    named, given_up = (record.getMessage() for record in caplog.records)
    assert f"(pid {there}) is stopped; after 1 s they are made here" in named
    assert f"(pid {there}) stays stopped" in given_up
    assert in_process(os.getpid) not in (there, os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says of a process that it is stopped")
def test_a_question_longer_than_a_pipe_does_not_wait_for_a_stopped_process(monkeypatch, caplog):
    monkeypatch.setattr(processes, "LOOK", 0.1)
    monkeypatch.setattr(processes, "STOPPED", processes.Patience(0.2, 0.4))
    os.kill(in_process(os.getpid), signal.SIGSTOP)
    assert in_process(len, bytes(1 << 22)) == 1 << 22
    assert "stays stopped" in caplog.text


def test_what_is_printed_there_does_not_get_between_the_answers():
    there = in_process(os.getpid)
    assert in_process(print, "hello") is None
    assert in_process(os.getpid) == there


def test_an_interrupted_question_is_not_answered_by_the_next_ones_answer(monkeypatch):
    process = _side_process()

    def interrupted(stream):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fedrelay.plans.background.pickle.load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            process.ask(abs, (-1,))
    assert in_process(abs, -2) == 2


def test_ctrl_c_is_for_the_run_and_not_for_the_other_process():
    there = in_process(os.getpid)
    os.kill(there, signal.SIGINT)
    assert in_process(os.getpid) == there


def test_it_costs_nothing_while_nobody_asks():
    began = in_process(time.process_time)
    time.sleep(1.0)
    assert in_process(time.process_time) - began < 0.05


SCRIPT = """
import os, signal, sys, time
from fedrelay.plans.background import in_process, in_thread

def mine(): return os.getpid()

print("started", flush=True)  # twice, if the script were run again there
there = in_process(os.getpid)
print(there != os.getpid(), mine() == in_process(mine), flush=True)
in_process(print, "printed there")
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sys.exit()", 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        (
            "in_thread(in_process, time.sleep, 1.0); time.sleep(0.3); os.kill(os.getpid(), signal.SIGKILL)",
            -signal.SIGKILL,
        ),
    ],
    ids=["at the end", "killed", "killed while the other works"],
)
def test_it_serves_a_script_without_a_main_guard_and_ends_with_it(end, status, tmp_path):
    """The other process holds the error stream too, so that reading it to its end is waiting for both."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + end)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status
    assert done.stdout.splitlines() == ["started", "True True"]
    assert done.stderr.splitlines() == ["printed there"]


@posix
def test_this_process_goes_on_meanwhile(tmp_path):
    """What takes long there holds no lock here; what is asked meanwhile waits its turn."""
    in_process(abs, 1)  # it has started
    os.mkfifo(gate := tmp_path / "gate")
    long = in_thread(in_process, os.open, gate, os.O_RDONLY)  # takes until somebody writes
    assert _side_process()._asked.wait(60)
    short = in_thread(in_process, abs, -2)
    time.sleep(0.2)
    assert not long.done()
    assert not short.done()
    with gate.open("wb"):
        assert short.result(60) == 2
    long.result()


def test_many_clients_are_regrouped_there_to_the_same_groups(monkeypatch):
    def groups():
        federation = Federation.split(digits(), Dirichlet(alpha=0.0), 20, 3)
        engine = Inline(federation, Task.of(Mlp(hidden=(4,)), federation), 3)
        algorithm = fr.method(fedgsp(growth=Fixed(4)), local=Sgd(steps=1))
        state = start(algorithm, engine)
        return [after.memo["groups"] for after in train(algorithm, engine, rounds=3, state=state)]

    here = groups()
    monkeypatch.setattr(regroup, "MANY", 1)
    assert groups() == here
    assert len(set(here)) == 3


@dataclass(frozen=True)
class Announced:
    """Random groups; leaves a file when they are made, which says by whom."""

    file: str
    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(self, traits, sizes, distance, limits, rng):
        groups = random_groups(sizes, limits, rng)
        Path(self.file).write_text(str(os.getpid()))
        return groups


@dataclass(frozen=True)
class Patient(Work):
    """A client that trains until the next groups are made; it gives up if they are not made meanwhile."""

    file: str

    def __call__(self, baton, visit):
        until = time.monotonic() + 60
        while not Path(self.file).exists():
            if time.monotonic() > until:
                raise TimeoutError("the next groups are not being made")
            time.sleep(0.01)
        return replace(baton, weight=baton.weight + 1), visit.memory, Report(visit.client.id, 1)


@pytest.mark.parametrize("many", [1, 10**6], ids=["in another process", "in a thread"])
@pytest.mark.parametrize("kind", [Inline, Stacked, Pool])
def test_the_next_groups_are_made_while_the_round_trains(kind, many, tmp_path, monkeypatch):
    monkeypatch.setattr(regroup, "MANY", many)
    file = tmp_path / "made"
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 10, 3)
    task = Task.of(Mlp(hidden=(4,)), federation)
    engine = Inline(federation, task) if kind is Inline else kind(federation, task, workers=1)
    plan = regroup.Regrouped(Fixed(2), Grouping(grouper=Announced(str(file))), fraction=1.0, when="every_round")
    algorithm = Algorithm(plan, Patient(str(file)), Mean())
    state = start(algorithm, engine)
    file.unlink()  # of the first groups, for which nobody could train
    assert advance(algorithm, engine, state).log.clients == 10
    assert (int(file.read_text()) == os.getpid()) == (many > 10)
    engine.close()
