"""How errors are told: one message in words, never longer than people read, and the exit code that goes with it."""

from __future__ import annotations

import argparse
from typing import NoReturn

from fedrelay.errors import BadInput, RunFailed
from fedrelay.system.stopping import CODE

LONGEST = 1000
"""Characters of a message."""
FINE, FAILED, WRONG = 0, 1, 2
CODES = {
    FINE: "It is done. Of `diff`: no difference; of `doctor`: nothing is wrong.",
    FAILED: "It was tried, and did not come out: a run failed (others of a comparison are done all the same), no value "
    "of `tune` got to its end, nobody could take what was printed, or something unexpected happened. Of `diff`: there "
    "are differences; of `doctor`: something is wrong; of `watch`: a run failed; of `advise --race`: nobody got to the "
    "target.",
    WRONG: "What was asked for cannot be: a mistake in the command or the file, a folder that is in use, no room on "
    "the disk. The message says what would work; nothing was overwritten.",
    CODE: "Stopped by Ctrl-C, SIGTERM or SIGHUP. What is on disk is whole; the same command goes on from there (`run` "
    "and `serve` with `--resume`). `watch` and `board` end with 0 then: nothing was cut short.",
}
"""What exit codes mean, for whoever writes scripts."""


def shortened(message: str, most: int = LONGEST) -> str:
    """The message without what a terminal would obey, and not longer than this."""
    plain = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in message[: most + 1])
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def told(error: Exception) -> tuple[str, int]:
    """What went wrong in words, and the exit code: 2 for what the user can change, 1 for the rest."""
    if isinstance(error, BadInput):
        return str(error), WRONG
    if isinstance(error, RunFailed):
        return str(error), FAILED
    if isinstance(error, OSError) and error.strerror:
        return f"{_place(error)} cannot be read or written ({error.strerror}): name another, or make room", WRONG
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):
        return "a path has a NUL in it, which no file or folder can have: name another", WRONG
    if isinstance(error, RecursionError):
        return "the configuration (or a file that it names) is nested too deeply: flatten it", WRONG
    if isinstance(error, MemoryError | OverflowError):
        return f"a size or a number is too large for this machine ({error or 'no memory is left'}): try less", WRONG
    return f"unexpected {type(error).__name__}: {error} (--debug shows where)", FAILED


def _place(error: OSError) -> str:
    return "a file" if error.filename is None else f"{error.filename!s:.500}"


class Parser(argparse.ArgumentParser):
    """A parser whose messages are not longer than ours either."""

    def error(self, message: str) -> NoReturn:
        super().error(shortened(message, LONGEST - len(self.format_usage()) - len(f"{self.prog}: error: \n")))
