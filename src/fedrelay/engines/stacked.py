"""Chains that advance together: one computation on a stack of models, for models too small to fill the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

import torch

from fedrelay.data.federation import Federation
from fedrelay.engines.inline import MOST_THREADS
from fedrelay.engines.pool.dispatch import Bundles, Stacks, cores, dispatch
from fedrelay.engines.pool.worker import Round
from fedrelay.engines.pool.workers import LazyPool
from fedrelay.engines.relay import LOG, Context, Simulation, relay, relay_together
from fedrelay.engines.simulating import Simulating
from fedrelay.errors import BadInput, within
from fedrelay.kernels.native import check as check_native
from fedrelay.kernels.workspace import Computing
from fedrelay.system.devices import deterministic
from fedrelay.system.threads import operator_threads
from fedrelay.tasks import Task
from fedrelay.types import Chain, Outcome, Tree, Work

ROOM = 1 << 21
"""A stack should fit into the caches near a core: about so many bytes of weights and gradients."""
ROOM_THERE, MOST_THERE = 1 << 30, 256
"""On a GPU, which is filled by what is wide: so many bytes of them, and so many models."""
NATIVE, ROOM_NATIVE = 64, 1 << 28
"""So many visits are made ready at once, natively, and about so many bytes of models and what optimisers keep."""


class Stacked(Simulating):
    """Advances up to `rows` chains at once as one computation: equal to inline within 1e-4, relative, after a visit.

    Work or models that cannot be stacked run as inline. Default rows: as many as fit near a core, or on a GPU up to
    256. With more than one of `workers`, stacks are given out to processes of one thread each; the results do not
    depend on how many. On a `device` ("cuda", "cuda:1", "mps", "xpu", "auto" for what there is) there is one process.

    With `native`, networks of dense layers, with convolutions or LSTM layers before them or without, are trained
    outside the interpreter, to the bits of inline with `native`. So many `threads` of this process train at once, one
    for each core if you do not say; the results do not depend on how many.
    """

    def __init__(
        self,
        federation: Federation,
        task: Task,
        seed: int = 0,
        *,
        rows: int | None = None,
        workers: int = 1,
        threads: int | None = None,
        native: bool = False,
        memory_limit: float | None = None,
        device: str = "cpu",
    ) -> None:
        if native:
            check_native()
        within("workers", workers, least=1)
        computing = Computing.of(device, native=native)
        if workers > 1 and computing.device.type != "cpu":
            raise BadInput(f"stacks are computed by one process on {device}: leave workers out, or use the engine pool")
        if rows is not None:
            within("rows", rows, least=2)
        if threads is not None:
            within("threads", threads, least=1, most=MOST_THREADS)
            if threads > 1 and (workers > 1 or not native):
                raise BadInput(
                    "threads train what is made outside the interpreter, in one process: say native = true, and leave "
                    "workers out"
                )
        self.federation, self.task, self.seed, self.workers = federation, task, seed, workers
        self.native = native
        self.threads = threads or (cores() if native and workers == 1 else 1)
        self.sizes: Sequence[int] = federation.sizes
        self.prepared = federation.source.prepared
        self.rows = rows or rows_of(task, computing.device, native=native)
        self.settle(computing, memory_limit)
        self._simulation = Simulation(federation, task, seed, native, computing, self.threads)
        self._pool = LazyPool(self._simulation)
        self._warned = False

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        self._memory.discard()
        context = Context(work, shared, round, self._underway)
        # What happens before the first round is the same everywhere.
        together = round > 0 and work.stacks(self.task.natively if self.native else self.task)
        if round and not together and not self._warned:
            LOG.warning("%s with %s cannot be stacked: it runs chain by chain", type(work).__name__, self.task.model)
            self._warned = True
        self.check_room(work, chains, round, rows=min(self.rows, len(chains)) if together else 1)
        if self.workers == 1:
            yield from self._here(context, chains, together=together)
            return
        current = Round(context, chains, together)
        queue = Stacks(chains, self.sizes, self.rows) if together else Bundles(chains, self.sizes, self.workers)
        pool = self._pool.open(current, min(self.workers, len(queue)))
        yield from dispatch(pool, current, queue, self._memory)

    def _here(self, context: Context, chains: Sequence[Chain], *, together: bool) -> Iterator[Outcome]:
        if not together:
            for chain in chains:
                with operator_threads(1), deterministic(self.device):
                    outcome = relay(self._simulation, context, chain, self._memory)
                yield outcome
            return
        found: dict[int, Outcome] = {}
        for numbers in Stacks(chains, self.sizes, self.rows).all:
            with operator_threads(1), deterministic(self.device):
                outcomes = relay_together(
                    self._simulation, context, [chains[number] for number in numbers], self._memory
                )
            found.update(zip(numbers, outcomes, strict=True))
        for number in range(len(chains)):
            yield found.pop(number)

    def close(self) -> None:
        """End the workers, if there are any; another round would start new ones."""
        self._pool.close()

    def __enter__(self) -> Stacked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def rows_of(task: Task, device: torch.device, *, native: bool = False) -> int:
    """How many models fill a core or a GPU; natively each is trained alone, so as many as make threads end together."""
    if native and task.trains_natively:
        return min(max(ROOM_NATIVE // (12 * task.layout.size), 2), NATIVE)
    room, most = (ROOM, 32) if device.type == "cpu" else (ROOM_THERE, MOST_THERE)
    return min(max(room // (8 * task.layout.size), 2), most)
