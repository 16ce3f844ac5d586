"""Where a client's process listens: a socket in the client's own folder, which nobody else on the machine can reach."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAME = "process.sock"
LONGEST = 100
"""Bytes of a socket's path: systems take 104 or 108."""


@contextmanager
def doorway(home: Path) -> Iterator[str | tuple[str, int]]:
    """An address for a listener. Where there are no such sockets (Windows), it is a port of this machine's own address;
    a folder with a long path has its socket in one with a short path, which is its owner's alone too."""
    if os.name == "nt" or not hasattr(socket, "AF_UNIX"):
        yield "127.0.0.1", 0
        return
    path = home.absolute() / NAME
    if len(os.fsencode(path)) > LONGEST:
        path = Path(tempfile.mkdtemp(prefix="fedrelay-")) / NAME
    with suppress(FileNotFoundError):
        path.unlink()  # of a process that was killed: the home is ours alone while we run
    try:
        yield str(path)
    finally:
        shut(str(path), home)


def shut(address: object, home: Path) -> None:
    """Leave nothing of it behind."""
    if isinstance(address, str):
        with suppress(OSError):
            Path(address).unlink(missing_ok=True)
            if Path(address).parent != home.absolute():
                Path(address).parent.rmdir()
