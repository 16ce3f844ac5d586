"""The worker process of a pool: one thread that runs chains until its parent has no more."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection as connections
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from fedrelay.engines.memory import Memory
from fedrelay.engines.packing import Receiver, Sender
from fedrelay.engines.relay import Context, Simulation, operator_threads, relay, relay_together
from fedrelay.types import Chain, Drop, Outcome, Report, Tree


@dataclass(frozen=True)
class Round:
    """What opens a round: the context, all chains, and whether those of a job advance together."""

    context: Context
    chains: Sequence[Chain]
    together: bool = False


@dataclass(frozen=True)
class Job:
    """Chains to run, by number, and what their clients keep."""

    numbers: tuple[int, ...]
    memories: Mapping[int, Tree]


@dataclass(frozen=True)
class Done:
    """What became of a chain; without params, its baton is the one it started with."""

    number: int
    params: torch.Tensor | None
    weight: float
    reports: tuple[Report, ...]
    dropped: tuple[Drop, ...]

    @classmethod
    def of(cls, number: int, outcome: Outcome) -> Done:
        params = outcome.baton.params
        changed = None if params is outcome.chain.start.params else params
        return cls(number, changed, outcome.baton.weight, outcome.reports, outcome.dropped)


@dataclass(frozen=True)
class Reply:
    """The chains of a job and the new memories of their clients, or why there are none."""

    done: tuple[Done, ...] = ()
    memories: Mapping[int, Tree] = field(default_factory=dict)
    failure: str = ""


def serve(connection: Connection, folder: str, name: str, setup: bytes) -> None:
    """The life of a worker. Messages are (`"round"` or `"job"` or `"end"`, packed); a job is answered with a packed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, and the parent decides
    watch = threading.Thread(target=end_with_parent, args=(folder,), daemon=True)
    watch.start()
    keep_memory()
    torch.set_num_threads(1)  # also between jobs: a second thread, once used, waits busily and takes a core from others
    simulation: Simulation = Receiver().receive(setup, copy=False)
    try:
        answer_jobs(connection, simulation, Sender(Path(folder), name))
    except (EOFError, OSError):  # the parent has died, and the memory is yet to be given back
        watch.join()


def answer_jobs(connection: Connection, simulation: Simulation, outbox: Sender) -> None:
    """Until there are no more."""
    board, inbox = Receiver(), Receiver()
    current: Round | None = None
    connection.send_bytes(b"")  # ready
    while True:
        kind, message = pickle.loads(connection.recv_bytes())
        if kind == "end":
            return
        try:
            if kind == "round":
                current = board.receive(message, copy=False)
                continue
            assert current is not None
            reply = perform(simulation, current, inbox.receive(message, copy=False))
            answer = outbox.send(reply)
        except Exception:  # the parent is told, and stops the run with it
            answer = outbox.send(Reply(failure=traceback.format_exc()))
        connection.send_bytes(answer)


def perform(simulation: Simulation, current: Round, job: Job) -> Reply:
    """Run the chains of a job, as they would be run in the parent with one thread."""
    memory = Memory()
    memory.restore(job.memories, 0)
    chains = [current.chains[number] for number in job.numbers]
    with operator_threads(1):
        if current.together:
            outcomes = relay_together(simulation, current.context, chains, memory)
        else:
            outcomes = [relay(simulation, current.context, chain, memory) for chain in chains]
    return Reply(tuple(map(Done.of, job.numbers, outcomes)), memory.staged())


def keep_memory() -> None:
    """Let the C library keep what was freed: to get the memory of large activations anew at every step costs up to a
    tenth of the time."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
            library = ctypes.CDLL(None)
            library.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
            library.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD


def end_with_parent(folder: str) -> None:
    """However the parent ends, its workers and their folder do not outlive it."""
    parent = parent_process()
    if parent is not None:
        connections.wait([parent.sentinel])
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)
