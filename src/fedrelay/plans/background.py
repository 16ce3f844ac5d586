"""What a plan computes for the next round while the present one trains: in a thread, or in a process of our own.

The solver of minimum-cost flows and SciPy's clustering hold Python's lock while they work, so that a thread would stop
the training. The process is started when it is first needed, serves one call after another, and ends with this one.

Not loky 3.5, whose worker outlives a parent that was killed: for ever, or with a timeout when idle for 30 seconds more
than that. It also starts two processes more that keep watch, and takes ten times as long for a call (0.2 ms). Here the
other process waits for its input, which ends when this one does, however it ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import Event, Lock, Thread
from typing import Any, ParamSpec, TypeVar

from fedrelay.system import processes
from fedrelay.system.cores import usable
from fedrelay.system.processes import deaf_to_interrupts

LOG = logging.getLogger("fedrelay")

P = ParamSpec("P")
T = TypeVar("T")


def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Start computing this in a thread of its own, which ends with it."""
    thread = ThreadPoolExecutor(1, "background")
    future = thread.submit(call, *args, **kwargs)
    thread.shutdown(wait=False)
    return future


def in_process(call: Callable[..., T], *args: Any) -> T:
    """The same as the call itself, computed in the other process where there is a core for it.

    What cannot be sent there (code of the user's own script), or goes wrong there, is computed here.
    """
    if usable() > 1:
        process = _side_process()
        if process.owner != os.getpid():  # we are a fork of who started it, and it is not ours to ask
            _side_process.cache_clear()
            process = _side_process()
        try:
            result: T = process.ask(call, args)
        except Exception:  # whatever it was: here it works, or raises as it should
            if process.ended:
                _side_process.cache_clear()
        else:
            return result
    return call(*args)


class SideProcess:
    """The other process, as seen from this one."""

    def __init__(self) -> None:
        # Ctrl-C is for the run, which then ends this process: nobody wants to see where it was in its imports.
        deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
        there = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        with deaf_to_interrupts():
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"{deaf}; from {__name__} import serve; serve()"],
                env=there,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        self.owner = os.getpid()
        self._turn, self._asked = Lock(), Event()
        Thread(target=self._watch, name="background-watch", daemon=True).start()
        atexit.register(self.close)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def ask(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Send a call, wait for its result."""
        question = pickle.dumps(pickle.dumps((call, args)))  # twice: what cannot be opened there can still be read
        with self._turn, self._watched():
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            try:
                self._process.stdin.write(question)
                self._process.stdin.flush()
                good, answer = pickle.load(self._process.stdout)
            except BaseException:  # an answer that was not read whole must not be taken for the next one
                self.close()
                raise
        if not good:
            raise RuntimeError(answer)
        return answer

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self._asked.set()
        try:
            yield
        finally:
            self._asked.clear()

    def _watch(self) -> None:
        """While somebody waits for an answer: say if the process is stopped, and end it if it stays so.

        There is no other sign of life: what is computed there holds Python's lock for as long as it takes.
        """
        watch = processes.Watch(self._process.pid)
        while not self.ended:
            self._asked.wait()
            time.sleep(processes.LOOK)
            named, alive = watch.named, not (self._asked.is_set() and processes.is_stopped(watch.pid))
            patience = watch.look(alive=alive)
            if patience is None:
                continue
            if watch.silent >= patience.given_up:
                LOG.warning("the process that makes groups (pid %d) stays stopped: they are made here", watch.pid)
                self._process.kill()
            elif not named:
                LOG.warning(
                    "the process that makes groups (pid %d) is stopped; after %.0f s they are made here",
                    *(watch.pid, patience.given_up),
                )

    def close(self) -> None:
        """It ends, whatever it is doing; a fork of who started it leaves it alone."""
        atexit.unregister(self.close)
        if self.owner == os.getpid():
            self._process.kill()  # one that is stopped would not hear anything else
            self._process.communicate()
            self._asked.set()


@lru_cache(maxsize=1)
def _side_process() -> SideProcess:
    return SideProcess()


def serve() -> None:
    """The life of the other process: calls come in, results go out, until this one is gone."""
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as answers, os.fdopen(os.dup(0), "rb") as questions:
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
