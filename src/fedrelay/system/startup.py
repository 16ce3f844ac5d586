"""The first thing that is imported: a command that is stopped while the rest is imported ends without a traceback."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import PurePath
from types import FrameType

MODULES = ("fedrelay", "fedrelay.cli")


def is_command() -> bool:
    """Whether this process is `fedrelay` or `python -m fedrelay`, and not a program that imports us.

    Python says "-m" for the program's name as long as it looks for a module and imports the packages around it.
    """
    told, name = sys.orig_argv, sys.argv[0] if sys.argv else ""
    if "--multiprocessing-fork" in told:  # a process of ours that is told its parent's name
        return False
    if name == "-m":
        return any(f"-m{module}" in told or ("-m", module) in pairwise(told) for module in MODULES)
    return PurePath(name).name in ("fedrelay", "fedrelay.exe")


def leave(signum: int, frame: FrameType | None) -> None:
    """End at once: nothing has begun that could be lost."""
    with suppress(OSError):
        os.write(2, b"fedrelay: stopped\n")
    os._exit(130)


def take_streams() -> None:
    """Let the numbers of streams that are closed lead nowhere: else the next file that is opened gets one, and what is
    printed goes into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free


if is_command():
    take_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # under nohup it stays unheard
        signal.signal(signal.SIGINT, leave)
