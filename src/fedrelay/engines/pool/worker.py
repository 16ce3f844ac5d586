"""The worker process of a pool: one thread that runs chains until its parent has no more."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection as connections
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from fedrelay.engines.memory import Memory
from fedrelay.engines.packing import Receiver, Sender
from fedrelay.engines.pool.signs import BEAT, Signs
from fedrelay.engines.relay import Context, Simulation, relay, relay_together
from fedrelay.engines.relay import Signs as Whereabouts
from fedrelay.engines.shared_folder import remove
from fedrelay.errors import BadInput, RunFailed
from fedrelay.system.devices import deterministic, find
from fedrelay.system.threads import operator_threads
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
    traceback: str = ""


def serve(connection: Connection, folder: str, name: str, setup: bytes, signs: str, device: str) -> None:
    """The life of a worker. Messages are (`"round"` or `"job"` or `"end"`, packed); a job is answered with a packed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, and the parent decides
    try:
        place = Signs.at(signs)
        watch = threading.Thread(target=end_with_parent, args=(folder, place), daemon=True)
        watch.start()
        keep_memory()
        torch.set_num_threads(1)  # also between jobs: a second one, once used, waits busily and takes others' core
        try:
            simulation: Simulation = Receiver().receive(setup, copy=False)
            simulation = moved(simulation, find(device))
        except Exception as error:  # code that cannot be imported here, usually
            connection.send_bytes(pickle.dumps(failed(error)))
            return
        answer_jobs(connection, simulation, Sender(Path(folder), name), place)
    except (EOFError, OSError):  # the parent has died, and the memory is yet to be given back
        end_and_remove(folder)


def moved(simulation: Simulation, device: torch.device) -> Simulation:
    """The same, computed on this process's device."""
    return replace(simulation, computing=replace(simulation.computing, device=device))


def answer_jobs(connection: Connection, simulation: Simulation, outbox: Sender, signs: Signs) -> None:
    """Until there are no more."""
    device = simulation.computing.device
    board, inbox = Receiver(device), Receiver(device)
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
            reply = perform(simulation, current, inbox.receive(message, copy=False), signs)
            answer = outbox.send(reply)
        except Exception as error:  # the parent is told, and stops the run with it
            answer = outbox.send(failed(error))
        connection.send_bytes(answer)


def failed(error: Exception) -> Reply:
    """Why nothing came of a job: in our own words if we have some."""
    ours = isinstance(error, BadInput | RunFailed)
    said = str(error) if ours else f"unexpected {type(error).__name__}: {error} (--debug shows where)"
    return Reply(failure=said, traceback=traceback.format_exc())


def sound(reply: Reply) -> Reply:
    """The reply, if its worker could do the job; else the run ends with the reason."""
    if reply.failure:
        failure = RunFailed(f"a worker process could not run its chains: {reply.failure}")
        failure.add_note(f"There it was:\n{reply.traceback}")
        raise failure
    return reply


def perform(simulation: Simulation, current: Round, job: Job, signs: Whereabouts) -> Reply:
    """Run the chains of a job, as they would be run in the parent with one thread."""
    device = simulation.computing.device
    memory = Memory(device=device)
    memory.restore(job.memories, 0)
    chains = [current.chains[number] for number in job.numbers]
    with operator_threads(1), deterministic(device):
        if current.together:
            outcomes = relay_together(simulation, current.context, chains, memory)
        else:
            outcomes = []
            for number, chain in zip(job.numbers, chains, strict=True):
                signs.run(number)
                outcomes.append(relay(simulation, current.context, chain, memory, signs))
    return Reply(tuple(map(Done.of, job.numbers, outcomes)), memory.staged())


def keep_memory() -> None:
    """Let the C library keep what was freed: to get the memory of large activations anew at every step costs up to a
    tenth of the time."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
            library = ctypes.CDLL(None)
            library.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
            library.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD


def end_with_parent(folder: str, signs: Signs) -> None:
    """However the parent ends, its workers and their folder do not outlive it; meanwhile it is told that we live."""
    parent = parent_process()
    if parent is not None:
        while not connections.wait([parent.sentinel], BEAT):
            signs.beat()
        end_and_remove(folder)


def end_and_remove(folder: str) -> None:
    """End at once, and give back the memory that the parent cannot give back any more."""
    parent = parent_process()
    if parent is not None and connections.wait([parent.sentinel], BEAT):
        remove(Path(folder))
    os._exit(1)
