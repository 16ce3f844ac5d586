"""One worker process as its parent sees it: started, fed, watched and ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from multiprocessing.process import ORIGINAL_DIR, _children  # type: ignore[attr-defined]
from pathlib import Path

import torch

from fedrelay.engines.packing import Receiver, Sender
from fedrelay.engines.pool import worker
from fedrelay.engines.pool.signs import NOWHERE, Signs
from fedrelay.engines.pool.worker import Job, Reply, sound
from fedrelay.system.devices import CPU
from fedrelay.system.processes import Watch, deaf_to_interrupts

MOST_NAMED = 10


@contextmanager
def without_missing_main() -> Iterator[None]:
    """Inside, new processes do not look for a main file that is none: what is typed into Python, or piped to it, calls
    itself `<stdin>`. What it defines is sent as it is, so nobody needs the file."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None or Path(ORIGINAL_DIR, path).exists():
        yield
        return
    main.__file__ = None
    try:
        yield
    finally:
        main.__file__ = path


class Worker:
    """One process, as its parent sees it. It computes on `device`; what it sends comes to `home`, its parent's."""

    def __init__(
        self, folder: Path, number: int, setup: bytes, device: torch.device = CPU, home: torch.device = CPU
    ) -> None:
        self.number, self.device = number, device
        self.ready = False
        self.job: Job | None = None
        self._folder = folder
        self._round: bytes | None = None
        self._sender, self._receiver = Sender(folder, f"to-{number}"), Receiver(home)
        self._signs, self._beats = Signs.make(folder, number), 0
        # Only spawn: torch's threads do not survive a fork, and Windows and macOS have nothing else.
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        name = f"fedrelay-worker-{number}"
        arguments = (theirs, str(folder), f"from-{number}", setup, str(self._signs.path), str(device))
        self.process: SpawnProcess = spawn.Process(target=worker.serve, args=arguments, name=name, daemon=True)
        if sys.platform != "win32":
            resource_tracker.ensure_running()  # starting it later would undo the mask of signals
        with without_missing_main(), deaf_to_interrupts():
            self.process.start()
        _children.discard(self.process)  # we end it ourselves; a fork of ours that exits would end it too
        theirs.close()  # so that the connection ends when the process does
        self.pid = self.process.pid or 0
        self.watch = Watch(self.pid)

    def give(self, job: Job, opening: bytes) -> None:
        """Send a job, and before it what opens its round if the worker has not had it."""
        self.job = job
        self._signs.run(NOWHERE)
        with contextlib.suppress(OSError):  # it has died; that is noticed when its answer is waited for
            if self._round is not opening:
                self.connection.send_bytes(pickle.dumps(("round", opening)))
                self._round = opening
            self.connection.send_bytes(pickle.dumps(("job", self._sender.send(job))))

    def take(self) -> Reply | None:
        """What it has to say: a reply, or None if it only is ready now. Raises EOFError if it has died."""
        try:
            message = self.connection.recv_bytes()
        except OSError as error:
            raise EOFError from error
        if not self.ready and not message:
            self.ready = True
            return None
        reply: Reply = self._receiver.receive(message, copy=True) if self.ready else pickle.loads(message)
        sound(reply)
        self.job = None
        return reply

    def gives_a_sign(self) -> bool:
        """Whether it has given one since this was asked last."""
        before, self._beats = self._beats, self._signs.beats
        return self._beats != before

    @property
    def client(self) -> int | None:
        """The client that it is at, if it is at one."""
        return self._signs.place[1]

    def whereabouts(self, clients: Sequence[Sequence[int]]) -> str:
        """Which chain it runs and which client it is at, or else which it was to run; `clients` are those of chains."""
        chain, client = self._signs.place
        if client is not None:
            return f"at client {client} of chain {chain}"
        numbers = [] if self.job is None else [*self.job.numbers]
        those = [client for number in numbers for client in clients[number]]
        return f"with {listed('chain', numbers)} of {listed('client', those)}"

    def end(self) -> None:
        """Stop it: at once if it is at work, else as soon as it reads that there is no more."""
        self.dismiss()
        self.process.join(5)
        if self.process.is_alive():  # it is stopped, perhaps
            self.process.kill()
            self.process.join()
        self.process.close()
        for path in self._folder.glob(f"*-{self.number}-*"):  # to it, from it, and its signs
            with contextlib.suppress(OSError):  # Windows keeps a file that is mapped; its folder goes
                path.unlink()

    def dismiss(self) -> None:
        """Let it end, without waiting for it."""
        with contextlib.suppress(OSError):  # it has died
            self.connection.send_bytes(pickle.dumps(("end", b"")))
        self.connection.close()
        if self.job is not None or not self.ready:
            self.process.kill()

    def how_it_ended(self) -> str:
        self.process.join()
        code = self.process.exitcode or 0
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"with exit code {code}"


def listed(word: str, numbers: Sequence[int]) -> str:
    """Numbers in words, not too many of them."""
    more = " …" if len(numbers) > MOST_NAMED else ""
    return f"{word}{'s' if len(numbers) != 1 else ''} {', '.join(map(str, numbers[:MOST_NAMED]))}{more}"
