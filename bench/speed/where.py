"""Where the time of a visit goes, on one thread, as a profiler sees it: a table for docs/performance.md.

    python bench/speed/where.py [A B D E]

Networks that train natively have a second column: the C library and what is around it, with the visits of a round made
ready together, as `auto` has them. The profiler does not see into the library, which counts as one operator, timed at
the call. What is between operators is the interpreter, and all of the library that is not training.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from contenders.ours import MODELS, federation_of
from torch.profiler import ProfilerActivity, profile
from workloads import LR, WORKLOADS

from fedrelay import Sgd, Task
from fedrelay.engines import Inline, Stacked
from fedrelay.kernels.native import Found, found
from fedrelay.types import Baton, Chain

KINDS = {
    "products of matrices": ("mm", "addmm", "addmm_"),
    "torch's convolutions": ("mkldnn_convolution", "convolution_backward", "convolution"),
    "gathering batches": ("index_select",),
    "sums, copies and zeros": ("add", "add_", "sub", "mul", "copy_", "fill_", "zero_", "sum"),
    "pooling": ("max_pool2d_with_indices", "max_pool2d_with_indices_backward"),
}
LIBRARY, OTHER, BETWEEN = "in the C library", "other operators", "between operators"
ROWS = (LIBRARY, *KINDS, OTHER, BETWEEN)
SPEED = "examples/s on one thread"
LONG = 0.2
"""Seconds that are watched at a time: visits of a millisecond are repeated."""
TRIES = 3


class Watch:
    """A function that is called as ever, and the seconds spent in it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.seconds = function, 0.0

    def __call__(self, *arguments: object) -> Any:
        began = time.perf_counter()
        result = self._function(*arguments)
        self.seconds += time.perf_counter() - began
        return result


TRAINING = ("dense_descend", "dense_visits")
"""What of the library trains: pass by pass, or whole visits."""


@contextmanager
def watched_library() -> Iterator[list[Watch]]:
    """The library with a watch on what trains; without a library there is none."""
    known = found()
    library = known.library if isinstance(known, Found) else None
    before = {name: getattr(library, name) for name in TRAINING if library is not None}
    watches = {name: Watch(function) for name, function in before.items()}
    try:
        for name, watch in watches.items():
            setattr(library, name, watch)
        yield list(watches.values())
    finally:
        for name, function in before.items():
            setattr(library, name, function)


def shares(name: str, *, native: bool) -> dict[str, str]:
    """A column: what share of the time is spent where, and how fast it is without a profiler."""
    work = WORKLOADS[name]
    federation = federation_of(work)
    task = Task.of(MODELS[work.model], federation)
    engine = Stacked(federation, task, native=True, threads=1) if native else Inline(federation, task)
    start = Baton(engine.task.init(0))
    chains = [Chain(start, (client,)) for client in range(min(work.per_round, 20))]
    local = Sgd(epochs=work.epochs, batch=work.batch, lr=LR)

    def visits(times: int = 1) -> float:
        began = time.perf_counter()
        for _ in range(times):
            for _ in engine.run(local, chains, {}, 1):
                pass
        return time.perf_counter() - began

    visits()
    times = max(round(LONG / visits()), 1)
    seconds = min(visits(times) for _ in range(TRIES)) / times
    kinds = {f"aten::{operator}": kind for kind, operators in KINDS.items() for operator in operators}
    best = float("inf")
    for _ in range(TRIES):
        with watched_library() as library, profile(activities=[ProfilerActivity.CPU]) as profiled:
            watched = visits(times)
        if watched < best:  # nothing else was in the way
            best, spent = watched, Counter({LIBRARY: sum(one.seconds for one in library) / watched})
            for row in profiled.key_averages():
                spent[kinds.get(row.key, OTHER)] += row.self_cpu_time_total / watched / 1e6
    spent[BETWEEN] = 1 - spent.total()
    speed = len(chains) * work.size * work.epochs / seconds
    return {kind: f"{spent[kind]:.0%}" for kind in ROWS} | {SPEED: f"{speed:,.0f}"}


def dense(name: str) -> bool:
    """Whether there is a library, and the network is one that it trains."""
    federation = federation_of(WORKLOADS[name])
    return isinstance(found(), Found) and Task.of(MODELS[WORKLOADS[name].model], federation).native


def main() -> None:
    columns: dict[str, dict[str, str]] = {}
    for name in sys.argv[1:] or ["A", "B", "D", "E"]:
        print(f"{name} …", file=sys.stderr, flush=True)
        columns[name] = shares(name, native=False)
        if dense(name):
            columns[f"{name} natively"] = shares(name, native=True)
    print(f"| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
    for kind in (*ROWS, SPEED):
        print(f"| {kind} | {' | '.join(column[kind] for column in columns.values())} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
