"""G: what clients cost, as their number grows to ten million: seconds to the first round, bytes each, time of a round.

Every row is a run from a configuration file in a process of its own, whose code is loaded before it begins (a run of
100 clients). Bytes a client are what the resident set has grown by when the last round has ended, without the examples
themselves (two of four numbers each): who has which examples, how many, and what the plan knows of everybody. Stateful
clients keep a vector as large as the model (SCAFFOLD) and spill beyond 8 MB. The last row is a run of 1,000 rounds.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fedrelay import config
from fedrelay.runs import checkpoint

COUNTS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
STATEFUL = COUNTS[:3]
SIZE, PER_ROUND, ROUNDS, LIMIT = 2, 20, 100, 8.0
STEADY = 100_000
"""So many clients are there in the long run."""
LONG = 1_000


def tables(clients: int, rounds: int, *, memory: bool) -> dict[str, Any]:
    engine = {"name": "inline", **({"memory_limit": LIMIT} if memory else {})}
    return {
        "rounds": rounds,
        "data": {"name": "synthetic", "examples": clients * SIZE, "shape": [4], "test_examples": 2, "clients": clients},
        "model": {"name": "mlp", "hidden": [100]},
        "local": {"batch": SIZE},
        "algorithm": {"name": "scaffold" if memory else "fedavg", "fraction": PER_ROUND / clients},
        "evaluate": {"every": rounds},
        "engine": engine,
    }


def one(clients: int, rounds: int, *, memory: bool) -> dict[str, Any]:
    """A run: what it took, and what it left in memory and on disk."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        experiment = config.build(tables(clients, rounds, memory=memory))
        recorder = experiment.record(Path(folder) / "run")
        seconds, at = [], dict[int, float]()
        for log in recorder.run():
            if log.round == 1:
                first = time.perf_counter() - began
            seconds.append(log.seconds)
            if log.round in (ROUNDS, rounds):
                at[log.round] = resident()
        train = experiment.federation.source.train
        saved = checkpoint.files_in(Path(folder) / "run" / checkpoint.FOLDER)[-1]
        return {
            "clients": clients,
            "memory": memory,
            "rounds": rounds,
            "first": first,
            "seconds": statistics.median(seconds),
            "resident": at,
            "examples": (train.x.nbytes + train.y.nbytes) / 2**20,
            "peak": peak(),
            "checkpoint": saved.stat().st_size,
        }


def resident() -> float:
    """Megabytes in memory now; where the system does not say, the most so far."""
    return status("VmRSS") or peak()


def peak() -> float:
    """The most megabytes so far."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return status("VmHWM") or used / (1024 if sys.platform == "linux" else 1024**2)


def status(name: str) -> float | None:
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), None)


def measured(clients: int, rounds: int, *, memory: bool) -> dict[str, Any]:
    """A row, in this process: what is loaded on first use is not the clients'."""
    one(100, 3, memory=memory)
    before = resident()
    row = one(clients, rounds, memory=memory)
    left = row["resident"][rounds] - before - row["examples"]
    return {**row, "bytes": left * 2**20 / clients, "most": (row["peak"] - before - row["examples"]) * 2**20 / clients}


def main() -> None:
    if len(sys.argv) > 1:
        clients, rounds, memory = sys.argv[1:]
        print(json.dumps(measured(int(clients), int(rounds), memory=memory == "memory")))
        return
    wanted = [(clients, ROUNDS, "stateless") for clients in COUNTS]
    wanted += [(clients, ROUNDS, "memory") for clients in STATEFUL]
    wanted.append((STEADY, LONG, "stateless"))
    rows = []
    for clients, rounds, memory in wanted:
        command = [sys.executable, __file__, str(clients), str(rounds), memory]
        rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        print(
            f"  {clients:,} clients, {rounds} rounds, {memory}: {rows[-1]['first']:.2f} s to the first", file=sys.stderr
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
