"""What clustered sampling costs, and how it grows with the number of clients.

    python bench/sampling.py [--quick]

By size (Alg. 1), by similarity (Alg. 2) exactly and by sketch, the peak memory, and what clustering beside the training
costs a round. Ends with exit code 1 when a limit is exceeded: 10,000 clients by size in 0.1 s; 10,000 clients of 10^5
numbers by sketch in 60 s and 4 GB; 1,000 clients of 4 * 10^4 numbers exactly in 2 s. `--quick` leaves the largest out.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from fedrelay import Federation, Sgd, Task, train
from fedrelay.algorithms import fedavg
from fedrelay.data import Iid, synthetic
from fedrelay.engines import Inline
from fedrelay.models import Mlp
from fedrelay.plans.aside import _other
from fedrelay.plans.sampling import BySimilarity, BySize, Multinomial, Sampler
from fedrelay.plans.sampling.urns import _by_size

KEPT = 1024
DRAWS = 100


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def gigabytes() -> float:
    """The most memory that this process and the one it clusters in have had."""
    _other().close()  # only those that have ended are counted
    _other.cache_clear()
    kilobytes = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kilobytes / 1e6


def by_size(clients: int) -> float:
    sizes = np.random.default_rng(0).integers(1, 1000, clients).tolist()
    _by_size.cache_clear()
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


def per_round(sampler: Sampler, rounds: int = 12, known: int = 6) -> float:
    """Seconds of a training round, 1,000 clients and 100 a round, once some clients are known."""
    federation = Federation.split(synthetic(shape=(28, 28), examples=20_000), Iid(), 1000, 0)
    engine = Inline(federation, Task.of(Mlp(), federation), 0)
    algorithm = fedavg(local=Sgd(steps=50, batch=20), fraction=0.1, sampler=sampler)
    times = [state.log["seconds"] for state in train(algorithm, engine, rounds=rounds)]
    return float(np.median(times[known:]))


def table(name: str, counts: list[int], measure: Callable[[int], float]) -> float:
    """Print the growth; the seconds of the largest."""
    print(name)
    before: tuple[int, float] | None = None
    for clients in counts:
        took = measure(clients)
        power = (
            "" if before is None else f"   grows as n^{math.log(took / before[1]) / math.log(clients / before[0]):.1f}"
        )
        print(f"  n = {clients:>6,}: {took:8.3f} s{power}", flush=True)
        before = clients, took
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(f"{torch.get_num_threads()} threads, m = {DRAWS}")
    size = table("by size, with the draw", [300, 1000, 3000, 10_000], by_size)
    exact = {
        similarity: table(
            f"by similarity, {similarity}, 40,000 numbers each, exact",
            [125, 250, 500, 1000] if similarity != "l1" else [125, 250],
            lambda n, s=similarity: by_similarity(n, 40_000, BySimilarity(s)),
        )
        for similarity in ("arccos", "l2", "l1")
    }
    sketched = table(
        f"by similarity, arccos, 100,000 numbers each, sketch of {KEPT}",
        [300, 1000, 3000] if quick else [300, 1000, 3000, 10_000],
        lambda n: by_similarity(n, 100_000, BySimilarity(sketch=KEPT)),
    )
    peak = gigabytes()
    print(f"peak memory {peak:.2f} GB")
    for sampler in (Multinomial(), BySimilarity(), BySimilarity(when="after")):
        print(f"a training round with {sampler}: {per_round(sampler):.3f} s", flush=True)
    limits = [(size, 0.1), (exact["arccos"], 2), (exact["l2"], 2), (sketched, 60), (peak, 4)]
    return 0 if all(found <= limit for found, limit in limits) else 1


if __name__ == "__main__":
    sys.exit(main())
