"""A command of fedrelay in a forked child: what the parent has imported is not imported again.

The child is the first of a session of its own, so that whatever it starts can be found, and ended, afterwards.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

PATIENCE = 120.0
"""Seconds after which a child is taken to hang."""
GONE = 20.0
"""Seconds in which whatever a child has started must be gone once it has ended."""
UNEXPECTED = ("Traceback (most recent call last)", "fedrelay: unexpected ")
LONGEST = 1000
"""Characters that a refusal may have."""


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, or minus the signal that ended it."""

    code: int
    said: str
    seconds: float
    left: str = ""
    """What it has left running, or its shared memory."""


@dataclass(frozen=True)
class Blow:
    """A signal after so many seconds: to the command itself, to it with all it started, or to one of its workers."""

    after: float
    signal: int = signal.SIGKILL
    to: str = "command"


def command(arguments: Sequence[str], folder: Path, blow: Blow | None = None) -> Ended:
    """Run `fedrelay` with these arguments in the folder; what is left afterwards is ended and told."""

    def call() -> int:
        from fedrelay.cli import main

        os.chdir(folder)
        return main(arguments)

    return forked(call, blow)


def forked(
    action: Callable[[], int | None],
    blow: Blow | None = None,
    *,
    room: int | None = None,
    patience: float = PATIENCE,
) -> Ended:
    """Run the action in a child, with so many bytes of address space beyond what there is now; it may take so many
    seconds."""
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of the parent: the child uses none of them
            child = os.fork()
        if child == 0:
            inside(action, said.fileno(), room)
        memory: set[str] = set()
        code = waited(child, began, blow, memory, patience)
        seconds = time.monotonic() - began
        left = leftovers(child, memory)
        said.seek(0)
        return Ended(code, said.read().decode(errors="replace"), seconds, left)


def inside(action: Callable[[], int | None], said: int, room: int | None) -> NoReturn:
    """The child's whole life; it never returns into the parent's code."""
    code = 70
    try:
        os.setsid()
        os.dup2(said, 1)
        os.dup2(said, 2)
        end_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.modules["__main__"] = types.ModuleType("__main__")  # workers must not import the attack
        if room is not None:
            limit(room)
        code = action() or 0
    except KeyboardInterrupt:
        code = 130
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def end_with_parent() -> None:
    """Whoever ends an attack must not have to look for what it has started."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def limit(room: int) -> None:
    """Let this process have so many bytes more; whoever asks for more than that gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def waited(child: int, began: float, blow: Blow | None, memory: set[str], patience: float) -> int:
    """Wait for a child, and strike when it is time; a child that hangs is ended."""
    struck = blow is None
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        passed = time.monotonic() - began
        if blow is not None and not struck and passed >= blow.after:
            memory |= shared_memory(child)
            struck = strike(child, blow)
        if passed > patience:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 1000  # no exit code: it hung
        time.sleep(min(max(blow.after - passed, 0.0005), 0.003) if blow is not None and not struck else 0.003)


def strike(child: int, blow: Blow) -> bool:
    """False if there is nobody yet whom to strike."""
    if blow.to == "worker":
        workers = [other for other in session(child) if other != child and is_worker(other)]
        for one in workers[:1]:
            os.kill(one, blow.signal)
        return bool(workers)
    send: Callable[[int, int], Any] = os.killpg if blow.to == "all" else os.kill
    try:
        send(child, blow.signal)
    except ProcessLookupError:  # a child that has not come to be the leader of its group yet
        return False
    return True


def session(leader: int) -> list[int]:
    """The processes of this session that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, own = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended meanwhile
            continue
        if own == str(leader) and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def is_worker(process: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def shared_memory(process: int) -> set[str]:
    """The folders of shared memory that a process looks into now."""
    try:
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    except OSError:
        return set()
    paths = [Path("/" + line.partition("/")[2].removesuffix(" (deleted)")) for line in lines if "/dev/shm/" in line]
    return {str(path.parent) for path in paths if path.parent != Path("/dev/shm")}


def leftovers(leader: int, memory: set[str]) -> str:
    """End what a child has left running, and say what it was; and remember its memory for `unreturned`."""
    UNRETURNED.update(memory)
    until = time.monotonic() + GONE
    while others := session(leader):
        if time.monotonic() > until:
            os.killpg(leader, signal.SIGKILL)
            return f"{len(others)} processes were still there after {GONE:.0f} s"
        time.sleep(0.01)
    return ""


UNRETURNED: set[str] = set()


def unreturned() -> list[str]:
    """Shared memory of runs that were struck and is still there now."""
    return sorted(path for path in UNRETURNED if Path(path).exists())


def complaint(ended: Ended, good: Sequence[int] = (0,)) -> str:
    """What is wrong with how a command ended; nothing if it is one of these exit codes, in our words."""
    if ended.code == 1000:
        return f"it hung for {PATIENCE:.0f} s"
    if any(word in ended.said for word in UNEXPECTED):
        return f"a traceback: {last_line(ended.said)}"
    if ended.code not in good:
        return f"exit code {ended.code}: {last_line(ended.said)}"
    if ended.code == 2 and len(ended.said.strip()) > LONGEST:
        return f"a refusal of {len(ended.said)} characters: {ended.said[:200]}"
    return ended.left


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "nothing was said")[:400]
