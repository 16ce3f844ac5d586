"""A process of our own for long computations of a plan.

The solver of minimum-cost flows holds Python's lock while it works, so that a thread beside the training would stop it.
The process is started when it is first needed, serves one call after another, and ends with this one.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


def aside(call: Callable[..., T], *args: Any) -> T:
    """The same as the call itself, computed in the other process where there is a core for it.

    What cannot be sent there (code of the user's own script), or goes wrong there, is computed here.
    """
    if (os.cpu_count() or 1) > 1:
        other = _other()
        try:
            result: T = other.ask(call, args)
        except Exception:  # whatever it was: here it works, or raises as it should
            if other.process.poll() is not None:
                _other.cache_clear()
        else:
            return result
    return call(*args)


class Other:
    """The other process, as seen from this one."""

    def __init__(self) -> None:
        code = f"from {__name__} import serve; serve()"
        there = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], env=there, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.turn = Lock()
        atexit.register(self.close)

    def ask(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Send a call, wait for its result."""
        question = pickle.dumps(pickle.dumps((call, args)))  # twice: what cannot be opened there can still be read
        with self.turn:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            try:
                self.process.stdin.write(question)
                self.process.stdin.flush()
                good, answer = pickle.load(self.process.stdout)
            except Exception:  # an answer that was not read whole must not be taken for the next one
                self.close()
                raise
        if not good:
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        """Its input ends, and so does it."""
        self.process.terminate()
        self.process.communicate()


@lru_cache(maxsize=1)
def _other() -> Other:
    return Other()


def serve() -> None:
    """The life of the other process: calls come in, results go out, until this one is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then ends this process
    with os.fdopen(os.dup(1), "wb") as answers, os.fdopen(os.dup(0), "rb") as questions:
        os.dup2(2, 1)  # what anybody prints must not get between the answers
        while True:
            try:
                question = pickle.load(questions)
            except EOFError:
                return
            try:
                call, args = pickle.loads(question)
                answer = pickle.dumps((True, call(*args)))
            except Exception as error:
                answer = pickle.dumps((False, f"{type(error).__name__}: {error}"))
            answers.write(answer)
            answers.flush()
