"""How fast a few first visits go, made in several ways: what the engine `auto` chooses by."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from fedrelay.data.examples import Examples
from fedrelay.engines.pool.dispatch import Stacks
from fedrelay.engines.relay import Context, Simulation, attempt, attempt_together
from fedrelay.system.devices import CPU, deterministic, finish
from fedrelay.system.threads import operator_threads
from fedrelay.types import Baton, Chain, Tree, Visit

MOST_EXAMPLES = 128
"""Clients are cut down to so many examples for measuring."""

MOST_CHAINS = 32
"""And only so many chains are looked at."""

SECONDS = 0.25
"""How long one way is measured."""


class Sample:
    """First visits of a round, cut short, to be made in several ways; nothing of them is kept."""

    def __init__(
        self, simulation: Simulation, context: Context, chains: Sequence[Chain], memories: Mapping[int, Tree]
    ) -> None:
        self.simulation = simulation
        self._work, self._longer = context.work.brief  # a visit may take hours
        self._chains = [replace(chain, clients=chain.clients[:1]) for chain in chains[:MOST_CHAINS]]
        self._visits: list[tuple[Baton, Visit]] = []
        heads = [chain.clients[0] for chain in self._chains]
        first = [simulation.visit(context, client, memories.get(client, {}), 0) for client in heads]
        # All by the same share: of clients that are unlike in size some wait for others where they train together.
        share = min(MOST_EXAMPLES / max(visit.client.size for visit in first), 1)
        for chain, visit in zip(self._chains, first, strict=True):
            cut = replace(visit.client, rows=visit.client.rows[: math.ceil(share * visit.client.size)])
            self._visits.append((chain.start, replace(visit, client=cut)))

    def one_by_one(self, threads: int, hopeless: float = float("inf")) -> float:
        """Seconds an example, one visit after another; if the first is hopeless, it is not looked at any longer."""
        with operator_threads(threads), deterministic(self.simulation.computing.device):
            began = time.perf_counter()
            size = self._one(0)  # the first one has more to do than the others
            finish(self.simulation.computing.device)
            took = time.perf_counter() - began
            given_up = took > max(SECONDS, hopeless / self._longer * size)
            return (took / size if given_up else timed(self._one, self._clock(threads))) * self._longer

    def _clock(self, threads: int) -> Callable[[], float]:
        in_memory = isinstance(self.simulation.federation.source.train, Examples)
        return clock_of(threads, self.simulation.computing.device, waits=not in_memory)

    def _one(self, number: int) -> int:
        baton, visit = self._visits[number % len(self._visits)]
        attempt(self._work, baton, visit)
        return visit.client.size

    def together(self, rows: int) -> float:
        """Seconds an example, so many visits at once: those of a stack such as the round would have."""
        stacks = Stacks(self._chains, self.simulation.federation.sizes, rows).all
        visits = ([self._visits[number] for number in stacks[len(stacks) // 2]] * rows)[:rows]
        batons, at = [baton for baton, _ in visits], [visit for _, visit in visits]
        size = sum(visit.client.size for visit in at)

        def all_of_them(number: int) -> int:
            attempt_together(self._work, batons, at)
            return size

        with operator_threads(1), deterministic(self.simulation.computing.device):
            all_of_them(0)
            return timed(all_of_them, self._clock(1)) * self._longer

    def in_threads(self, threads: int) -> bool:
        """Whether two visits at once are shared by threads, where there may be so many: not all work, or data, is made
        for that."""
        simulation = replace(self.simulation, threads=threads)
        batons = [baton for baton, _ in self._visits[:2]]
        visits = [replace(visit, workspaces=simulation.workspaces) for _, visit in self._visits[:2]]
        with operator_threads(1):
            attempt_together(self._work, batons, visits)
        return simulation.workspaces.threads_used > 1


def clock_of(threads: int, device: torch.device = CPU, *, waits: bool = False) -> Callable[[], float]:
    """What measures work of so many threads: of one, its own time on a core, which nobody else's work changes (where
    the system counts it finely). Several must be seen waiting for one another, and any for a device or, where it
    `waits` for its examples, for a disk."""

    def by_the_wall() -> float:
        finish(device)
        return time.perf_counter()

    fine = time.get_clock_info("thread_time").resolution < 1e-5
    return time.thread_time if threads == 1 and fine and device.type == "cpu" and not waits else by_the_wall


def timed(visits: Callable[[int], int], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds an example by this clock: the best of several turns, because others may use the machine too."""
    began, best, number = time.perf_counter(), float("inf"), 0
    while number < 3 or time.perf_counter() - began < SECONDS:
        start = clock()
        examples = visits(number)
        best = min(best, (clock() - start) / examples)
        number += 1
        if time.perf_counter() - began > 4 * SECONDS:
            break
    return best
