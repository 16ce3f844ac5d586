"""Processes that we start: Ctrl-C does not reach them while they begin, and one that stops is noticed."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


@dataclass(frozen=True)
class Patience:
    """Seconds without a sign of life: after how many a process is named, and after how many it is given up."""

    named: float
    given_up: float


LOOK = 2.0
"""Seconds between two looks at processes that are at work."""

STOPPED = Patience(named=10, given_up=60)
"""For one that the system says is stopped: by SIGSTOP, or by a debugger."""

SILENT = Patience(named=60, given_up=600)
"""For one that gives no sign: it may hold Python's lock in a long call, or wait for a disk, and yet be at work."""


class Watch:
    """How long a process has given no sign of life, as far as this one was awake to see it.

    Only time between looks counts, and no look counts for more than two: who was stopped together with us, or slept in
    the same machine, has done nothing wrong.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.silent = 0.0
        self.named = False
        self._stopped = False
        self._looked = time.monotonic()

    def look(self, *, alive: bool) -> Patience | None:
        """Whose patience is used up so far that the process is to be named (once) or given up; None: all is well."""
        before, self._looked = self._looked, time.monotonic()
        stopped = not alive and is_stopped(self.pid)
        if alive or stopped != self._stopped:  # what was silent at its work and is stopped then begins anew
            self.silent, self.named, self._stopped = 0.0, False, stopped
        if alive:
            return None
        self.silent += min(self._looked - before, 2 * LOOK)
        patience = STOPPED if stopped else SILENT
        if self.silent < patience.named or (self.named and self.silent < patience.given_up):
            return None
        self.named = True
        return patience


def is_stopped(pid: int) -> bool:
    """Whether the system has stopped this process; where it does not say (only Linux does), no."""
    if sys.platform != "linux":
        return False
    try:
        content = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return content.rpartition(")")[2].split()[0] in "Tt"


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside do not hear Ctrl-C, from their first moment: it is for us, and we end them.

    The mask is inherited, and what comes for us meanwhile is only late. Windows has no such masks.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, Ctrl-C waits for the end of the block: a process half started would be nobody's.

    Python calls handlers in its main thread only, so other threads are undisturbed anyway.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[tuple[int, FrameType | None]] = []

    def wait(signum: int, frame: FrameType | None) -> None:
        late.append((signum, frame))

    known = {number: handler for number in STOPS if callable(handler := signal.getsignal(number))}
    try:
        for number in known:
            signal.signal(number, wait)
        yield
    finally:
        for number, handler in known.items():
            signal.signal(number, handler)
        for signum, frame in late[:1]:
            known[signum](signum, frame)


STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What asks a program to end."""
