"""Who runs which chains: giving them out to workers, and bringing back what became of them in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import torch

from fedrelay.engines.memory import Memory
from fedrelay.engines.pool.worker import Done, Job, Reply, Round
from fedrelay.engines.pool.workers import Lost
from fedrelay.errors import BadInput, RunFailed
from fedrelay.system.cores import CORES, NUMBER, told, usable
from fedrelay.system.threads import operator_threads
from fedrelay.types import Baton, Chain, Outcome, Tree

DEATHS = 3
"""So many workers may be lost over a chain, or over a stack of them, before the run stops."""


W = TypeVar("W")
"""A worker, as those who give it jobs know it."""


class Workers(Protocol[W]):
    """Workers that run chains, wherever they are."""

    def idle(self) -> Sequence[W]:
        """Those that could do a job now."""
        ...

    def give(self, one: W, job: Job, /) -> None:
        """Let one of them do this."""
        ...

    def replies(self) -> Iterator[tuple[Job, Reply | Lost]]:
        """Wait until something comes: jobs with their replies, or with the loss of their worker."""
        ...

    def rest(self) -> None:
        """Nobody waits any longer for those that are at work."""
        ...


class Queue(Protocol):
    """Chains that wait for a worker, by number."""

    def __len__(self) -> int:
        """How many workers could be busy at once."""
        ...

    def take(self) -> tuple[int, ...]:
        """Those for the next worker; none if none are left."""
        ...

    def put_back(self, numbers: Sequence[int], client: int | None = None, /) -> None:
        """Their worker was lost: at this client, or it is not known where."""
        ...


def dispatch(pool: Workers[W], current: Round, queue: Queue, memory: Memory) -> Iterator[Outcome]:
    """One outcome per chain, in the order of the chains, whichever ends first."""
    chains, found, following = current.chains, dict[int, Outcome](), 0
    try:
        while following < len(chains):
            with operator_threads(1):  # a second one would only take its core from a worker
                for one in pool.idle():
                    numbers = queue.take()
                    if numbers:
                        pool.give(one, Job(numbers, known(memory, chains, numbers)))
                for job, reply in pool.replies():
                    if isinstance(reply, Lost):
                        queue.put_back(job.numbers, reply.client)
                        continue
                    for client, tree in reply.memories.items():
                        memory.stage(client, tree)
                    found.update((done.number, outcome(chains[done.number], done)) for done in reply.done)
            while following in found:
                yield found.pop(following)
                following += 1
    finally:  # also when the consumer has seen enough, or Ctrl-C
        pool.rest()


def known(memory: Memory, chains: Sequence[Chain], numbers: Sequence[int]) -> dict[int, Tree]:
    """What the clients of these chains keep."""
    clients = sorted({client for number in numbers for client in chains[number].clients})
    return {client: tree for client in clients if (tree := memory.get(client))}


def outcome(chain: Chain, done: Done) -> Outcome:
    """What a worker said, put together with what it need not say."""
    params = chain.start.params if done.params is None else done.params
    return Outcome(chain, Baton(params, done.weight), done.reports, done.dropped)


class Bundles:
    """The longest chains first, several at once while many are left.

    A short chain costs less than the way to another process, so they travel in bundles; the last ones go singly, so
    that all workers end together.
    """

    def __init__(self, chains: Sequence[Chain], sizes: Sequence[int], workers: int) -> None:
        self._chains, self._workers = chains, workers
        self._cost = costs(chains, sizes)
        self._waiting = deque(sorted(range(len(chains)), key=lambda number: -self._cost[number]))
        self._left = sum(self._cost)
        self._suspects: dict[int, list[int | None]] = {}  # the clients at which workers were lost, where it ran alone

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> tuple[int, ...]:
        taken: list[int] = []
        room = self._left / (2 * self._workers)
        while self._waiting:
            number = self._waiting[0]
            alone = number in self._suspects  # a chain that ends workers must not take others with it
            if taken and (alone or self._cost[number] > room):
                break
            taken.append(self._waiting.popleft())
            room -= self._cost[number]
            self._left -= self._cost[number]
            if alone:
                break
        return tuple(taken)

    def put_back(self, numbers: Sequence[int], client: int | None = None, /) -> None:
        for number in reversed(numbers):
            at = self._suspects.setdefault(number, [])
            if len(numbers) == 1:  # of several at once nobody knows which it was
                at.append(client)
            if len(at) >= DEATHS:
                raise deadly([self._chains[number]], at)
            self._waiting.appendleft(number)
            self._left += self._cost[number]


class Stacks:
    """Chains that advance together: at most `rows` of them, of like length, as equal in number as can be.

    Which they are depends on the chains alone and not on the workers, so neither do the results.
    """

    def __init__(self, chains: Sequence[Chain], sizes: Sequence[int], rows: int) -> None:
        self._chains = chains
        cost = costs(chains, sizes)
        order = sorted(range(len(chains)), key=lambda number: (-len(chains[number].clients), -cost[number]))
        count = -(-len(chains) // rows)
        cuts = [len(chains) * part // count for part in range(count + 1)]
        self.all = [tuple(order[cuts[part] : cuts[part + 1]]) for part in range(count)]
        self._waiting = deque(self.all)
        self._lost: dict[tuple[int, ...], int] = {}  # how many workers, by stack

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> tuple[int, ...]:
        return self._waiting.popleft() if self._waiting else ()

    def put_back(self, numbers: Sequence[int], client: int | None = None, /) -> None:
        stack = tuple(numbers)
        self._lost[stack] = self._lost.get(stack, 0) + 1
        if self._lost[stack] >= DEATHS:
            raise deadly([self._chains[number] for number in stack], [client] * DEATHS)
        self._waiting.appendleft(stack)


def costs(chains: Sequence[Chain], sizes: Sequence[int]) -> list[int]:
    """What a chain is expected to take: its examples."""
    return [sum(sizes[client] for client in chain.clients) for chain in chains]


def deadly(chains: Sequence[Chain], at: Sequence[int | None]) -> RunFailed:
    """Says what is known of whom it may be, and no more."""
    seen = sorted({client for client in at if client is not None})
    clients = ", ".join(str(client) for client in [client for chain in chains for client in chain.clients][:10])
    if len(chains) > 1:
        who = f"{len(chains)} chains that advance together, of clients {clients} …: which of them it is cannot be told"
    else:
        where = f", at client {', '.join(map(str, seen))}" if seen else ""
        who = f"the chain of client {clients}{where}"
    return RunFailed(
        f"{DEATHS} worker processes ended over {who}; perhaps memory is short (fewer workers "
        "need less), or something its work calls crashes (the engine inline shows it)"
    )


def cores() -> int:
    """How many this process may use: as many as the user says, or else as are ours (`system.cores`)."""
    if told() and not NUMBER.fullmatch(told()):
        raise BadInput(f"{CORES} must be a whole number from 1 to 9999, not {told()!r:.100}")
    return usable()


def within_cores() -> None:
    """Let operators have no more threads than there are cores for them: torch does not know of quotas, and threads that
    share the time of fewer cores wait for one another."""
    if torch.get_num_threads() > cores():
        torch.set_num_threads(cores())


def share_cores(count: int) -> None:
    """Let this process and those it starts use so many."""
    os.environ[CORES] = str(count)
    torch.set_num_threads(count)
