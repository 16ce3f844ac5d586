"""Folding a Work along a chain: what every engine does, wherever it does it."""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial
from typing import Any, Protocol

from fedrelay.data.examples import Store
from fedrelay.data.federation import Federation
from fedrelay.engines.guard import bounded, spoiled
from fedrelay.engines.memory import Memory
from fedrelay.errors import say_once
from fedrelay.kernels.workspace import Computing
from fedrelay.system.devices import lacking, placed
from fedrelay.tasks import Task, Workspaces
from fedrelay.types import Baton, Chain, Drop, Outcome, Place, Report, Result, Tree, Underway, Visit, Work
from fedrelay.vectors import sha256

LOG = logging.getLogger("fedrelay")


@dataclass(frozen=True)
class Simulation:
    """Where the relay is run: the clients, what is learned, and the seed."""

    federation: Federation
    task: Task
    seed: int
    native: bool = False
    """Whether visits are made outside the interpreter, where they can be."""
    computing: Computing = Computing()
    """Where this process computes, and how."""
    threads: int = 1
    """How many visits that are made outside the interpreter may go on at once."""

    @cached_property
    def workspaces(self) -> Workspaces:
        """Where this process trains; they are not sent to others."""
        return Workspaces(self.task, native=self.native, threads=self.threads, computing=self.computing)

    @cached_property
    def _there(self) -> tuple[Store, Task] | None:
        """The examples and the task on the device; None where that is the processor, which has them at hand."""
        device, public = self.computing.device, self.task.public
        if device.type == "cpu":
            return None
        task = self.task if public is None else replace(self.task, public=public.on(device))
        return self.federation.source.train.on(device), task

    def __getstate__(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def visit(self, context: Context, client: int, memory: Tree, hop: int, place: Place | None = None) -> Visit:
        data, task = self.federation.client(client), self.task
        if self._there is not None:
            examples, task = self._there
            data = replace(data, examples=examples)
        return Visit(data, task, memory, context.shared, context.round, hop, self.seed, self.workspaces, place=place)


@dataclass(frozen=True)
class Context:
    """What all chains of a round have in common."""

    work: Work
    shared: Tree
    round: int
    underway: Underway | None = None
    """Where what is done of the round is kept; None: nowhere."""

    def place(self, chain: Chain, seed: int) -> Place | None:
        """Where this chain keeps how far it is: what it was, its name and all that decides it say."""
        if self.underway is None or not self.round:
            return None

        @cache
        def whose() -> str:
            words = repr((self.work, seed, self.round, chain.clients, chain.slot, chain.start.weight))
            return hashlib.sha256(words.encode()).hexdigest() + sha256(chain.start.params)

        return Place(self.underway, f"chain-{chain.clients[0]}", whose, chain.clients)


class Runner:
    """One chain under way."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.baton = chain, chain.start
        self._reports: list[Report] = []
        self._dropped: list[Drop] = []

    def take(self, result: Result | Drop, memory: Memory, *, client: int, before: Tree) -> None:
        """Go on after a visit to this client, which kept `before` until then; one that is lost leaves the last good
        baton to the next."""
        if isinstance(result, Drop):
            self._dropped.append(result)
            return
        self.baton, after, report = result
        if after is not before:
            memory.stage(client, after)
        self._reports.append(report)

    @property
    def trained(self) -> bool:
        """Whether anybody was not lost: what lost everybody may have an end before the run goes on."""
        return bool(self._reports)

    def resume(self, place: Place | None, memory: Memory) -> int:
        """Go on from where the chain was when somebody was stopped: how many of its hops are done."""
        kept = None if place is None else place.find("hops")
        if kept is None or kept.keys() != {"done", "baton", "reports", "dropped", "memories"}:
            return 0
        if not isinstance(kept["baton"], Baton) or kept["baton"].params.shape != self.baton.params.shape:
            return 0
        kept = placed(kept, self.baton.params.device)
        self.baton, self._reports, self._dropped = kept["baton"], list(kept["reports"]), list(kept["dropped"])
        for client, tree in kept["memories"].items():
            memory.stage(client, tree)
        return int(kept["done"])

    def saved(self, done: int, memory: Memory) -> Tree:
        """The chain after so many hops, as `resume` takes it."""
        clients = set(self.chain.clients)
        memories = {client: tree for client, tree in memory.staged().items() if client in clients}
        parts = {"baton": self.baton, "reports": tuple(self._reports), "dropped": tuple(self._dropped)}
        return {"done": done, **parts, "memories": memories}

    def outcome(self) -> Outcome:
        return Outcome(self.chain, self.baton, tuple(self._reports), tuple(self._dropped))


class Signs(Protocol):
    """Where others can see how far a worker is."""

    def run(self, chain: int, /) -> None:
        """This chain begins, by number."""
        ...

    def visit(self, client: int, /) -> None:
        """A visit to this client begins."""
        ...


def relay(
    simulation: Simulation, context: Context, chain: Chain, memory: Memory, signs: Signs | None = None
) -> Outcome:
    """Fold the work along one chain."""
    runner, place = Runner(chain), context.place(chain, simulation.seed)
    done = runner.resume(place, memory)
    for hop, client in enumerate(chain.clients[done:], start=done):
        if signs is not None:
            signs.visit(client)
        if place is not None:
            place.tell("hop", hop + 1, len(chain.clients))
        visit = simulation.visit(context, client, memory.get(client), hop, place)
        result = attempt(context.work, runner.baton, visit)
        result = bounded(context.work, runner.baton, result, simulation.task.layout.trainable)
        runner.take(result, memory, client=client, before=visit.memory)
        if place is not None and runner.trained:
            place.keep("hops", partial(runner.saved, hop + 1, memory))
    return runner.outcome()


def relay_together(simulation: Simulation, context: Context, chains: Sequence[Chain], memory: Memory) -> list[Outcome]:
    """Fold the work along several chains at once, hop by hop; those that are longer go on alone."""
    runners = [Runner(chain) for chain in chains]
    for hop in range(max(len(chain.clients) for chain in chains)):
        going = [runner for runner in runners if hop < len(runner.chain.clients)]
        clients = [runner.chain.clients[hop] for runner in going]
        visits = [simulation.visit(context, client, memory.get(client), hop) for client in clients]
        results = attempt_together(context.work, [runner.baton for runner in going], visits)
        for runner, result, visit in zip(going, results, visits, strict=True):
            result = bounded(context.work, runner.baton, result, simulation.task.layout.trainable)
            runner.take(result, memory, client=visit.client.id, before=visit.memory)
    return [runner.outcome() for runner in runners]


def in_full(error: Exception) -> str:
    """What went wrong, and where: for whoever runs the client."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({where.name}, line {where.lineno} of {where.filename})"


def attempt(work: Work, baton: Baton, visit: Visit, *, told: Callable[[Exception], str] = in_full) -> Result | Drop:
    """One visit; a client that raises or returns a spoiled model is dropped, with the reason as it is `told`."""
    before = version(baton)
    try:
        result = work(baton, visit)
    except Exception as error:
        missing = lacking(error, visit.workspaces.device)
        if missing is not None:  # all others would be lost by it too
            raise missing from error
        return Drop(visit.client.id, visit.hop, told(error))
    return checked(work, baton, visit, result, before)


def attempt_together(work: Work, batons: Sequence[Baton], visits: Sequence[Visit]) -> list[Result | Drop]:
    """Several visits at once; if that raises, one by one, which finds out who raised."""
    failure = ""
    if len(visits) > 1:
        before = [version(baton) for baton in batons]
        try:
            results = work.together(batons, visits)
        except Exception as error:
            missing = lacking(error, visits[0].workspaces.device)
            if missing is not None:
                raise missing from error
            failure = f"{type(error).__name__}: {error}"
        else:
            return [checked(work, *each) for each in zip(batons, visits, results, before, strict=True)]
    found = [attempt(work, baton, visit) for baton, visit in zip(batons, visits, strict=True)]
    if failure and not any(isinstance(result, Drop) for result in found):
        say_once(f"{type(work).__name__} makes its visits one by one, because several at once raise {failure}")
    return found


def version(baton: Baton) -> int | None:
    """How often its model was written into; None where torch does not count."""
    return None if baton.params.is_inference() else baton.params._version


def checked(work: Work, baton: Baton, visit: Visit, result: Result, before: int | None) -> Result | Drop:
    """The result of a visit, unless its model is spoiled."""
    if result[0].params is baton.params and before is not None and version(baton) == before:
        return result  # as it came, and it was looked at then
    reason = spoiled(work, baton.params, result[0].params, visit.task.layout.trainable)
    return result if reason is None else Drop(visit.client.id, visit.hop, reason)
