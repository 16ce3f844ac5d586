"""The parent's side of worker processes: starting, feeding, replacing and ending them."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import ORIGINAL_DIR  # type: ignore[attr-defined]
from pathlib import Path

from fedrelay.engines.packing import CannotBeSent, Folder, Packed, Receiver, Sender, pack
from fedrelay.engines.pool import worker
from fedrelay.engines.pool.worker import Job, Reply, Round
from fedrelay.engines.relay import LOG, Simulation
from fedrelay.errors import RunFailed


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
    """One process, as its parent sees it."""

    def __init__(self, folder: Path, number: int, setup: bytes) -> None:
        self.number = number
        self.ready = False
        self.job: Job | None = None
        self._round: bytes | None = None
        self._sender, self._receiver = Sender(folder, f"to-{number}"), Receiver()
        # Only spawn: torch's threads do not survive a fork, and Windows and macOS have nothing else.
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        name = f"fedrelay-worker-{number}"
        arguments = (theirs, str(folder), f"from-{number}", setup)
        self.process: SpawnProcess = spawn.Process(target=worker.serve, args=arguments, name=name, daemon=True)
        with without_missing_main():
            self.process.start()
        theirs.close()  # so that the connection ends when the process does

    def give(self, job: Job, opening: bytes) -> None:
        """Send a job, and before it what opens its round if the worker has not had it."""
        self.job = job
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
        if not self.ready:
            self.ready = True
            return None
        reply: Reply = self._receiver.receive(message, copy=True)
        self.job = None
        return reply

    def end(self) -> None:
        """Stop it: at once if it is at work, else as soon as it reads that there is no more."""
        with contextlib.suppress(OSError):  # it has died
            self.connection.send_bytes(pickle.dumps(("end", b"")))
        self.connection.close()
        if self.job is not None or not self.ready:
            self.process.terminate()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._sender.remove()

    def how_it_ended(self) -> str:
        self.process.join()
        code = self.process.exitcode or 0
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"with exit code {code}"


def pack_whole(simulation: Simulation) -> Packed:
    """The simulation as it is sent; what cannot be sent is refused by its own name."""
    try:
        return pack(simulation)
    except CannotBeSent as whole:
        model, source = simulation.task.model, simulation.federation.source
        parts = {
            f"the model {type(getattr(model, 'module', model)).__name__}": model,
            f"the data {source.name}": source,
        }
        for name, part in parts.items():
            try:
                pack(part)
            except CannotBeSent as error:
                raise refused(name, error) from error
        raise refused("this run", whole) from whole


def refused(what: str, error: CannotBeSent) -> CannotBeSent:
    return CannotBeSent(
        f"{what} cannot be sent to a worker process ({error}); the engine inline needs no other process"
    )


class WorkerPool:
    """Workers over one simulation, and the folder of memory that they share with their parent."""

    def __init__(self, simulation: Simulation) -> None:
        packed = pack_whole(simulation)
        self._folder = Folder(packed.size)
        self._data = Sender(self._folder.path, "data")
        self._setup = self._data.send(simulation)
        self._board = Sender(self._folder.path, "round")
        self._opening = b""
        self._started = 0
        self.workers: list[Worker] = []

    def open(self, round: Round, workers: int) -> None:
        """A round for this many workers at most."""
        try:
            self._opening = self._board.send(round)
        except CannotBeSent as error:
            raise refused(type(round.context.work).__name__, error) from error
        while len(self.workers) < workers:
            self.workers.append(self._start())

    def _start(self) -> Worker:
        self._started += 1
        return Worker(self._folder.path, self._started, self._setup)

    def idle(self) -> list[Worker]:
        return [one for one in self.workers if one.job is None]

    def give(self, one: Worker, job: Job) -> None:
        one.give(job, self._opening)

    def replies(self) -> Iterator[tuple[Job, Reply | None]]:
        """Wait until something comes: jobs with their replies, or without if their worker has died (and was
        replaced)."""
        busy: dict[Connection, Worker] = {one.connection: one for one in self.workers if one.job is not None}
        for found in connections.wait(list(busy)):
            one = busy[found]  # type: ignore[index]
            job = one.job
            assert job is not None
            try:
                reply = one.take()
            except EOFError:
                self._replace(one)
                yield job, None
                continue
            if reply is None:
                continue
            if reply.failure:
                raise RunFailed(f"a worker process could not run its chains:\n{reply.failure}")
            yield job, reply

    def _replace(self, one: Worker) -> None:
        how = one.how_it_ended()
        self.workers.remove(one)
        one.end()
        if not one.ready and not how.startswith("killed"):
            raise RunFailed(
                f"worker process {one.number} ended before it was ready ({how}); a script that starts a run must do so "
                "under `if __name__ == '__main__':`, because every worker imports it"
            )
        LOG.warning("worker process %d ended (%s); another takes its place and runs its chains again", one.number, how)
        self.workers.append(self._start())

    def rest(self) -> None:
        """End those that are still at work: nobody waits for them any more."""
        for one in [one for one in self.workers if one.job is not None]:
            self.workers.remove(one)
            one.end()

    def end(self) -> None:
        """End all, and give back the memory."""
        while self.workers:
            self.workers.pop().end()
        self._folder.remove()


class LazyPool:
    """A pool that is made when it is first needed, and ends with whoever needed it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.pool: WorkerPool | None = None
        self._end: weakref.finalize[[], LazyPool] | None = None

    def open(self, round: Round, workers: int) -> WorkerPool:
        """The pool, ready for a round."""
        if self.pool is None:
            self.pool = WorkerPool(self._simulation)
            self._end = weakref.finalize(self, self.pool.end)  # also at the end of the program
        self.pool.open(round, workers)
        return self.pool

    def close(self) -> None:
        """End the pool; it would be made anew."""
        if self._end is not None:
            self._end()
        self.pool = self._end = None
