"""What is printed, when nobody can take it: messages are not worth a run, and output that is lost is said in words."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class Unwritable(Exception):
    """The output could not be written: its reader has gone, or its disk is full."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(getattr(reason, "strerror", None) or str(reason))
        self.gone = getattr(reason, "errno", None) == errno.EPIPE


class Guarded:
    """A stream that fails once at most: from then on it leads nowhere. Where it is `needed`, that once is raised."""

    def __init__(self, stream: TextIO, *, needed: bool) -> None:
        self._stream, self._needed = stream, needed

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError) as error:  # ValueError: it was closed
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has no number, so nothing is flushed to it at the end
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        if self._needed:
            self._needed = False
            raise Unwritable(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Inside, what is printed may be lost: output is missed (`Unwritable`), messages are not."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to fail
    if sys.stdout is not None:
        sys.stdout = Guarded(sys.stdout, needed=True)
    if sys.stderr is not None:
        sys.stderr = Guarded(sys.stderr, needed=False)
    try:
        yield
    finally:
        with contextlib.suppress(Unwritable):
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
        sys.stdout, sys.stderr = before
