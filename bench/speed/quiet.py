"""Whether the machine is quiet enough for its figures to be published.

Three things are looked at: the load average, what share of its time a process per core gets while all of them only
count, and how much the time of one and the same product of matrices varies (the neighbours of a virtual machine take
time that no process is missing).

    python bench/speed/quiet.py

says what it finds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import machine

LOAD = 0.25
"""At most so many processes ran or waited, for each core, over the last minute."""
SHARE = 0.95
"""Every process gets at least so much of its core."""
SPREAD = 0.25
"""Of the times of a product, the slowest tenth begins at most so far above the median."""
SECONDS = 1.0
"""Of counting, and again of multiplying."""
WAIT, PAUSE = 180.0, 10.0
"""So many seconds a machine has to calm down, and it is looked at so often."""
SIDE = 384


@dataclass(frozen=True)
class Found:
    """What was measured; no load where the system does not tell."""

    cores: int
    load: float | None
    share: float
    spread: float

    def complaints(self, *, load: bool = True) -> list[str]:
        """What is not quiet about it, in words; the load only before the benchmark itself makes one."""
        result = []
        most = LOAD * self.cores
        if load and self.load is not None and self.load > most:
            result.append(f"the load average of the last minute is {self.load:.2f}, and may be {most:.2f}")
        if self.share < SHARE:
            result.append(f"a process that only counts gets {self.share:.0%} of a core, and should get {SHARE:.0%}")
        if self.spread > SPREAD:
            result.append(
                f"one product of matrices in ten takes {self.spread:.0%} longer than the median or more, and may take "
                f"{SPREAD:.0%}"
            )
        return result


def spread_of(times: Sequence[float]) -> float:
    """How far the slowest tenth begins above the median, as a share of it."""
    return statistics.quantiles(times, n=10)[-1] / statistics.median(times) - 1


def look() -> Found:
    """Measure it: a process per core, all at once. Takes some four seconds."""
    cores = machine.cores()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    probes = [
        subprocess.Popen(
            [sys.executable, __file__, "--probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **one_thread},
        )
        for _ in range(cores)
    ]
    for one in probes:
        assert one.stdout is not None
        one.stdout.readline()  # it has started
    for one in probes:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    answers: list[dict[str, Any]] = [json.loads(one.communicate()[0]) for one in probes]
    return Found(cores, load, min(each["share"] for each in answers), max(spread_of(each["times"]) for each in answers))


def probe() -> None:
    """In a process of its own: count for a second, multiply for another."""
    import numpy as np

    a = np.random.default_rng(0).standard_normal((SIDE, SIDE), dtype=np.float32)
    out = np.empty_like(a)
    for _ in range(20):  # the processor and its library wake up
        np.matmul(a, a, out=out)
    print("ready", flush=True)
    sys.stdin.readline()
    began, spent = time.perf_counter(), time.process_time()
    while (passed := time.perf_counter() - began) < SECONDS:
        pass
    share = (time.process_time() - spent) / passed
    times = []
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        np.matmul(a, a, out=out)
        times.append(time.perf_counter() - start)
    print(json.dumps({"share": share, "times": times}))


def wait(*, load: bool = True, patience: float = WAIT) -> tuple[Found, list[str]]:
    """Look until it is quiet, or patience ends: what was found last, and what is still wrong with it.

    What was installed a moment ago is in the load for a minute, and neighbours go as they come.
    """
    end = time.monotonic() + patience
    while True:
        found = look()
        wrong = found.complaints(load=load)
        if not wrong or time.monotonic() > end:
            return found, wrong
        print(f"waiting for a quiet machine: {'; '.join(wrong)}", file=sys.stderr)
        time.sleep(PAUSE)


def refusal(wrong: Sequence[str]) -> str:
    """What to say when it is not quiet."""
    reasons = "".join(f"\n  - {each}" for each in wrong)
    return (
        f"This machine is not quiet enough for figures that are published:{reasons}\n"
        "End what else runs on it and start again, or measure anyway with --noisy: the results then go to a file of "
        "their own, and neither bench/results.json nor docs/performance.md is written."
    )


def main() -> int:
    if "--probe" in sys.argv:
        probe()
        return 0
    found = look()
    wrong = found.complaints()
    print(json.dumps(asdict(found)))
    print(refusal(wrong) if wrong else f"quiet enough ({Path(__file__).name})", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
