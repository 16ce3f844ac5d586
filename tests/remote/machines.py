"""Commands in processes of their own, as on machines of their own: started, listened to, killed.

They are forked, so what the test has imported is not imported again; nobody here may have used gRPC before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from fedrelay.cli.main import main

PATIENCE = 300.0
"""Seconds after which something that should happen is taken never to happen."""


class Machine:
    """One command under way."""

    def __init__(self, words: Sequence[str | Path], log: Path, before: Callable[[], object]) -> None:
        self.log, self.code = log, None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of the parent: the child uses none of them
            self.pid = os.fork()
        if self.pid == 0:
            inside([str(word) for word in words], log, before)

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def until(self, text: str, times: int = 1) -> str:
        """Wait until it has said this: the line."""
        for _ in ticks(f"{text!r} was not said"):
            found = [line for line in self.said.splitlines() if text in line]
            if len(found) >= times:
                return found[times - 1]
            assert self.ended() is None, f"it ended with {self.code} before it said {text!r}: {self.said}"
        raise AssertionError

    def ended(self) -> int | None:
        """Its exit code, minus the signal if one ended it; None while it goes on."""
        if self.code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if found else None
        return self.code

    def wait(self) -> int:
        """Its exit code."""
        for _ in ticks(f"it did not end; it said: {self.said[-2000:]}"):
            if self.ended() is not None:
                break
        assert self.code is not None
        return self.code

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.ended() is None:
            os.kill(self.pid, number)

    @property
    def port(self) -> int:
        """Where a server listens."""
        return int(self.until("listening on ").split(" for ")[0].rpartition(":")[2])


def ticks(what: str, patience: float = PATIENCE) -> Iterator[None]:
    """Look again and again, for a while."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        yield
        time.sleep(0.02)
    raise AssertionError(what)


def inside(words: list[str], log: Path, before: Callable[[], object]) -> NoReturn:
    """The child's whole life."""
    code = 70
    try:
        place = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(place, number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False, encoding="utf-8", buffering=1))
        before()
        code = main(words)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class Site:
    """A folder in which commands run, none of which outlives the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines: list[Machine] = []

    def start(self, *words: str | Path, name: str = "", before: Callable[[], object] = lambda: None) -> Machine:
        """Start a command; `before` it, something is changed in its process alone (a clock, a disk)."""
        log = self.folder / f"{name or words[0]}-{len(self.machines)}.log"
        self.machines.append(Machine(words, log, before))
        return self.machines[-1]

    def close(self) -> None:
        for machine in self.machines:
            machine.kill()
        for machine in self.machines:
            machine.wait()
