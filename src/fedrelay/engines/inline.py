"""The plain engine: one chain after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedrelay.data.federation import Federation
from fedrelay.engines.relay import Context, Simulation, relay
from fedrelay.engines.simulating import Simulating
from fedrelay.errors import within
from fedrelay.kernels.native import check as check_native
from fedrelay.kernels.workspace import Computing, Precision
from fedrelay.system.devices import deterministic
from fedrelay.system.threads import operator_threads
from fedrelay.tasks import Task
from fedrelay.types import Chain, Outcome, Tree, Work

MOST_THREADS = 256
"""More than any machine makes use of; a system may fail to start as many as one can write."""


class Inline(Simulating):
    """Folds a Work along every chain in this process, with `threads` threads inside an operator.

    Threads change how an operator rounds, so their number belongs to what makes a run repeatable. With `native`,
    networks of dense layers, with convolutions or LSTM layers before them or without, are trained outside the
    interpreter, and large convolutions of others are filtered there, which is quicker and rounds otherwise too; all
    else runs as ever. Client memories beyond `memory_limit` megabytes are kept in a file.

    `device` is where all of it happens ("cuda", "cuda:1", "mps", "xpu", or "auto" for what there is). `precision` and
    `compile` are for training steps alone: products in bf16, and networks compiled by torch; both round otherwise.
    """

    def __init__(
        self,
        federation: Federation,
        task: Task,
        seed: int = 0,
        *,
        threads: int = 1,
        native: bool = False,
        memory_limit: float | None = None,
        device: str = "cpu",
        precision: Precision = "float32",
        compile: bool = False,
    ) -> None:
        if native:
            check_native()
        computing = Computing.of(device, precision, compiled=compile, native=native)
        within("threads", threads, least=1, most=MOST_THREADS)
        self.federation, self.task, self.seed, self.threads = federation, task, seed, threads
        self.native = native
        self.sizes: Sequence[int] = federation.sizes
        self.prepared = federation.source.prepared
        self.settle(computing, memory_limit)
        self._simulation = Simulation(federation, task, seed, native, computing)

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        self._memory.discard()
        self.check_room(work, chains, round)
        context = Context(work, shared, round, self._underway)
        for chain in chains:
            with operator_threads(self.threads), deterministic(self.device):
                outcome = relay(self._simulation, context, chain, self._memory)
            yield outcome
