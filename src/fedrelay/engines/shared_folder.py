"""The folder of memory that processes share: nobody else removes it while its owner lives, and somebody does after.

The proof that a folder is one of ours and dead is a file in it that its owner keeps locked as long as it lives, however
it ends. That file gets its name only once it is locked, so no program ever sees it without a lock before its time.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedrelay.errors import BadInput

try:
    import fcntl
except ImportError:  # Windows removes nothing that is in use, and keeps temporary files on disk
    fcntl = None  # type: ignore[assignment]

NAME = re.compile(r"fedrelay-shared-[0-9a-f]{16}")
LOCK, UNLOCKED = "owner", "owner-to-be"
CONTENT = b"fedrelay: memory that the processes of one run share\n"
OURS = re.compile(rf"{LOCK}|{UNLOCKED}|(data|round|to-\d+|from-\d+|signs-\d+)-\d+")
"""What there is in such a folder; one that holds anything else is left alone."""


class Folder:
    """A folder in shared memory, or where temporary files go if that is too small."""

    def __init__(self, size: int) -> None:
        parent = self._parent(size)
        remove_abandoned(parent)
        self.path = parent / f"fedrelay-shared-{secrets.token_hex(8)}"
        self._lock: int | None = None
        try:
            self.path.mkdir(0o700)
            self._lock = locked(self.path)
        except OSError as error:
            self.remove()
            raise no_room(f"{parent} takes no folder for it", error) from error

    @staticmethod
    def _parent(size: int) -> Path:
        memory = Path("/dev/shm")  # the shared memory of Linux; elsewhere the system's own cache of files serves
        if sys.platform == "linux" and memory.is_dir() and os.access(memory, os.W_OK):
            # Twice the size: vectors come and go beside the data. Containers often have only 64 MB here.
            if shutil.disk_usage(memory).free > 2 * size + (64 << 20):
                return memory
        return Path(tempfile.gettempdir())

    def remove(self) -> None:
        if fcntl is None:  # Windows removes nothing that is open
            self._release()
        remove(self.path)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def no_room(what: str, error: OSError) -> BadInput:
    return BadInput(f"there is no shared memory for workers: {what} ({error.strerror}); the engine inline needs none")


def locked(folder: Path) -> int:
    """A new file in the folder that says whose it is, locked as long as it is open."""
    file = os.open(folder / UNLOCKED, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, CONTENT)
        take(file)
    except BaseException:
        os.close(file)
        raise
    if fcntl is not None:  # Windows renames nothing that is open, and has no locks that end with a process
        (folder / UNLOCKED).rename(folder / LOCK)
    return file


def take(file: int) -> bool:
    """Lock a file until it is closed, unless somebody else has."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove(path: Path) -> None:
    """Remove a folder of our own, with what is ours in it; what somebody else has put there stays."""
    if fcntl is None:
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError), opened(path, os.O_DIRECTORY) as folder:
        empty(folder)
        path.rmdir()


def remove_abandoned(parent: Path) -> None:
    """Give back the memory of programs that could not."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for path in parent.iterdir():
            if NAME.fullmatch(path.name):
                remove_if_dead(path)


def remove_if_dead(path: Path) -> None:
    """Remove the folder if it is ours beyond doubt and its owner has gone; in doubt it stays."""
    with (
        contextlib.suppress(OSError),  # it is no folder, or gone meanwhile, or somebody else's
        opened(path, os.O_DIRECTORY) as folder,
        opened(LOCK, os.O_NONBLOCK, at=folder) as lock,
    ):
        if not (private(folder) and private(lock) and stat.S_ISREG(os.fstat(lock).st_mode)):
            return
        if os.read(lock, len(CONTENT) + 1) != CONTENT or not take(lock):
            return
        if only_ours(folder) and os.fstat(lock).st_nlink == 1:  # else another has removed it while we waited
            empty(folder)
            path.rmdir()


@contextlib.contextmanager
def opened(path: Path | str, flags: int, at: int | None = None) -> Iterator[int]:
    """Open for reading what is itself there, not what a link points to."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=at)
    try:
        yield file
    finally:
        os.close(file)


def private(file: int) -> bool:
    """Whether it belongs to this user and to nobody else; root's own is no exception."""
    found = os.fstat(file)
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def only_ours(folder: int) -> bool:
    """Whether the folder holds nothing but the plain files that we put into such folders."""
    kinds = {name: os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode for name in os.listdir(folder)}
    return all(OURS.fullmatch(name) and stat.S_ISREG(kind) for name, kind in kinds.items())


def empty(folder: int) -> None:
    """Remove what is ours in it; the lock last, so that whoever is cut off here leaves a folder that can be swept."""
    for name in sorted(os.listdir(folder), key=lambda name: name == LOCK):
        if OURS.fullmatch(name):
            os.unlink(name, dir_fd=folder)
