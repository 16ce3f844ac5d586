"""Files that are whole or not there at all, whenever the process or the machine stops.

Promised: a file is either what it was or all of what was to be written. Nothing is written through a link that somebody
has put in the place of a file: a new file has a random name that must not exist yet, and then takes the place of the
link itself; `append` and `continued` refuse a link. What is `PRIVATE` can be read by its owner only, everything else
by whom the umask lets.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PART = re.compile(r"\.fedrelay-[0-9a-f]{16}\.part|\.config\.toml\.part")
"""Names of parts; the second is what older versions began every run with."""
ABANDONED = 3600.0
"""Seconds after which a part that nobody has added to belongs to a process that was killed."""
PUBLIC, PRIVATE = 0o666, 0o600
"""Who may read a file, before the umask: everybody, or its owner only."""
PRIVATE_FOLDER = 0o700
NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def write(path: Path, content: bytes, *, mode: int = PUBLIC) -> None:
    """The file is either what it was or this."""
    with writing(path, mode=mode) as file:
        file.write(content)


@contextmanager
def writing(path: Path, name: Callable[[], str] | None = None, *, mode: int = PUBLIC) -> Iterator[IO[bytes]]:
    """A stream to a file that takes the place of `path` once the block has ended well; else nothing has happened.

    A name that depends on the content is asked for at the end. The file lies beside `path` meanwhile.
    """
    part = path.with_name(f".fedrelay-{secrets.token_hex(8)}.part")
    # A new file, and no link is followed: nothing that somebody put there is overwritten.
    file = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS, mode), "wb")
    try:
        with file:
            yield file
        publish(part, path if name is None else path.with_name(name()))
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sweep(path.parent)


def append(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Add to a file of our own, on disk when this returns (unless it need not `sync`); a link is refused, and nothing
    is made anew."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | NO_LINKS), "ab") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def continued(path: Path) -> IO[bytes]:
    """A stream to read and write a file of our own, which is made if there is none; a link is refused."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | NO_LINKS, PUBLIC), "r+b")


def publish(part: Path, path: Path) -> None:
    """Rename a whole file; its content is on disk before its name is."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(path)


def sweep(folder: Path, older: float = ABANDONED) -> None:
    """Remove what processes that were killed have left, if nobody has added to it for so many seconds."""
    with suppress(OSError):  # somebody else's, or gone meanwhile: it can wait
        for path in folder.iterdir():
            if PART.fullmatch(path.name) and path.lstat().st_mtime <= time.time() - older:
                path.unlink()
