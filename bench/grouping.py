"""What grouping costs, how it grows with the number of clients, and beside k-means-constrained.

    python bench/grouping.py [--quick] [--peer PYTHON]

PYTHON is an interpreter that has the package k-means-constrained (default: this one, if it has it). It clusters the
same points in the same run: as many clusters of the same size, from a random start, in at most as many iterations, on
one thread. Times are processor seconds, so that other work on the machine disturbs them little. Ends with exit code 1
when inter-cluster grouping is slower than the peer, or a limit is exceeded: 0.06, 0.9 and 12 s (and 600 MB) for 364,
3,500 and 40,000 clients, 5 s for 3,500 in only five groups; greedy with 3,500 clients in 5 s; k-means and random with
40,000 in 10 s. `--quick` leaves 40,000 out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedrelay.plans import DISTANCES, GROUPERS, Limits, Traits
from fedrelay.plans.grouping.distances import Euclidean
from fedrelay.plans.grouping.groupers import Greedy
from fedrelay.plans.grouping.icg import Icg, balanced_clusters

T = TypeVar("T")
CLASSES = 62
ITERATIONS = 10
ICG = {(364, 52): 0.06, (3500, 175): 0.9, (3500, 5): 5.0, (40_000, 1900): 12.0}
"""Clients and groups, with the most seconds that the whole grouping may take."""
PEER = """
import json, sys, time, warnings
import numpy as np
from k_means_constrained import KMeansConstrained
warnings.simplefilter("ignore")  # it says that it has not converged
points = np.load(sys.argv[1])
count, size = int(sys.argv[2]), len(points) // int(sys.argv[2])
began = time.process_time()
same = dict(size_min=size, size_max=size, init="random", n_init=1, max_iter=int(sys.argv[3]), tol=0)
fitted = KMeansConstrained(count, **same, random_state=0, n_jobs=1).fit(points)
print(json.dumps([time.process_time() - began, float(fitted.inertia_)]))
"""


def histograms(clients: int) -> np.ndarray:
    """Class counts like FEMNIST's: some 200 examples of 62 classes, unevenly."""
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet(np.full(CLASSES, 0.3), clients)
    return np.stack([rng.multinomial(n, p) for n, p in zip(rng.integers(50, 400, clients), mixes, strict=True)]) * 1.0


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """The seconds it takes, and what it returns."""
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def peer(python: str, points: np.ndarray, count: int) -> tuple[float, float]:
    """Seconds and cost of k-means-constrained."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.npy"
        np.save(path, points)
        command = [python, "-c", PEER, str(path), str(count), str(ITERATIONS)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    took, cost = json.loads(done.stdout)
    return took, cost


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def icg(python: str | None, *, quick: bool) -> bool:
    """Inter-cluster grouping: the whole, its clustering alone, and the peer's."""
    good = True
    print("clients groups  icg s  limit    MB | clustering s   cost | k-means-constrained s   cost")
    for (clients, groups), limit in ICG.items():
        if quick and clients > 10_000:
            continue
        points, before = histograms(clients), peak()
        traits, sizes = Traits(points, CLASSES), points.sum(axis=1).astype(int).tolist()
        limits, rng = Limits(groups=groups), np.random.default_rng
        whole, _ = timed(partial(Icg(ITERATIONS), traits, sizes, Euclidean(), limits, rng(0)))
        memory, count = peak() - before, clients // groups
        part = points[: count * groups]
        alone, (_, costs) = timed(partial(balanced_clusters, part, count, rng(0), ITERATIONS))
        line = f"{clients:7,} {groups:6,} {whole:6.3f} {limit:6.2f} {memory:5.0f} | {alone:12.3f} {costs[-1]:6.4g}"
        good &= whole <= limit and memory <= 600
        if python is not None:
            took, cost = peer(python, part, count)
            line += f" | {took:21.3f} {cost:6.4g}"
            good &= alone <= took
        print(line, flush=True)
    return good


def growth(name: str, call: Callable[[int], object], counts: list[int], limit: float) -> bool:
    """How the seconds grow with the clients; the last number of clients has the limit."""
    times = [timed(partial(call, count))[0] for count in counts]
    power = math.log(times[-1] / times[-2]) / math.log(counts[-1] / counts[-2])
    row = "  ".join(f"{count:,}: {took:.3f} s" for count, took in zip(counts, times, strict=True))
    print(f"{name:28s} {row}  (grows as K^{power:.1f}; limit {limit:g} s)", flush=True)
    return times[-1] <= limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peer", metavar="PYTHON")
    options = parser.parse_args()
    python = options.peer or (sys.executable if importlib.util.find_spec("k_means_constrained") else None)
    if python is None:
        print("k-means-constrained is not here: install it, or name an interpreter that has it with --peer")
    good = icg(python, quick=options.quick)

    def grouped(grouper: str, distance: str) -> Callable[[int], object]:
        def call(clients: int) -> object:
            points = histograms(clients)
            traits, limits = Traits(points, CLASSES), Limits(max_clients=20)
            return GROUPERS[grouper]()(traits, [1] * clients, DISTANCES[distance](), limits, np.random.default_rng(0))

        return call

    for distance in Greedy.needs:
        good &= growth(f"greedy {distance}", grouped("greedy", distance), [875, 1750, 3500], 5.0)
    largest = [2500, 10_000] if options.quick else [2500, 10_000, 40_000]
    for name in ("kmeans", "random"):
        grouped(name, "euclidean")(100)  # loads what it needs
        good &= growth(name, grouped(name, "euclidean"), largest, 10.0)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
