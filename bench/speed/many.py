"""G: memory and seconds per round as the number of clients grows, with and without client memory.

Every row is a process of its own, so that its peak is its own. All clients have the same number of examples, however
many clients there are, and everybody's data is there in every row, so that rows differ in nothing but the clients.
Stateful clients keep a vector as large as the model (SCAFFOLD) and spill beyond 8 MB.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fedrelay import Federation, Sgd, Task, advance, start
from fedrelay.algorithms import fedavg, scaffold
from fedrelay.data import synthetic
from fedrelay.engines import Inline
from fedrelay.models import Mlp

COUNTS = (1_000, 10_000, 100_000)
SIZE, PER_ROUND, ROUNDS, LIMIT = 10, 20, 100, 8.0


def one(clients: int, memory: bool) -> dict[str, float]:
    source = synthetic(examples=COUNTS[-1] * SIZE, shape=(32,), test_examples=2)
    order = np.random.default_rng(0).permutation(COUNTS[-1] * SIZE)
    method, local = scaffold if memory else fedavg, Sgd(batch=SIZE)

    def trained(clients: int, rounds: int) -> float:
        federation = Federation.of(source, np.split(order[: clients * SIZE], clients))
        engine = Inline(federation, Task.of(Mlp(hidden=(100,)), federation), memory_limit=LIMIT)
        algorithm = method(local=local, fraction=PER_ROUND / clients)
        state, times = start(algorithm, engine), []
        for _ in range(rounds):
            began = time.perf_counter()
            state = advance(algorithm, engine, state)
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    trained(100, 3)  # what is loaded on first use is not the clients'
    before = peak(anew=True)
    seconds = trained(clients, ROUNDS)
    return {"clients": clients, "memory": memory, "megabytes": peak() - before, "seconds": seconds}


def peak(*, anew: bool = False) -> float:
    """The most megabytes so far; where the system can, since it was last asked for `anew`."""
    clear, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not clear.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)
    if anew:
        clear.write_text("5")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(one(int(sys.argv[1]), sys.argv[2] == "memory")))
        return
    rows = []
    for memory in ("stateless", "memory"):
        for clients in COUNTS:
            command = [sys.executable, __file__, str(clients), memory]
            rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
