"""What augmentation costs beside a training step: LeNet-5 on 32 x 32 x 3, batches of 64, with 1 and 2 threads.

    python bench/augment.py [--steps 60] [--limit 0.1]

Ends with exit code 1 when augmentation takes more than `limit` of a step. Times are the median of the steps, so that
other work on the machine disturbs them little.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from fedrelay.data import Augment, Examples

BATCH = 64


def lenet() -> nn.Module:
    """The LeNet-5 of the papers; max-pool before ReLU, which is the same function and quicker."""
    network = nn.Sequential(
        *(nn.Conv2d(3, 64, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(64, 64, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)),
    )
    return network.to(memory_format=torch.channels_last)


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats + 5):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[5:])


def measure(threads: int, steps: int) -> tuple[float, float]:
    """Seconds of a training step on ready batches, and of making a batch ready from stored bytes."""
    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (5000, 32, 32, 3), dtype=np.uint8))
    examples = Examples(pixels, torch.from_numpy(rng.integers(0, 10, 5000)), Augment())
    rows = torch.from_numpy(rng.permutation(5000))
    network = lenet()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, weight_decay=4e-4, fused=True)
    x, y = examples.take(rows[:BATCH], rng)

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()

    def access() -> None:
        start = int(rng.integers(0, 5000 - BATCH))
        examples.take(rows[start : start + BATCH], rng)

    return median_seconds(step, steps), median_seconds(access, 4 * steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--limit", type=float, default=0.1)
    options = parser.parse_args()
    worst = 0.0
    for threads in (1, 2):
        step, access = measure(threads, options.steps)
        worst = max(worst, access / step)
        print(
            f"threads {threads}: step {step * 1e3:.2f} ms ({BATCH / step:,.0f} examples/s), "
            f"augmented access {access * 1e3:.3f} ms, ratio {access / step:.2%}"
        )
    return 0 if worst <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
