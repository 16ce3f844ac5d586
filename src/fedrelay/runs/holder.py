"""Who holds the claim on a run folder: whether a process writes into it now, and asking that process to stop.

Whether somebody does is what the lock says; a file beside it says who, and stays when that process fails or is killed.
The process is only asked to stop if it is of this machine and, where the system tells (Linux), has the lock's file
open: a folder that was received from others cannot make us signal a process that has nothing to do with it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fedrelay.errors import BadInput
from fedrelay.runs import checkpoint
from fedrelay.system import files
from fedrelay.system.processes import STOPS

LOCK, HOLDER = ".lock", ".holder.json"


@dataclass(frozen=True)
class Holder:
    """A process that writes into a run folder, and the signal by which it stops and leaves a checkpoint."""

    pid: int
    host: str
    signal: int | None

    @classmethod
    def here(cls) -> Holder:
        """This process; a signal that it does not hear, or that would end it at once, is none to stop it by."""
        heard = (int(number) for number in STOPS if callable(signal.getsignal(number)))
        return cls(os.getpid(), socket.gethostname(), next(heard, None))


def lock_of(folder: Path) -> Path:
    return folder / checkpoint.FOLDER / LOCK


def note(folder: Path) -> None:
    """Say who we are, beside the lock that we have; nobody needs it to run."""
    with suppress(OSError):
        content = json.dumps(asdict(Holder.here())).encode()
        files.write(folder / checkpoint.FOLDER / HOLDER, content, mode=files.PRIVATE)


def forget(folder: Path, error: BaseException | None = None) -> None:
    """We are done with it; what went wrong stays for whoever looks, unless it was bad input or a wish to stop."""
    path = folder / checkpoint.FOLDER / HOLDER
    with suppress(OSError):
        if isinstance(error, Exception) and not isinstance(error, BadInput):
            files.write(path, json.dumps({"failed": str(error) or type(error).__name__}).encode(), mode=files.PRIVATE)
        else:
            path.unlink(missing_ok=True)


def left(folder: Path) -> str | None:
    """How the last process ended, if not well: why it failed, or empty where it was killed. None: there is no sign."""
    try:
        found = json.loads((folder / checkpoint.FOLDER / HOLDER).read_bytes())
        return str(found.get("failed", ""))
    except (OSError, ValueError, AttributeError):
        return None


def held(folder: Path) -> bool:
    """Whether a process writes into this folder; nothing is changed by asking."""
    path = lock_of(folder)
    try:
        if not path.is_file() or path.is_symlink():
            return False
        if sys.platform != "win32":
            return _locked(path)
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # not ours to look at
        return False


def _locked(path: Path) -> bool:
    """Whether somebody has the lock: asked for a share of it, which is given back at once."""
    import fcntl  # here, because Windows has none

    opened = os.open(path, os.O_RDONLY | files.NO_LINKS)
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(opened)
    return False


def holder_of(folder: Path) -> Holder | None:
    """The process that writes into this folder; None if nobody does, or does not say who it is."""
    if not held(folder):
        return None
    try:
        found = json.loads((folder / checkpoint.FOLDER / HOLDER).read_bytes())
        number = found["signal"]
        return Holder(int(found["pid"]), str(found["host"]), None if number is None else int(number))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def stop(folder: Path) -> None:
    """Ask whoever writes into this folder to stop, as Ctrl-C does: a checkpoint is left, and the run can go on."""
    holder = holder_of(folder)
    if holder is None:
        raise BadInput(f"{folder}: no process of this version writes into it, so there is nothing to stop")
    if holder.host != socket.gethostname():
        raise BadInput(f"{folder} is written by process {holder.pid} of {holder.host}: stop it there")
    if sys.platform == "win32" or holder.signal is None or holder.signal not in STOPS:
        raise BadInput(f"{folder} is written by process {holder.pid}, which no signal stops cleanly: use its terminal")
    if not has_open(holder.pid, lock_of(folder)):
        raise BadInput(f"{folder}: process {holder.pid} is not the one that writes into it; nothing was stopped")
    try:
        os.kill(holder.pid, holder.signal)
    except OSError as error:
        raise BadInput(f"process {holder.pid} cannot be stopped ({error.strerror}): it may have ended") from None


def has_open(pid: int, path: Path) -> bool:
    """Whether this process has the file open; where the system does not tell (only Linux does), it is taken for it."""
    if pid <= 1:
        return False
    if sys.platform != "linux":
        return True
    wanted = path.stat()
    try:
        opened = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it is gone, or another user's
        return False
    for link in opened:
        with suppress(OSError):
            if os.path.samestat(link.stat(), wanted):
                return True
    return False
