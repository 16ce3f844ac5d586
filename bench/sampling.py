"""What clustered sampling costs, and how it grows with the number of clients.

    python bench/sampling.py [--quick]

By size (Alg. 1), by similarity (Alg. 2) exactly and by sketch, the peak memory, and what clustering beside the training
costs a round. Prints a page in Markdown. Ends with exit code 1 when a limit is exceeded: 10,000 clients by size in
0.1 s; 10,000 clients of 10^5 numbers by sketch in 60 s and 4 GB; 1,000 clients of 4 * 10^4 numbers exactly in 2 s.
`--quick` leaves the largest out.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

import fedrelay as fr
from fedrelay import Federation, Sgd, Task, train
from fedrelay.algorithms import fedavg
from fedrelay.data import Iid, synthetic
from fedrelay.engines import Inline
from fedrelay.models import Mlp
from fedrelay.plans.background import _side_process
from fedrelay.plans.sampling import BySimilarity, BySize, Multinomial, Sampler

KEPT = 1024
DRAWS = 100


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def gigabytes() -> float:
    """The most memory that this process and the one it clusters in have had."""
    _side_process().close()  # only those that have ended are counted
    _side_process.cache_clear()
    kilobytes = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kilobytes / 1e6


def by_size(clients: int) -> float:
    sizes = np.random.default_rng(0).integers(1, 1000, clients).tolist()
    rng = np.random.default_rng(1)
    return seconds(lambda: BySize().distributions(sizes, DRAWS).draw(rng))


def by_similarity(clients: int, numbers: int, sampler: BySimilarity) -> float:
    """A round of the sampler when every client is known: keep the gradients that came, cluster, fill the urns, draw."""
    rng = np.random.default_rng(0)
    groups = tuple((client,) for client in range(clients))
    width = min(numbers, sampler.sketch or numbers)
    known = rng.standard_normal((clients, width), dtype=np.float32)
    arrived = torch.from_numpy(rng.standard_normal((DRAWS, numbers), dtype=np.float32))
    sizes = rng.integers(1, 1000, clients).tolist()

    def round() -> None:
        rows = {client: torch.from_numpy(known[client]) for client in range(clients)}
        rows |= {client: sampler.kept(gradient) for client, gradient in enumerate(arrived)}
        memo = {"gradients": rows, "last": {client: client for client in range(clients)}, "made": clients}
        tree = sampler.tree(memo, groups, elsewhere=True)
        sampler.distributions(sizes, DRAWS, {"tree": tree}).draw(rng)

    return seconds(round)


def per_round(sampler: Sampler, rounds: int = 16, known: int = 8) -> float:
    """Seconds of a training round, 1,000 clients and 100 a round, once most clients are known. The training has one
    thread, so that a core is free for the clustering where there are two."""
    federation = Federation.split(synthetic(shape=(28, 28), examples=20_000), Iid(), 1000, 0)
    engine = Inline(federation, Task.of(Mlp(), federation), 0)
    algorithm = fr.method(fedavg(), local=Sgd(steps=50, batch=20), fraction=0.1, sampler=sampler)
    times = [state.log.seconds for state in train(algorithm, engine, rounds=rounds)]
    return float(np.median(times[known:]))


def table(name: str, counts: list[int], measure: Callable[[int], float]) -> float:
    """Print the growth; the seconds of the largest."""
    print(f"\n{name}\n\n| clients | seconds | grows as |\n|--:|--:|--:|")
    before: tuple[int, float] | None = None
    for clients in counts:
        took = measure(clients)
        power = "" if before is None else f"n^{math.log(took / before[1]) / math.log(clients / before[0]):.1f}"
        print(f"| {clients:,} | {took:.3f} | {power} |", flush=True)
        before = clients, took
    return took


def rounds() -> None:
    """Print what clustering costs a training round, beside it and after it."""
    print("\nA training round on one thread, 1,000 clients, 100 a round\n\n| sampler | seconds |\n|:--|--:|")
    samplers: dict[str, Sampler] = {
        "md": Multinomial(),
        "by_similarity": BySimilarity(),
        "by_similarity, when = after": BySimilarity(when="after"),
    }
    took = {name: per_round(sampler) for name, sampler in samplers.items()}
    for name, seconds in took.items():
        print(f"| {name} | {seconds:.3f} |")
    plain, beside, after = took.values()
    print(f"\nOf {after - plain:.2f} s that clustering takes, {beside - plain:.2f} s are left when it is done beside.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    by_similarity(DRAWS, 100, BySimilarity("l1"))  # imports what is needed
    print(f"# Clustered sampling, {DRAWS} draws a round, {os.cpu_count()} cores")
    size = table("By size (Alg. 1), with the draw", [300, 1000, 3000, 10_000], by_size)
    sketched = table(
        f"By similarity (Alg. 2), arccos, 100,000 numbers each, by a sketch of {KEPT}",
        [300, 1000, 3000] if quick else [300, 1000, 3000, 10_000],
        lambda n: by_similarity(n, 100_000, BySimilarity(sketch=KEPT)),
    )
    peak = gigabytes()
    print(f"\nPeak memory so far: {peak:.2f} GB.")
    exact = {
        similarity: table(
            f"By similarity, {similarity}, 40,000 numbers each, exactly",
            [125, 250, 500, 1000] if similarity != "l1" else [125, 250],
            lambda n, s=similarity: by_similarity(n, 40_000, BySimilarity(s)),
        )
        for similarity in ("arccos", "l2", "l1")
    }
    rounds()
    limits = [(size, 0.1), (exact["arccos"], 2), (exact["l2"], 2), (sketched, 60), (peak, 4)]
    return 0 if all(found <= limit for found, limit in limits) else 1


if __name__ == "__main__":
    sys.exit(main())
