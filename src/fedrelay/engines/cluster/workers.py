"""All workers of a run on a cluster: hired when they are needed, replaced when they are lost, dismissed together."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fedrelay.engines.cluster import joining, machine
from fedrelay.engines.cluster.sending import received, sent
from fedrelay.engines.cluster.told import Told
from fedrelay.engines.cluster.worker import Outbox, Seen, Worker
from fedrelay.engines.packing import CannotBeSent, pack
from fedrelay.engines.pool.process import listed
from fedrelay.engines.pool.worker import Job, Reply, Round, sound
from fedrelay.engines.pool.workers import Lost, pack_whole, refused
from fedrelay.engines.relay import LOG, Simulation
from fedrelay.errors import BadInput, RunFailed, say_once
from fedrelay.system import processes
from fedrelay.system.processes import Watch

UNREADY = 10
"""So many workers in a row may be lost before they are ready: on a machine whose death is not known yet, say."""

WAITING = 30.0
"""Seconds without any worker after which it is said what is waited for."""


class Hired:
    """One worker, as the program that started the run sees it."""

    def __init__(self, number: int, actor: Any, ready: Any) -> None:
        self.number, self.actor, self.where = number, actor, "not started yet"
        self.awaited: Any = ready
        """What it is to answer next: that it is ready, then jobs; None if it has nothing to do."""
        self.ready = False
        self.job: Job | None = None
        self.look: Any = None
        """The answer to how far it is, if it was asked."""
        self.watch = Watch(0)  # its process is elsewhere, so nobody knows whether it is stopped or only silent


class ClusterWorkers:
    """Workers over one simulation, which lies once in the object store of every machine that has some."""

    def __init__(self, simulation: Simulation, address: str, asked: int | None) -> None:
        packed = pack_whole(simulation)
        self.owner = os.getpid()
        self._ray = joining.join(address)
        nodes = joining.nodes_of(self._ray)
        self.most = joining.workers_for(nodes, asked)
        joining.check_room(nodes, packed.size + len(packed.skeleton))
        self._seed, self._setup = simulation.seed, self._ray.put(sent(packed))
        self._here = machine.facts()
        # Restarts by Ray take seconds and lose what was asked: whoever is lost is replaced here.
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD", "concurrency_groups": {"look": 1}}
        self._kind = self._ray.remote(**options)(Worker)
        self._round: Round | None = None
        self._opening: Any = None
        self._opened = self._hired = self._unready = 0
        self._told = Told(None)
        self._looked = self._reply = time.monotonic()
        self.workers: list[Hired] = []

    def open(self, round: Round, workers: int) -> None:
        """A round for this many workers at most."""
        underway = round.context.underway
        self._told = Told(underway)
        self._round = round
        there = replace(round, context=replace(round.context, underway=None if underway is None else Outbox()))
        try:
            self._opening = self._ray.put(sent(pack(there)))
        except CannotBeSent as error:
            raise refused(type(round.context.work).__name__, error) from error
        self._opened += 1
        self._reply = time.monotonic()
        while len(self.workers) < workers:
            self._hire()

    def _hire(self) -> None:
        self._hired += 1
        actor = self._kind.remote()
        self.workers.append(Hired(self._hired, actor, actor.begin.remote(self._here, self._setup)))

    def idle(self) -> list[Hired]:
        return [one for one in self.workers if one.ready and one.job is None]

    def give(self, one: Hired, job: Job) -> None:
        assert self._round is not None
        found = self._told.found(self._round, job, self._seed)
        one.job, one.watch = job, Watch(0)
        one.awaited = one.actor.run.remote(self._opened, self._opening, sent(pack((job, found))))

    def replies(self) -> Iterator[tuple[Job, Reply | Lost]]:
        """Wait until something comes: jobs with their replies, or with the loss of their worker (which was
        replaced)."""
        awaited = {one.awaited: one for one in self.workers if one.awaited is not None}
        if self._ray.wait([*awaited], timeout=processes.LOOK)[0]:
            for ref in self._ray.wait([*awaited], num_returns=len(awaited), timeout=0)[0]:
                yield from self._answer(awaited[ref], ref)
        if time.monotonic() - self._looked > processes.LOOK:
            yield from self._look()
            self._looked = time.monotonic()

    def _answer(self, one: Hired, ref: Any) -> Iterator[tuple[Job, Reply | Lost]]:
        job, errors = one.job, self._ray.exceptions
        try:
            found = self._ray.get(ref)
        except errors.RayError as error:
            why = joining.in_a_line(error)
            if isinstance(error, errors.RayTaskError) or getattr(error, "actor_init_failed", False):
                self._dismiss([one])
                raise cannot_load(joining.place_of(error), why) from error  # another would fail there as well
            yield from self._replace(one, why)  # its process, its machine, or what it was sent
            return
        one.awaited = None
        self._reply = time.monotonic()
        if job is None:
            self._welcome(one, *found)
            return
        reply, said = received(found, copy=True)
        self._told.say(said)
        one.job = None
        yield job, sound(reply)

    def _welcome(self, one: Hired, where: str, there: dict[str, str], failure: str) -> None:
        """The first answer of a worker: it computes as we do, and can; else it goes."""
        different = machine.difference(self._here, there)
        if different or failure:
            self._dismiss([one])
            raise differs(where, different) if different else cannot_load(where, failure)
        one.where = where
        one.ready, self._unready = True, 0

    def _look(self) -> Iterator[tuple[Job, Reply | Lost]]:
        """Ask those at work how far they are; those that do not answer are named, and after a longer time replaced."""
        if time.monotonic() - self._reply > WAITING and not any(one.ready for one in self.workers):
            say_once("no worker has started yet: the CPUs of the Ray cluster are in use, or its machines slow")
        for one in [one for one in self.workers if one.job is not None]:
            alive = one.look is None or self._fetch(one)
            named, patience = one.watch.named, one.watch.look(alive=alive)
            silent = f"gave no sign of life for {one.watch.silent:.0f} s"
            if patience is not None and one.watch.silent >= patience.given_up:
                yield from self._replace(one, silent)
            elif patience is not None and not named:
                LOG.warning(
                    "worker %d of the Ray cluster (%s) %s, %s; after %.0f s another takes its place",
                    *(one.number, one.where, silent, self._whereabouts(one), patience.given_up),
                )
            elif alive:
                one.look = one.actor.seen.options(concurrency_group="look").remote()

    def _fetch(self, one: Hired) -> bool:
        """Whether it has answered; what it says is passed on."""
        if not self._ray.wait([one.look], timeout=0)[0]:
            return False
        with contextlib.suppress(self._ray.exceptions.RayError):  # it is lost, which its job will say
            seen: Seen = self._ray.get(one.look)
            self._told.take(seen)
        return True

    def _replace(self, one: Hired, why: str) -> Iterator[tuple[Job, Lost]]:
        """Another in the place of one that is lost; its job is to be done again."""
        self._dismiss([one])
        if not one.ready:
            self._unready += 1
            if self._unready >= UNREADY:
                raise RunFailed(f"{UNREADY} workers of the Ray cluster were lost before they were ready: {why}")
        LOG.warning(
            "worker %d of the Ray cluster (%s) was lost, %s: %s; another takes its place and runs its chains again",
            *(one.number, one.where, self._whereabouts(one), why),
        )
        self._hire()
        if one.job is not None:
            yield one.job, Lost(None)  # it is not known where it was when it was lost

    def _whereabouts(self, one: Hired) -> str:
        if one.job is None or self._round is None:
            return "before it had anything to do"
        clients = [client for number in one.job.numbers for client in self._round.chains[number].clients]
        return f"with {listed('chain', one.job.numbers)} of {listed('client', clients)}"

    def rest(self) -> None:
        """Dismiss those that are still at work: nobody waits for them any more."""
        self._dismiss([one for one in self.workers if one.job is not None])

    def end(self) -> None:
        """Dismiss all, and give back the memory; in a copy of this process (a fork) they are not ours."""
        if os.getpid() == self.owner and self._ray.is_initialized():
            self._dismiss(list(self.workers))
            self._setup = self._opening = None

    def _dismiss(self, those: Sequence[Hired]) -> None:
        for one in those:
            self.workers.remove(one)
            with contextlib.suppress(self._ray.exceptions.RayError):  # it has gone
                self._ray.kill(one.actor)


def differs(where: str, what: str) -> BadInput:
    return BadInput(f"a worker of the Ray cluster ({where}) has {what}")


def cannot_load(where: str, why: str) -> BadInput:
    return BadInput(
        f"a worker of the Ray cluster ({where}) cannot load this run: {why}; every machine needs what is installed "
        "here, in the same versions"
    )
