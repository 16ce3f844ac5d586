"""Grouping and sampling of very many clients: what they cost, and what the approximations lose.

    OMP_NUM_THREADS=1 python bench/very_many.py [--quick]

Where the exact way can be gone too, both are: inter-cluster grouping of 10,000 clients, clustered sampling of 3,000.
Times are processor seconds on one thread. Prints tables in Markdown. Ends with exit code 1 when 100,000 clients take
longer than two minutes. `--quick` leaves 100,000 clients out.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

from fedrelay.plans import Limits, Traits
from fedrelay.plans.grouping.distances import Euclidean
from fedrelay.plans.grouping.groupers import Grouper, Random
from fedrelay.plans.grouping.groups import Alone
from fedrelay.plans.grouping.icg import Icg
from fedrelay.plans.sampling import BySimilarity, Urns, by_clusters, multinomial
from fedrelay.runs.measures import group_counts

T = TypeVar("T")
CLASSES, EXAMPLES = 10, 20
MOST = 120.0
"""Seconds that 100,000 clients may take."""


def timed(call: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def histograms(clients: int) -> np.ndarray:
    """Twenty examples each, with a class mix from Dir(0.3)."""
    rng = np.random.default_rng(0)
    return rng.multinomial(EXAMPLES, rng.dirichlet(np.full(CLASSES, 0.3), clients))


def grouped(clients: int, groups: int, grouper: Grouper) -> tuple[float, float]:
    """Seconds, and how far the class mix of a group is from that of all, on average (Euclidean)."""
    counts = histograms(clients)
    traits, sizes = Traits(counts.astype(np.float64), CLASSES), [EXAMPLES] * clients
    limits, rng = Limits(groups=groups), np.random.default_rng(1)
    took, made = timed(lambda: grouper(traits, sizes, Euclidean(), limits, rng))
    found = group_counts(counts, made)
    mixes = found / found.sum(axis=1, keepdims=True)
    return took, float(np.linalg.norm(mixes - counts.sum(axis=0) / counts.sum(), axis=1).mean())


def grouping(*, quick: bool) -> float:
    print("\n| clients | groups | grouper | seconds | a group's mix to that of all |\n|--:|--:|:--|--:|--:|")
    cases: list[tuple[int, int, str, Grouper]] = []
    for groups in (500, 50):
        exact = ("icg, exact", Icg(at_once=10_000))
        parts = [(f"icg, at_once = {at_once:,}", Icg(at_once=at_once)) for at_once in (5000, 2000)]
        cases += [(10_000, groups, name, grouper) for name, grouper in (exact, *parts, ("random", Random()))]
    if not quick:
        cases += [(100_000, groups, "icg", Icg()) for groups in (5000, 100)]
    longest = 0.0
    for clients, groups, name, grouper in cases:
        took, apart = grouped(clients, groups, grouper)
        longest = max(longest, took)
        print(f"| {clients:,} | {groups:,} | {name} | {took:.2f} | {apart:.4f} |", flush=True)
    return longest


def gradients(clients: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A class for every client, and a vector that is the direction of its class with as much noise."""
    rng = np.random.default_rng(0)
    class_of = rng.integers(CLASSES, size=clients)
    directions = rng.standard_normal((CLASSES, width), dtype=np.float32)
    return class_of, directions[class_of] + rng.standard_normal((clients, width), dtype=np.float32)


def classes_seen(urns: Urns, class_of: np.ndarray) -> float:
    """How many classes a draw is expected to have, by the chances of every urn."""
    missed = np.ones(CLASSES)
    for urn in urns.urns:
        missed *= 1 - np.bincount(class_of[urn.owners], urn.tickets / urns.total, CLASSES)
    return float((1 - missed).sum())


def drawn(clients: int, kinds: int | None, width: int) -> tuple[float, float]:
    """Seconds of one clustering and its urns when all are known, and the classes that ten draws are expected to see."""
    class_of, rows = gradients(clients, width)
    known = {client: torch.from_numpy(row) for client, row in enumerate(rows)}
    memo, sizes = {"gradients": known, "last": {n: n for n in range(clients)}, "made": clients}, [EXAMPLES] * clients
    sampler = BySimilarity(sketch=width, kinds=kinds)
    took, urns = timed(lambda: by_clusters(sampler.tree(memo, Alone(clients)).numpy(), sizes, 10))
    return took, classes_seen(urns, class_of)


def sampling(*, quick: bool) -> float:
    print("\n| clients | by similarity | seconds | classes in ten draws, of ten |\n|--:|:--|--:|--:|")
    cases: list[tuple[int, int | None]] = [(3000, None), (3000, 1000), (3000, 300), (3000, 100)]
    longest = 0.0
    for clients, kinds in cases if quick else [*cases, (100_000, 1000)]:
        took, seen = drawn(clients, kinds, 256)
        longest = max(longest, took)
        print(
            f"| {clients:,} | {'exact' if kinds is None else f'{kinds:,} kinds'} | {took:.2f} | {seen:.2f} |",
            flush=True,
        )
    class_of, _ = gradients(3000, 1)
    print(
        f"| 3,000 | md, which looks at nothing | – | {classes_seen(multinomial([EXAMPLES] * 3000, 10), class_of):.2f} |"
    )
    return longest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    longest = max(grouping(quick=quick), sampling(quick=quick))
    print(f"\nPeak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB.")
    return 0 if longest <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
