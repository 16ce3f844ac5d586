"""G: memory and seconds per round as the number of clients grows, with and without client memory.

Every row is a process of its own, so that its peak is its own. Stateful clients keep a vector as large as the model
(SCAFFOLD) and spill beyond 64 MB.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time

from fedrelay import Federation, Sgd, Task, advance, start
from fedrelay.algorithms import fedavg, scaffold
from fedrelay.data import Iid, synthetic
from fedrelay.engines import Inline
from fedrelay.models import Mlp

PER_ROUND, ROUNDS = 20, 60


def one(clients: int, memory: bool) -> dict[str, float]:
    source = synthetic(examples=200_000, shape=(32,), test_examples=2)
    local = Sgd(batch=2)
    few = Federation.split(source, Iid(), 100)  # what is loaded on first use is not the clients'
    trained(few, scaffold(local=local, fraction=0.2) if memory else fedavg(local=local, fraction=0.2), 3)
    before = peak()
    federation = Federation.split(source, Iid(), clients)
    fraction = PER_ROUND / clients
    algorithm = scaffold(local=local, fraction=fraction) if memory else fedavg(local=local, fraction=fraction)
    seconds = trained(federation, algorithm, ROUNDS)
    return {"clients": clients, "memory": memory, "megabytes": peak() - before, "seconds": seconds}


def trained(federation: Federation, algorithm, rounds: int) -> float:
    engine = Inline(federation, Task.of(Mlp(hidden=(100,)), federation), memory_limit=64.0)
    state, times = start(algorithm, engine), []
    for _ in range(rounds):
        began = time.perf_counter()
        state = advance(algorithm, engine, state)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(one(int(sys.argv[1]), sys.argv[2] == "memory")))
        return
    rows = []
    for memory in ("stateless", "memory"):
        for clients in (1_000, 10_000, 100_000):
            command = [sys.executable, __file__, str(clients), memory]
            rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
