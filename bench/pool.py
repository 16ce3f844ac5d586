"""What a pool of models costs: its distances beside a training step, and its memory in vectors.

    python bench/pool.py [--batch 64] [--steps 3] [--models 5] [--limit 0.1]

ResNet-18 on 32 x 32 x 3, as the last of `models` is trained: it is compared with all before it. Ends with exit code 1
when distances take more than `limit` of a step. Times are the best of the steps, because others use the machine too.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

import fedrelay as fr
from fedrelay.algorithms import elmy
from fedrelay.data import Examples, Source
from fedrelay.models import MODELS
from fedrelay.system.threads import operator_threads
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Visit
from fedrelay.visits.diversity import MEASURES, Diversity


def client(batch: int) -> Visit:
    """A visit to a client of one batch of noise."""
    draw = np.random.default_rng(0)
    made = Examples(
        torch.from_numpy(draw.normal(size=(batch, 32, 32, 3)).astype(np.float32)),
        torch.from_numpy(draw.integers(0, 10, batch)),
    )
    federation = fr.Federation.of(Source("noise", made, made, classes=10), [np.arange(batch)])
    task = fr.Task.of(MODELS["resnet18"](), federation)
    return Visit(federation.client(0), task, {}, {}, 1, 0, 0, Workspaces(task))


def best(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def peak() -> float:
    """Bytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory(visit: Visit, models: int) -> float:
    """How many vectors a visit that trains a pool has at most, beyond one that trains one model."""
    start, few = Baton(visit.task.init(0)), replace(visit, client=replace(visit.client, rows=visit.client.rows[:2]))
    local = fr.Adam(steps=1)
    fr.method(elmy(models=1), local=local).update(start, few)
    before = peak()
    fr.method(elmy(models=models), local=local).update(start, few)
    return (peak() - before) / (4 * visit.task.layout.size) + 2  # a pool of one has two


def distances(visit: Visit, models: int, repeats: int) -> dict[str, float]:
    """Seconds that the distances of a step take, by how they are measured."""
    draw = torch.Generator().manual_seed(0)
    start = visit.task.init(0)
    pool = start + 0.01 * torch.randn(models, len(start), generator=draw)
    here, weights = replace(visit, pool=pool), visit.weights(start).clone()
    gradient, found = torch.zeros_like(weights), {}
    for apart in MEASURES:
        (guide,) = Diversity(apart=apart).begin(pool.mean(0), here).guides  # type: ignore[arg-type]
        found[apart] = best(lambda guide=guide: guide(gradient, weights, 2.3), repeats)  # type: ignore[misc]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--models", type=int, default=5)
    parser.add_argument("--limit", type=float, default=0.1)
    options = parser.parse_args()
    visit = client(options.batch)
    with operator_threads(1):
        vectors = memory(visit, options.models)
        one = fr.Adam(steps=1, batch=options.batch)
        step = best(lambda: one(Baton(visit.task.init(0)), visit), options.steps)
        found = distances(visit, options.models, options.steps)
    print(f"a pool of {options.models} + 1 models takes {vectors:.1f} vectors")
    for apart, seconds in found.items():
        print(f"{apart:8} {seconds * 1e3:7.1f} ms of a step of {step * 1e3:.0f} ms: {seconds / step:.1%}")
    return int(found["norm"] > options.limit * step)


if __name__ == "__main__":
    sys.exit(main())
