"""The plain engine: one chain after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedrelay.data.federation import Federation
from fedrelay.engines.memory import Memory
from fedrelay.engines.relay import Context, Simulation, operator_threads, relay
from fedrelay.engines.simulating import Simulating
from fedrelay.errors import within
from fedrelay.tasks import Task
from fedrelay.types import Chain, Outcome, Tree, Work

MOST_THREADS = 256
"""More than any machine makes use of; a system may fail to start as many as one can write."""


class Inline(Simulating):
    """Folds a Work along every chain in this process, with `threads` threads inside an operator.

    Threads change how an operator rounds, so their number belongs to what makes a run repeatable. Client memories
    beyond `memory_limit` megabytes are kept in a file.
    """

    def __init__(
        self,
        federation: Federation,
        task: Task,
        seed: int = 0,
        *,
        threads: int = 1,
        memory_limit: float | None = None,
    ) -> None:
        within("threads", threads, least=1, most=MOST_THREADS)
        self.federation, self.task, self.seed, self.threads = federation, task, seed, threads
        self.sizes: Sequence[int] = federation.sizes
        self.prepared = federation.source.prepared
        self._simulation = Simulation(federation, task, seed)
        self._memory = Memory(memory_limit)

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        self._memory.discard()
        context = Context(work, shared, round, self._underway)
        for chain in chains:
            with operator_threads(self.threads):
                outcome = relay(self._simulation, context, chain, self._memory)
            yield outcome
