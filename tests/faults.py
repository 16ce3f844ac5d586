"""What can go wrong at every file operation: the process is killed there, or the disk is full from there on.

`operations(action)` lists what an action does to the disk, in order; `at(n, kind, action)` lets it happen again and
strikes at the n-th of them, counted from 1. Both run the action in a forked child, so what the parent has imported is
not imported again and a trial takes tenths of a second. An action is a function without arguments that returns an exit
code (or nothing), and it must do the same every time: one thread, the engine `inline`.

Counted are the calls of this process that change the disk: making, opening to write, writing (each write that reaches
the system, whatever a buffer has gathered for it), truncating, renaming, removing, linking, changing the mode, fsync.
Reading is not counted, nor is what Python does for itself (compiled modules), nor what other processes do.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

Action = Callable[[], int | None]

KILLS = ("kill", "cut")
KINDS = ("kill", "full", "cut", "short")
"""kill: SIGKILL in place of the operation; full: ENOSPC in its place, and in place of all that need room after it.
cut and short: the same after half of a write has reached the disk; with another operation they are kill and full."""
CHANGES = (
    *("mkdir", "rmdir", "unlink", "remove", "replace", "rename", "link", "symlink"),
    *("truncate", "ftruncate", "chmod", "fchmod", "fsync", "fdatasync"),
)
ROOM = ("open", "write", "mkdir", "symlink", "link")
"""What a full disk refuses; removing and renaming go on."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PATIENCE = 120.0
"""Seconds after which a child is taken to hang."""


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, minus the signal if one ended it, and what it said on both streams."""

    code: int
    said: str


def count(action: Action) -> int:
    """How many operations change the disk."""
    return len(operations(action))


def operations(action: Action) -> list[str]:
    """What changes the disk, in order, as the names of system calls ("write", "replace", …)."""
    with tempfile.TemporaryFile("w+") as told:
        ended = forked(partial(listed, action, told.fileno()))
        told.seek(0)
        found = told.read().split()
    if ended.code:
        raise AssertionError(f"without any fault the action ended with {ended.code}: {ended.said}")
    return found


def at(n: int, kind: str, action: Action) -> Ended:
    """Let the action happen, and strike at its n-th operation."""
    assert kind in KINDS, kind
    return forked(partial(struck, action, n, kind))


def once(action: Action) -> Ended:
    """Let the action happen in a child as the others do, without any fault."""
    return forked(action)


def trials(operations: list[str]) -> list[tuple[int, str]]:
    """Every fault worth trying: half of an operation is something of its own only where it is a write."""
    half = [(n, kind) for n, name in enumerate(operations, 1) if name == "write" for kind in ("cut", "short")]
    return sorted([(n, kind) for n in range(1, len(operations) + 1) for kind in ("kill", "full")] + half)


# --- in the child


def listed(action: Action, told: int) -> int | None:
    names: list[str] = []

    def note(name: str, half: Callable[[], Any]) -> None:
        names.append(name)

    undo = watch(note)
    code = action()
    undo()
    os.write(told, " ".join(names).encode())
    return code


def struck(action: Action, n: int, kind: str) -> int | None:
    seen = 0

    def strike(name: str, half: Callable[[], Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == n and kind in ("cut", "short"):
            half()
        if seen == n and kind in KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if kind not in KILLS and (seen == n or (seen > n and name in ROOM)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    watch(strike)
    return action()


Notice = Callable[[str, Callable[[], Any]], None]
"""Told of an operation before it happens: its name, and what does half of it."""


def watch(notice: Notice) -> Callable[[], None]:
    """Have every operation told from now on; the result ends it."""
    kept: list[tuple[Any, str, Any]] = []

    def put(module: Any, name: str, function: Any) -> None:
        kept.append((module, name, getattr(module, name)))
        setattr(module, name, function)

    for name in CHANGES:
        put(os, name, told(notice, name, getattr(os, name)))
    put(os, "open", opening(notice, os.open))
    put(os, "write", writing(notice, os.write))
    opened = partial(open_file, notice, builtins.open)
    put(builtins, "open", opened)
    put(io, "open", opened)

    def undo() -> None:
        for module, name, function in kept:
            setattr(module, name, function)

    return undo


def told(notice: Notice, name: str, function: Any) -> Any:
    def call(*arguments: Any, **more: Any) -> Any:
        notice(name, nothing)
        return function(*arguments, **more)

    return call


def opening(notice: Notice, function: Any) -> Any:
    def call(path: Any, flags: int, *arguments: Any, **more: Any) -> Any:
        if flags & WRITES and not is_device(path):
            notice("open", nothing)
        return function(path, flags, *arguments, **more)

    return call


def writing(notice: Notice, function: Any) -> Any:
    def call(descriptor: int, content: Any) -> Any:
        if on_disk(descriptor):
            notice("write", lambda: function(descriptor, memoryview(content)[: len(content) // 2]))
        return function(descriptor, content)

    return call


def open_file(notice: Notice, function: Any, file: Any, mode: str = "r", buffering: int = -1, *more: Any, **named: Any):
    """As `open`, with a stream whose writes are told when they leave the buffer."""
    if not set(mode) & set("wax+") or is_device(file):
        return function(file, mode, buffering, *more, **named)
    text = dict(zip(("encoding", "errors", "newline", "closefd", "opener"), more, strict=False)) | named
    closefd, opener = text.pop("closefd", True), text.pop("opener", None)
    if not isinstance(file, int) and opener is None:  # what has a descriptor, or an opener, was told of before
        notice("open", nothing)
    raw = Watched(file, "".join(set(mode) - set("bt")), closefd=closefd, opener=opener)
    raw.notice = notice
    if buffering == 0:
        return raw
    stream = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    return stream if "b" in mode else io.TextIOWrapper(stream, **text)


class Watched(io.FileIO):
    """A file whose writes and truncations are told."""

    notice: Notice = staticmethod(lambda name, half: None)

    def write(self, content: Any, /) -> int:
        view = memoryview(content).cast("B")
        if on_disk(self.fileno()):
            self.notice("write", lambda: io.FileIO.write(self, view[: len(view) // 2]))
        return super().write(view)

    def truncate(self, size: int | None = None, /) -> int:
        self.notice("truncate", nothing)
        return super().truncate(size)


def nothing() -> None:
    """Half of an operation that has no halves."""


def on_disk(descriptor: int) -> bool:
    """Whether this is a file; pipes and terminals are not counted."""
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def is_device(path: Any) -> bool:
    return not isinstance(path, int) and os.fspath(path) in (os.devnull, os.fsencode(os.devnull))


# --- the fork


def forked(action: Action) -> Ended:
    """Run the action in a child with the parent's modules, and wait for it."""
    with tempfile.TemporaryFile() as said:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of the parent: the child uses none of them
            child = os.fork()
        if child == 0:
            inside(action, said.fileno())
        code = waited(child)
        said.seek(0)
        return Ended(code, said.read().decode(errors="replace"))


def inside(action: Action, said: int) -> NoReturn:
    """The child's whole life. It never returns into the test, and runs no handler of the parent's on its way out."""
    code = 70
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(said, number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False, encoding="utf-8"))
        one_thread()
        code = action() or 0
    except SystemExit as ended:  # as argparse refuses
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def one_thread() -> None:
    """A pool of threads does not survive a fork: whoever asks it for work would wait for ever."""
    import torch

    torch.set_num_threads(1)


def waited(child: int) -> int:
    deadline = time.monotonic() + PATIENCE
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"the child hung for {PATIENCE:.0f} s")
        time.sleep(0.005)
