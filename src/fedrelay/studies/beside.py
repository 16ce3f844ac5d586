"""Runs beside one another: processes that each do one run after another, and end with the program that started them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from multiprocessing import connection as connections
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

from fedrelay.engines.pool.dispatch import cores, share_cores
from fedrelay.studies import on_cluster
from fedrelay.system.processes import deaf_to_interrupts, undisturbed
from fedrelay.system.stopping import stoppable
from fedrelay.system.streams import guarded

T = TypeVar("T")

STOPPED = Event()
"""Whether this process was asked to stop: then it begins no run that waits for it already."""


def side_by_side(jobs: int | None, ray: str | None, out: Path) -> AbstractContextManager[Executor | None]:
    """Where runs are done: `jobs` at a time here (default: one), or on the Ray cluster at the address `ray`."""
    return workers(jobs or 1) if ray is None else on_cluster.workers(ray, jobs, out)


@contextmanager
def workers(jobs: int) -> Iterator[Executor | None]:
    """Processes for several runs at a time; None does them here, one after another."""
    if jobs == 1:
        yield None
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), begin, (max(cores() // jobs, 1),)) as pool:
        try:
            yield pool
        except BaseException:
            for process in active_children():
                process.terminate()  # each leaves a checkpoint of the run that it is at, and begins no other
            pool.shutdown(cancel_futures=True)
            raise


def submit(pool: Executor, call: Callable[..., T], *args: Any) -> Future[T]:
    """Do this in one of the processes; they start now, if they have not, and are deaf to Ctrl-C as they do."""
    if os.name == "posix":
        resource_tracker.ensure_running()  # starting it later would undo the mask of signals
    with undisturbed(), deaf_to_interrupts():
        return pool.submit(alone, call, args)


def begin(cores: int) -> None:
    """The first thing in such a process: it hears Ctrl-C between runs too, and ends when its parent has."""
    share_cores(cores)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, refuse)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=end_with_parent, daemon=True).start()


def refuse(signum: int, frame: object) -> None:
    """Between runs there is nothing to stop, but no other is begun."""
    STOPPED.set()


def end_with_parent() -> None:
    """A run without anybody who waits for it would only stand in the way of its own continuation."""
    parent = parent_process()
    if parent is not None:
        connections.wait([parent.sentinel])
        os._exit(1)


def alone(call: Callable[..., T], args: tuple[Any, ...]) -> T:
    """One run; being asked to stop stops it, and leaves a checkpoint."""
    if STOPPED.is_set():
        raise KeyboardInterrupt
    try:
        with stoppable(), guarded():
            return call(*args)
    except KeyboardInterrupt:
        STOPPED.set()
        raise
