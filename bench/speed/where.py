"""Where the time of a visit goes, operator by operator, on one thread.

python bench/speed/where.py [A B D E]
"""

from __future__ import annotations

import sys
import time

import torch
from contenders.ours import MODELS, federation_of
from torch.profiler import ProfilerActivity, profile
from workloads import LR, WORKLOADS

from fedrelay import Sgd, Task
from fedrelay.engines import Inline
from fedrelay.types import Baton, Chain

MOST = 9


def main() -> None:
    for name in sys.argv[1:] or ["A", "B", "D", "E"]:
        work = WORKLOADS[name]
        federation = federation_of(work)
        engine = Inline(federation, Task.of(MODELS[work.model], federation))
        start = Baton(engine.task.init(0))
        chains = [Chain(start, (client,)) for client in range(min(work.per_round, 20))]
        local = Sgd(epochs=work.epochs, batch=work.batch, lr=LR)

        def visits(local: Sgd = local, chains: list[Chain] = chains, engine: Inline = engine) -> float:
            began = time.perf_counter()
            for _ in engine.run(local, chains, {}, 1):
                pass
            return time.perf_counter() - began

        visits()
        seconds = min(visits() for _ in range(3))
        with profile(activities=[ProfilerActivity.CPU]) as found:
            watched = visits()
        examples = len(chains) * work.size * work.epochs
        rate = examples * work.flops / seconds / 1e9
        print(f"\n{name}: {work.about}\n{examples / seconds:,.0f} examples/s on one thread, {rate:.0f} GFLOPS\n")
        print("| operator | share |\n|---|--:|")
        rows = sorted(found.key_averages(), key=lambda row: -row.self_cpu_time_total)
        shares = [(row.key.removeprefix("aten::"), row.self_cpu_time_total / watched / 1e6) for row in rows]
        for key, share in shares[:MOST]:
            print(f"| `{key}` | {share:.0%} |")
        rest = sum(share for _, share in shares[MOST:])
        print(f"| {len(shares) - MOST} others | {rest:.0%} |")
        print(f"| between operators | {1 - sum(share for _, share in shares):.0%} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
