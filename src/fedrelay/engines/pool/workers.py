"""All workers of a run: started when they are needed, replaced when they are lost, ended together."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection as connections
from multiprocessing.connection import Connection

import torch

from fedrelay.engines.packing import CannotBeSent, Packed, Sender, pack
from fedrelay.engines.pool.process import Worker
from fedrelay.engines.pool.worker import Job, Reply, Round
from fedrelay.engines.relay import LOG, Simulation
from fedrelay.engines.shared_folder import Folder
from fedrelay.errors import RunFailed
from fedrelay.system import processes
from fedrelay.system.devices import CPU
from fedrelay.system.processes import undisturbed


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


@dataclass(frozen=True)
class Lost:
    """A worker that died or had to be given up, and the client it was at, if that is known."""

    client: int | None


class WorkerPool:
    """Workers over one simulation, and the folder of memory that they share with their parent."""

    def __init__(self, simulation: Simulation, devices: Sequence[torch.device] = (CPU,)) -> None:
        packed = pack_whole(simulation)
        self.owner, self._devices = os.getpid(), devices
        self._folder = Folder(packed.size)
        try:
            self._data = Sender(self._folder.path, "data")
            self._setup = self._data.send(simulation)
        except BaseException:
            self._folder.remove()
            raise
        self._board = Sender(self._folder.path, "round")
        self._opening = b""
        self._clients: Sequence[Sequence[int]] = ()
        self._started = 0
        self._looked = 0.0
        self.workers: list[Worker] = []

    def open(self, round: Round, workers: int) -> None:
        """A round for this many workers at most."""
        try:
            self._opening = self._board.send(round)
        except CannotBeSent as error:
            raise refused(type(round.context.work).__name__, error) from error
        self._clients = [chain.clients for chain in round.chains]
        while len(self.workers) < workers:
            self._start()

    def _start(self) -> None:
        with undisturbed():
            self._started += 1
            try:
                # One that takes another's place takes its device too: those that are left have theirs.
                busy = [one.device for one in self.workers]
                device = min(self._devices, key=busy.count)
                self.workers.append(Worker(self._folder.path, self._started, self._setup, device, self._devices[0]))
            except OSError as error:
                raise RunFailed(
                    f"no worker process could be started ({error.strerror}); the engine inline needs none"
                ) from error

    def idle(self) -> list[Worker]:
        return [one for one in self.workers if one.job is None]

    def give(self, one: Worker, job: Job) -> None:
        one.give(job, self._opening)

    def replies(self) -> Iterator[tuple[Job, Reply | Lost]]:
        """Wait until something comes: jobs with their replies, or with the loss of their worker (which was
        replaced)."""
        busy: dict[Connection, Worker] = {one.connection: one for one in self.workers if one.job is not None}
        for found in connections.wait(list(busy), processes.LOOK):
            one = busy[found]  # type: ignore[index]
            job = one.job
            assert job is not None
            try:
                reply = one.take()
            except EOFError:
                yield job, self._replace(one, f"ended ({one.how_it_ended()})")
                continue
            if reply is not None:
                yield job, reply
        if time.monotonic() - self._looked > processes.LOOK:
            yield from self._given_up()
            self._looked = time.monotonic()

    def _given_up(self) -> Iterator[tuple[Job, Lost]]:
        """Those at work that give no sign of life: they are named, and after a longer time replaced."""
        for one in [one for one in self.workers if one.job is not None]:
            named, job = one.watch.named, one.job
            patience = one.watch.look(alive=one.gives_a_sign())
            if patience is None or job is None:
                continue
            silent = f"gave no sign of life for {one.watch.silent:.0f} s"
            if one.watch.silent >= patience.given_up:
                one.process.kill()
                yield job, self._replace(one, silent)
            elif not named:
                LOG.warning(
                    "worker process %d (pid %d) %s, %s: %s; after %.0f s another takes its place",
                    *(one.number, one.pid, silent, one.whereabouts(self._clients)),
                    *(SAID[patience == processes.STOPPED], patience.given_up),
                )

    def _replace(self, one: Worker, how: str) -> Lost:
        lost = Lost(one.client)
        where = one.whereabouts(self._clients)
        with undisturbed():
            self.workers.remove(one)
            one.end()
        if not one.ready and "with exit code" in how:
            raise RunFailed(
                f"worker process {one.number} {how} before it was ready; a script that starts a run must do so "
                "under `if __name__ == '__main__':`, because every worker imports it"
            )
        LOG.warning(
            "worker process %d (pid %d) %s, %s; another takes its place and runs its chains again",
            *(one.number, one.pid, how, where),
        )
        self._start()
        return lost

    def rest(self) -> None:
        """End those that are still at work: nobody waits for them any more."""
        self._end([one for one in self.workers if one.job is not None])

    def end(self) -> None:
        """End all, and give back the memory; in a copy of the process that made them (a fork) they are not ours."""
        if os.getpid() == self.owner:
            self._end(list(self.workers))
            self._folder.remove()

    def _end(self, those: Sequence[Worker]) -> None:
        with undisturbed():
            for one in those:
                one.dismiss()
            for one in those:
                self.workers.remove(one)
                one.end()


SAID = {True: "it is stopped", False: "it holds Python's lock, or waits for the system"}


class LazyPool:
    """A pool that is made when it is first needed, and ends with whoever needed it."""

    def __init__(self, simulation: Simulation, devices: Sequence[torch.device] = (CPU,)) -> None:
        self._simulation, self._devices = simulation, devices
        self.pool: WorkerPool | None = None
        self._end: weakref.finalize[[], LazyPool] | None = None

    def open(self, round: Round, workers: int) -> WorkerPool:
        """The pool, ready for a round."""
        if self.pool is None or self.pool.owner != os.getpid():  # in a fork, the workers are those of another
            with undisturbed():
                self.pool = WorkerPool(self._simulation, self._devices)
                self._end = weakref.finalize(self, self.pool.end)  # also at the end of the program
        self.pool.open(round, workers)
        return self.pool

    def close(self) -> None:
        """End the pool; it would be made anew."""
        if self._end is not None:
            self._end()
        self.pool = self._end = None
