"""Where the time of a visit goes, on one thread, as a profiler sees it: a table for docs/performance.md.

python bench/speed/where.py [A B D E]
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import torch
from contenders.ours import MODELS, federation_of
from torch.profiler import ProfilerActivity, profile
from workloads import LR, WORKLOADS

from fedrelay import Sgd, Task
from fedrelay.engines import Inline
from fedrelay.types import Baton, Chain

KINDS = {
    "products of matrices": ("mm", "addmm", "addmm_"),
    "torch's convolutions": ("mkldnn_convolution", "convolution_backward", "convolution"),
    "gathering batches": ("index_select",),
    "sums, copies and zeros": ("add", "add_", "sub", "mul", "copy_", "fill_", "zero_", "sum"),
    "pooling": ("max_pool2d_with_indices", "max_pool2d_with_indices_backward"),
}
OTHER, BETWEEN, SPEED = "other operators", "between operators", "examples/s on one thread"


def shares(name: str) -> dict[str, str]:
    work = WORKLOADS[name]
    federation = federation_of(work)
    engine = Inline(federation, Task.of(MODELS[work.model], federation))
    start = Baton(engine.task.init(0))
    chains = [Chain(start, (client,)) for client in range(min(work.per_round, 20))]
    local = Sgd(epochs=work.epochs, batch=work.batch, lr=LR)

    def visits() -> float:
        began = time.perf_counter()
        for _ in engine.run(local, chains, {}, 1):
            pass
        return time.perf_counter() - began

    visits()
    seconds = min(visits() for _ in range(3))
    with profile(activities=[ProfilerActivity.CPU]) as found:
        watched = visits()
    kinds = {f"aten::{operator}": kind for kind, operators in KINDS.items() for operator in operators}
    spent: Counter[str] = Counter()
    for row in found.key_averages():
        spent[kinds.get(row.key, OTHER)] += row.self_cpu_time_total / watched / 1e6
    spent[BETWEEN] = 1 - sum(spent.values())
    speed = len(chains) * work.size * work.epochs / seconds
    return {kind: f"{spent[kind]:.0%}" for kind in (*KINDS, OTHER, BETWEEN)} | {SPEED: f"{speed:,.0f}"}


def main() -> None:
    names = sys.argv[1:] or ["A", "B", "D", "E"]
    columns = [shares(name) for name in names]
    print(f"| | {' | '.join(names)} |\n|---|{'--:|' * len(names)}")
    for kind in columns[0]:
        print(f"| {kind} | {' | '.join(column[kind] for column in columns)} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
