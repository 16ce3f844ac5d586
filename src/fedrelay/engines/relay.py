"""Folding a Work along a chain: what every engine does, wherever it does it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from fedrelay.data.federation import Federation
from fedrelay.engines.guard import spoiled
from fedrelay.engines.memory import Memory
from fedrelay.task import Task
from fedrelay.types import Baton, Chain, Drop, Outcome, Report, Tree, Visit, Work


@dataclass(frozen=True)
class Ground:
    """Where the relay is run: the clients, what is learned, and the seed."""

    federation: Federation
    task: Task
    seed: int

    def visit(self, errand: Errand, client: int, memory: Tree, hop: int) -> Visit:
        data = self.federation.client(client)
        return Visit(data, self.task, memory, errand.shared, errand.round, hop, self.seed)


@dataclass(frozen=True)
class Errand:
    """What all chains of a round have in common."""

    work: Work
    shared: Tree
    round: int


def relay(ground: Ground, errand: Errand, chain: Chain, memory: Memory) -> Outcome:
    """Fold the work along one chain; a client that is lost leaves the last good baton to the next."""
    baton, reports, dropped = chain.start, list[Report](), list[Drop]()
    for hop, client in enumerate(chain.clients):
        known = memory.get(client)
        visit = Visit(
            ground.federation.client(client), ground.task, known, errand.shared, errand.round, hop, ground.seed
        )
        result = attempt(errand.work, baton, visit)
        if isinstance(result, Drop):
            dropped.append(result)
            continue
        baton, after, report = result
        if after is not known:
            memory.stage(client, after)
        reports.append(report)
    return Outcome(chain, baton, tuple(reports), tuple(dropped))


def attempt(work: Work, baton: Baton, visit: Visit) -> tuple[Baton, Tree, Report] | Drop:
    """One visit; a client that raises or returns a spoiled model is dropped, with the reason."""
    try:
        result = work(baton, visit)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raised = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno} of {where.filename})"
        return Drop(visit.client.id, visit.hop, raised)
    reason = spoiled(work, baton.params, result[0].params)
    return result if reason is None else Drop(visit.client.id, visit.hop, reason)


@contextmanager
def operator_threads(count: int) -> Iterator[None]:
    """Inside, operators use this many threads, and numbers too small for full precision are taken as zero.

    Such numbers make a processor many times slower, and say nothing.
    """
    before, flushed = torch.get_num_threads(), flushes_denormals()
    if before != count:
        torch.set_num_threads(count)
    if not flushed:
        torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if not flushed:
            torch.set_flush_denormal(False)
        if before != count:
            torch.set_num_threads(before)


_TINY = torch.tensor(1e-30)


def flushes_denormals() -> bool:
    """Whether 1e-40 is taken as zero now, in this thread."""
    return float(_TINY * 1e-10) == 0.0
