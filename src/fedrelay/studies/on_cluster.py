"""Runs beside one another on a Ray cluster: each goes on from its checkpoint elsewhere if its machine is lost."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fedrelay.engines import Ray
from fedrelay.engines.cluster import joining
from fedrelay.engines.pool.dispatch import share_cores
from fedrelay.errors import BadInput, RunFailed
from fedrelay.types import Engine

T = TypeVar("T")

LIVES = 3
"""So often a run is begun again if its process or its machine is lost."""

PATIENCE = 30.0
"""Seconds that runs have to leave a checkpoint when they are stopped."""


class ClusterExecutor(Executor):
    """Calls functions in processes of a Ray cluster, which see the same folder as this one."""

    def __init__(self, ray: Any, cpus: int, marker: Path) -> None:
        self._ray = ray
        # A process does one run: whatever stopped it, or changed in it, is not there for the next.
        options = {"num_cpus": cpus, "max_retries": LIVES, "max_calls": 1, "scheduling_strategy": "SPREAD"}
        self._there = ray.remote(**options)(there)
        self._at = (str(Path.cwd()), str(marker.absolute()), cpus)
        self._going: dict[Future[Any], Any] = {}

    def submit(self, call: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self._going[future] = ref = self._there.remote(*self._at, call, args, named)
        ref.future().add_done_callback(partial(self._settle, future))
        return future

    def _settle(self, future: Future[Any], done: Future[tuple[Any, BaseException | None]]) -> None:
        """What came back, as if the call had been here."""
        self._going.pop(future, None)
        error = done.exception()
        if error is not None:
            future.set_exception(RunFailed(f"a run on the Ray cluster was lost: {joining.in_a_line(error)}"))
            return
        value, raised = done.result()
        if raised is None:
            future.set_result(value)
        else:
            future.set_exception(raised)

    def stop(self) -> None:
        """As Ctrl-C would: every run leaves a checkpoint, and no other begins."""
        going = list(self._going.values())
        for ref in going:
            self._ray.cancel(ref)
        if going:
            self._ray.wait(going, num_returns=len(going), timeout=PATIENCE)


@contextmanager
def workers(address: str, jobs: int | None, out: Path) -> Iterator[ClusterExecutor]:
    """Processes of the cluster for several runs at a time: `jobs`, or one on every CPU. `out` is where runs go."""
    ray = joining.join(address, talks=True)
    nodes = joining.nodes_of(ray)
    most = joining.workers_for(nodes, jobs, "jobs")
    each = max(min(sum(one.workers for one in nodes) // most, min(one.workers for one in nodes)), 1)
    out.mkdir(parents=True, exist_ok=True)
    marker = out / f".shared-{secrets.token_hex(8)}"
    marker.touch(exist_ok=False)
    executor = ClusterExecutor(ray, each, marker)
    try:
        yield executor
    except BaseException:
        executor.stop()
        raise
    finally:
        marker.unlink(missing_ok=True)


def there(
    folder: str, marker: str, cpus: int, call: Callable[..., T], args: Any, named: Any
) -> tuple[T | None, BaseException | None]:
    """On a machine of the cluster: the call's value, or what it raised."""
    try:
        if not Path(marker).exists():
            raise BadInput(
                f"{Path(marker).parent} is another folder, or none, on the machine {platform.node()}: runs on a "
                "cluster need a folder that all its machines share; without one, the engine ray spreads a single run"
            )
        os.chdir(folder)
        share_cores(cpus)
        return call(*args, **named), None
    except Exception as error:
        return None, error


def refuse_engine(engine: Engine) -> None:
    """Runs that are spread cannot spread their chains: they hold the CPUs that they would wait for."""
    if isinstance(engine, Ray):
        raise BadInput(
            "the engine ray spreads the chains of a run over the cluster, and --ray the runs: leave out one of them"
        )
