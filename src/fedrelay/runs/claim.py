"""Who may write into a run folder: one process at a time, into the folder itself, as long as it is there.

Promised: a run folder that was received from others cannot make us write or remove anything outside it, because a link
(or anything else that is no plain file) in the place of one of our files is refused before anything is written. The
folder and all in it can be read by its owner only. A folder that is removed, or replaced, while a run writes into it
is not made again: the run ends and says so.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fedrelay.errors import BadInput, RunFailed
from fedrelay.runs import checkpoint, holder, underway
from fedrelay.runs.folder import AT_THE_END, CONFIG, ROUNDS
from fedrelay.runs.holder import HOLDER, lock_of
from fedrelay.system import files

PATIENCE = 2.0
"""Seconds to wait for the lock: whoever only asks whether a run goes on has it for a moment."""


@dataclass(frozen=True)
class Claim:
    """The right to write into a folder; `lock` is the file that it rests on, by device and number."""

    folder: Path
    lock: tuple[int, int]

    @contextmanager
    def writing(self, *, begun: bool = True) -> Iterator[None]:
        """Around whatever is written: a folder that has gone, or a disk that takes no more, is told in our words.

        Before a run has begun that is bad input (exit code 2), later a run that failed (1).
        """
        self.check()
        try:
            yield
        except OSError as error:
            self.check()
            kind, advice = (RunFailed, "the same command with --resume goes on") if begun else (BadInput, "try again")
            raise kind(
                f"{self.folder.resolve()} cannot be written ({error.strerror or error}): make room or mend it, "
                f"then {advice}"
            ) from error

    def check(self) -> None:
        """Refuse to write where the folder is no more, or is another one."""
        if identity(lock_of(self.folder)) != self.lock:
            raise RunFailed(
                f"{self.folder} was removed or replaced while the run wrote into it: the run has ended, and nothing "
                "was put in its place"
            )


@contextmanager
def alone_in(folder: Path) -> Iterator[Claim]:
    """Nobody else may write a run into this folder meanwhile; the lock ends with the process, however it ends."""
    refuse_links(folder)
    try:
        make_private(folder)
        make_private(folder / checkpoint.FOLDER)
        lock = FileLock(lock_of(folder), timeout=PATIENCE, mode=files.PRIVATE)
        lock.acquire()
    except Timeout:
        raise BadInput(
            f"{folder.resolve()} is in use by another process: wait for it, or choose another --out"
        ) from None
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror or error}): choose another --out") from error
    found = identity(lock_of(folder))
    failure: BaseException | None = None
    try:
        for place in (folder, folder / checkpoint.FOLDER):
            files.sweep(place, older=0)  # whoever wrote these parts has lost the lock, so it is dead
        if found is None:
            raise RunFailed(f"{folder} was removed just now: run again")
        holder.note(folder)
        yield Claim(folder, found)
    except BaseException as error:
        failure = error
        raise
    finally:
        if identity(lock_of(folder)) == found:  # what has taken its place is not ours
            holder.forget(folder, failure)
        lock.release()


def make_private(folder: Path) -> None:
    """A folder for its owner only; one that is there already keeps its mode, which somebody may have chosen."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=files.PRIVATE_FOLDER, exist_ok=True)


def identity(path: Path) -> tuple[int, int] | None:
    """Which file this is; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def refuse_links(folder: Path) -> None:
    """Every file of a run must be a plain file in its folder, if it is there; the folder itself may be a link."""
    for name in (CONFIG, ROUNDS, *AT_THE_END):
        refuse_unless(folder / name, stat.S_ISREG, "a plain file")
    for place in (folder / checkpoint.FOLDER, folder / checkpoint.FOLDER / underway.FOLDER):
        refuse_unless(place, stat.S_ISDIR, "a plain folder")
    for path in (lock_of(folder), folder / checkpoint.FOLDER / HOLDER):
        refuse_unless(path, stat.S_ISREG, "a plain file")
    saved = folder / checkpoint.FOLDER
    for path in (*checkpoint.files_in(saved), *checkpoint.parts_in(saved)):
        refuse_unless(path, stat.S_ISREG, "a plain file")


def refuse_unless(path: Path, kind: Callable[[int], bool], expected: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # not there, or not to be reached: whoever writes will say so
    if not kind(mode):
        found = "a link" if stat.S_ISLNK(mode) else "something else"
        raise BadInput(
            f"{path}: expected {expected}, found {found}; nothing was overwritten: a run folder that comes from "
            "elsewhere could write through it, so remove it, or choose another --out"
        )
