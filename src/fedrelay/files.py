"""Files that are whole or not there at all, whenever the process or the machine stops."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PART = re.compile(r"\.fedrelay-[0-9a-f]{16}\.part")
ABANDONED = 3600.0
"""Seconds after which a part that nobody has added to belongs to a process that was killed."""


def write(path: Path, content: bytes) -> None:
    """The file is either what it was or this."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: Path, name: Callable[[], str] | None = None) -> Iterator[IO[bytes]]:
    """A stream to a file that takes the place of `path` once the block has ended well; else nothing has happened.

    A name that depends on the content is asked for at the end. The file lies beside `path` meanwhile.
    """
    part = path.with_name(f".fedrelay-{secrets.token_hex(8)}.part")
    file = part.open("xb")  # a new file, and no link is followed: nothing that somebody put there is overwritten
    try:
        with file:
            yield file
        publish(part, path if name is None else path.with_name(name()))
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sweep(path.parent)


def publish(part: Path, path: Path) -> None:
    """Rename a whole file; its content is on disk before its name is."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(path)


def sweep(folder: Path) -> None:
    """Remove what processes that were killed have left."""
    with suppress(OSError):  # somebody else's, or gone meanwhile: it can wait
        for path in folder.iterdir():
            if PART.fullmatch(path.name) and path.lstat().st_mtime < time.time() - ABANDONED:
                path.unlink()
