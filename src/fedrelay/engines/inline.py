"""The plain engine: one chain after another, in this process."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from fedrelay.data.federation import Federation
from fedrelay.engines.memory import Memory
from fedrelay.errors import within
from fedrelay.task import Task
from fedrelay.types import Baton, Chain, Drop, Outcome, Report, Tree, Visit, Work
from fedrelay.vectors import is_finite


class Inline:
    """Folds a Work along every chain in this process, with `threads` threads inside an operator.

    Threads change how an operator rounds, so their number belongs to what makes a run repeatable.
    """

    def __init__(self, federation: Federation, task: Task, seed: int = 0, *, threads: int = 1) -> None:
        within("threads", threads, least=1)
        self.federation, self.task, self.seed, self.threads = federation, task, seed, threads
        self.sizes: Sequence[int] = federation.sizes
        self._memory = Memory()

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        self._memory.discard()
        for chain in chains:
            with operator_threads(self.threads):
                outcome = self._relay(work, chain, shared, round)
            yield outcome

    def _relay(self, work: Work, chain: Chain, shared: Tree, round: int) -> Outcome:
        baton, reports, dropped = chain.start, list[Report](), list[Drop]()
        for hop, client in enumerate(chain.clients):
            memory = self._memory.get(client)
            visit = Visit(self.federation.client(client), self.task, memory, shared, round, hop, self.seed)
            result = attempt(work, baton, visit)
            if isinstance(result, Drop):
                dropped.append(result)
                continue
            baton, memory, report = result
            self._memory.stage(client, memory)
            reports.append(report)
        return Outcome(chain, baton, tuple(reports), tuple(dropped))

    def commit(self, round: int, /) -> None:
        self._memory.commit(round)

    def memories(self) -> tuple[int, Mapping[int, Tree]]:
        return self._memory.round, self._memory.all()

    def remember(self, round: int, memories: Mapping[int, Tree], /) -> None:
        self._memory.restore(memories, round)


def attempt(work: Work, baton: Baton, visit: Visit) -> tuple[Baton, Tree, Report] | Drop:
    """One visit; a client that raises or returns a non-finite model is dropped, with the reason."""
    try:
        result = work(baton, visit)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno} of {where.filename})"
        return Drop(visit.client.id, visit.hop, reason)
    if not is_finite(result[0].params):
        return Drop(visit.client.id, visit.hop, "returned a non-finite model (a smaller lr or clip may help)")
    return result


@contextmanager
def operator_threads(count: int) -> Iterator[None]:
    """Inside, operators use this many threads."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
