"""Being asked to stop: the first time is heard at once, those that follow do not disturb what it started."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from fedrelay.system.processes import STOPS

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

CODE = 130
PATIENCE = 10.0
"""So many seconds after it was first asked to stop a program that is asked again ends at once."""


class Stopping:
    """Handles Ctrl-C, SIGTERM and SIGHUP alike: the first raises KeyboardInterrupt, and a checkpoint is left.

    Those that follow are not heard while that goes on; after a while they end the program as `kill -9` would, which
    loses no checkpoint either.
    """

    def __init__(self) -> None:
        self._since: float | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self._since is None:
            self._since = time.monotonic()
            raise KeyboardInterrupt
        if time.monotonic() - self._since > PATIENCE:
            os._exit(CODE)

    def again(self, args: UnraisableHookArgs) -> None:
        """Python swallows what is raised while it clears up (`__del__`): then the first time is yet to come."""
        if args.exc_type is KeyboardInterrupt:
            self._since = None
            again = threading.Timer(0.01, interrupt)  # not here, where it would be swallowed as well
            again.daemon = True
            again.start()
        else:
            sys.__unraisablehook__(args)


def interrupt() -> None:
    """Ctrl-C, for the main thread, also if it waits for something."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


@contextmanager
def stoppable(*, for_good: bool = False) -> Iterator[None]:
    """Inside, and after it if it is for good, asking to stop is handled so; who chose not to hear it (nohup) does not.

    Only the main thread of a program hears it at all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopping, hook = Stopping(), sys.unraisablehook
    before = {number: signal.getsignal(number) for number in STOPS}
    heard = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in heard:
        signal.signal(number, stopping)
    sys.unraisablehook = stopping.again
    try:
        yield
    finally:
        if not for_good:
            sys.unraisablehook = hook
            for number, handler in heard.items():
                signal.signal(number, handler)
