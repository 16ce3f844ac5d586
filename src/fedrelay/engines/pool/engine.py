"""Worker processes of one thread each: chains run at once, and the results are the same bits as inline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

import torch

from fedrelay.data.federation import Federation
from fedrelay.engines.pool.dispatch import Bundles, cores, dispatch
from fedrelay.engines.pool.worker import Round
from fedrelay.engines.pool.workers import LazyPool
from fedrelay.engines.relay import LOG, Context, Simulation
from fedrelay.engines.simulating import Simulating
from fedrelay.errors import BadInput, within
from fedrelay.kernels.native import check as check_native
from fedrelay.kernels.workspace import Computing, Precision
from fedrelay.system.devices import every, title
from fedrelay.tasks import Task
from fedrelay.types import Chain, Outcome, Tree, Work


class Pool(Simulating):
    """Runs chains in `workers` processes (default: one per core), the same bits as inline with one thread.

    With `native`, networks of dense layers, with convolutions or LSTM layers before them or without, are trained
    outside the interpreter, and large convolutions of others filtered, to the bits of inline with `native`. Data and
    models lie in shared memory. A worker that dies is replaced and its chains are run again. Client memories beyond
    `memory_limit` megabytes are kept in a file. Workers end with the engine, or with `close`.

    On a `device` there is one worker for each: "cuda" is all GPUs of that kind, which must be alike, "cuda:1" one of
    them; models are merged on the first. `precision` and `compile` are as inline has them.
    """

    def __init__(
        self,
        federation: Federation,
        task: Task,
        seed: int = 0,
        *,
        workers: int | None = None,
        native: bool = False,
        memory_limit: float | None = None,
        device: str = "cpu",
        precision: Precision = "float32",
        compile: bool = False,
    ) -> None:
        if native:
            check_native()
        computing, devices = Computing.of(device, precision, compiled=compile, native=native), every(device)
        check_alike(devices)
        if workers is not None:
            within("workers", workers, least=1)
        self.federation, self.task, self.seed, self.native = federation, task, seed, native
        self.workers = workers or (cores() if computing.device.type == "cpu" else len(devices))
        self.sizes: Sequence[int] = federation.sizes
        self.prepared = federation.source.prepared
        self._asked = workers
        self.settle(computing, memory_limit, workers=True)
        self._pool = LazyPool(Simulation(federation, task, seed, native, computing), devices)

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        self._memory.discard()
        if self._asked is not None and self._asked > len(chains):
            count = len(chains)
            LOG.warning("%d workers for %d chain(s) in round %d: the others stay idle", self._asked, count, round)
            self._asked = None  # once is enough
        self.check_room(work, chains, round)
        current = Round(Context(work, shared, round, self._underway), chains)
        pool = self._pool.open(current, min(self.workers, len(chains)))
        yield from dispatch(pool, current, Bundles(chains, self.sizes, self.workers), self._memory)

    def close(self) -> None:
        """End the workers now; another round would start new ones."""
        self._pool.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def check_alike(devices: Sequence[torch.device]) -> None:
    """Refuse GPUs of different make: which of them a chain comes to is chance, and each has bits of its own."""
    titles = {str(device): title(device) for device in devices}
    if len(set(titles.values())) > 1:
        listed = ", ".join(f"{name} is a {what}" for name, what in titles.items())
        raise BadInput(f"these GPUs are not alike, so that bits would be chance ({listed}): name one of them")
