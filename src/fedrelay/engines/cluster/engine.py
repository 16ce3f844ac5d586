"""Worker processes on the machines of a Ray cluster: chains run at once, to the same bits as inline."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType

from fedrelay.data.federation import Federation
from fedrelay.engines.cluster import joining
from fedrelay.engines.cluster.workers import ClusterWorkers
from fedrelay.engines.memory import Memory
from fedrelay.engines.pool.dispatch import Bundles, dispatch
from fedrelay.engines.pool.worker import Round
from fedrelay.engines.relay import Context, Simulation
from fedrelay.engines.simulating import Simulating
from fedrelay.errors import BadInput, within
from fedrelay.tasks import Task
from fedrelay.types import Chain, Outcome, Tree, Work


class Ray(Simulating):
    """Runs chains on a Ray cluster, in `workers` processes (default: one per CPU), the same bits as inline with one
    thread.

    The `address` is "local" (a cluster of this machine alone, which ends with the program), "auto" (the one that this
    machine belongs to) or HOST:PORT of a cluster's head. The data set is placed once on every machine. A worker that is
    lost, with its machine or alone, is replaced and its chains are run again. Client memories beyond `memory_limit`
    megabytes are kept in a file. Workers end with the engine, or with `close`. The only `device` is "cpu".
    """

    def __init__(
        self,
        federation: Federation,
        task: Task,
        seed: int = 0,
        *,
        address: str = "local",
        workers: int | None = None,
        memory_limit: float | None = None,
        device: str = "cpu",
    ) -> None:
        if device != "cpu":
            raise BadInput(
                f'ray computes on processors, not on device = "{device}": leave device out, or use the engine pool, '
                "which has one worker for every GPU of this machine"
            )
        if workers is not None:
            within("workers", workers, least=1)
        joining.check_installed()
        joining.check_address(address)
        self.federation, self.task, self.seed, self.address, self.workers = federation, task, seed, address, workers
        self.sizes: Sequence[int] = federation.sizes
        self.prepared = federation.source.prepared
        self._memory = Memory(memory_limit)
        self._workers: ClusterWorkers | None = None
        self._end: weakref.finalize[[], Ray] | None = None

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        self._memory.discard()
        current = Round(Context(work, shared, round, self._underway), chains)
        workers = self._joined()
        workers.open(current, min(workers.most, len(chains)))
        yield from dispatch(workers, current, Bundles(chains, self.sizes, workers.most), self._memory)

    def _joined(self) -> ClusterWorkers:
        """The workers; the first time, the cluster is joined."""
        if self._workers is None or self._workers.owner != os.getpid():  # in a fork, they are those of another
            self._workers = ClusterWorkers(
                Simulation(self.federation, self.task, self.seed), self.address, self.workers
            )
            self._end = weakref.finalize(self, self._workers.end)  # also at the end of the program
        return self._workers

    def close(self) -> None:
        """End the workers now; another round would hire new ones. The connection to the cluster lasts."""
        if self._end is not None:
            self._end()
        self._workers = self._end = None

    def __enter__(self) -> Ray:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
