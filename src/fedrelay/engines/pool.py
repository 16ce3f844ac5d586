"""Worker processes of one thread each: chains run at once, and the results are the same bits as inline."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType

from fedrelay.data.federation import Federation
from fedrelay.engines.crew import LOG, Crew
from fedrelay.engines.memory import Memory
from fedrelay.engines.relay import Errand, Ground
from fedrelay.engines.worker import Done, Job, Round
from fedrelay.errors import RunFailed, within
from fedrelay.task import Task
from fedrelay.types import Baton, Chain, Outcome, Tree, Work

DEATHS = 3
"""So many workers may die over a chain before the run stops."""


class Pool:
    """Runs chains in `workers` processes (default: one per core), the same bits as inline with one thread.

    Data and models lie in shared memory. A worker that dies is replaced and its chains are run again. Client memories
    beyond `memory_limit` megabytes are kept in a file. Workers end with the engine, or with `close`.
    """

    def __init__(
        self,
        federation: Federation,
        task: Task,
        seed: int = 0,
        *,
        workers: int | None = None,
        memory_limit: float | None = None,
    ) -> None:
        if workers is not None:
            within("workers", workers, least=1)
        self.federation, self.task, self.seed = federation, task, seed
        self.workers = workers or cores()
        self.sizes: Sequence[int] = federation.sizes
        self._asked = workers
        self._memory = Memory(memory_limit)
        self._crew: Crew | None = None
        self._end: weakref.finalize[[], Pool] | None = None

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        self._memory.discard()
        crew = self._crew or self._hire()
        if self._asked is not None and self._asked > len(chains):
            count = len(chains)
            LOG.warning("%d workers, but %d chains in round %d: the others stay idle", self._asked, count, round)
            self._asked = None  # once is enough
        crew.open(Round(Errand(work, shared, round), chains), min(self.workers, len(chains)))
        try:
            yield from self._outcomes(crew, chains)
        finally:  # also when the consumer has seen enough, or Ctrl-C
            crew.rest()

    def _hire(self) -> Crew:
        self._crew = Crew(Ground(self.federation, self.task, self.seed))
        self._end = weakref.finalize(self, self._crew.end)
        return self._crew

    def _outcomes(self, crew: Crew, chains: Sequence[Chain]) -> Iterator[Outcome]:
        """In the order of the chains, whichever ends first."""
        queue = Queue(chains, self.sizes, self.workers)
        found: dict[int, Outcome] = {}
        following = 0
        while following < len(chains):
            for one in crew.idle():
                numbers = queue.take()
                if numbers:
                    crew.give(one, Job(numbers, self._known(chains, numbers)))
            for job, reply in crew.replies():
                if reply is None:
                    queue.put_back(job.numbers)
                    continue
                for client, memory in reply.memories.items():
                    self._memory.stage(client, memory)
                found.update((done.number, outcome(chains[done.number], done)) for done in reply.done)
            while following in found:
                yield found.pop(following)
                following += 1

    def _known(self, chains: Sequence[Chain], numbers: Sequence[int]) -> dict[int, Tree]:
        """What the clients of these chains keep."""
        clients = {client for number in numbers for client in chains[number].clients}
        known = ((client, self._memory.get(client)) for client in sorted(clients))
        return {client: memory for client, memory in known if memory}

    def commit(self, round: int, /) -> None:
        self._memory.commit(round)

    def memories(self) -> tuple[int, Mapping[int, Tree]]:
        return self._memory.round, self._memory.all()

    def remember(self, round: int, memories: Mapping[int, Tree], /) -> None:
        self._memory.restore(memories, round)

    def close(self) -> None:
        """End the workers now; another round would start new ones."""
        if self._end is not None:
            self._end()
        self._crew = self._end = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Queue:
    """Which chains a worker gets next: the longest first, several at once while many are left.

    A short chain costs less than the way to another process, so they travel in bundles; the last ones go singly, so
    that all workers end together.
    """

    def __init__(self, chains: Sequence[Chain], sizes: Sequence[int], workers: int) -> None:
        self._chains, self._workers = chains, workers
        self._cost = [sum(sizes[client] for client in chain.clients) for chain in chains]
        self._waiting = deque(sorted(range(len(chains)), key=lambda number: -self._cost[number]))
        self._left = sum(self._cost)
        self._deaths = [0] * len(chains)

    def take(self) -> tuple[int, ...]:
        """The next chains, by number; none if none are left."""
        taken: list[int] = []
        room = self._left / (2 * self._workers)
        while self._waiting:
            number = self._waiting[0]
            alone = self._deaths[number] > 0  # a chain that ends workers must not take others with it
            if taken and (alone or self._cost[number] > room):
                break
            taken.append(self._waiting.popleft())
            room -= self._cost[number]
            self._left -= self._cost[number]
            if alone:
                break
        return tuple(taken)

    def put_back(self, numbers: Sequence[int]) -> None:
        """Their worker has died."""
        for number in reversed(numbers):
            self._deaths[number] += 1
            if self._deaths[number] >= DEATHS:
                clients = ", ".join(map(str, self._chains[number].clients[:10]))
                raise RunFailed(
                    f"{DEATHS} worker processes ended over the chain of client {clients}: perhaps memory is short "
                    "(fewer workers need less), or something its work calls crashes (the engine inline shows it)"
                )
            self._waiting.appendleft(number)
            self._left += self._cost[number]


def outcome(chain: Chain, done: Done) -> Outcome:
    """What a worker said, put together with what it need not say."""
    params = chain.start.params if done.params is None else done.params
    return Outcome(chain, Baton(params, done.weight), done.reports, done.dropped)


def cores() -> int:
    """How many this process may use."""
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available is not None else os.cpu_count() or 1
