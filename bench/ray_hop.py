"""What a hop costs more on a Ray cluster than in one process: the same chains by the engines inline and ray.

    python bench/ray_hop.py [--model 800000] [--rounds 30] [--limit 10]

A client does next to nothing, so nearly all of the time is the way there and back: a vector of `model` floats goes to a
worker and comes home once for every chain. Chains of one client are the worst case; along longer ones the model stays
where it is. Ends with exit code 1 when a hop costs more than `limit` milliseconds. Medians over rounds, without the
first ones, in which workers start. The cluster is this machine, and ends with the program.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import fedrelay as fr
from fedrelay.data import Natural, quadratic
from fedrelay.engines import Inline, Ray
from fedrelay.models import Quadratic
from fedrelay.types import Baton, Chain, Engine, Report, Result, Visit, Work

SETTLED = 3
"""Rounds that do not count."""


@dataclass(frozen=True)
class Pass(Work):
    """Hands on another vector than it got, so that it has to travel."""

    def __call__(self, baton: Baton, visit: Visit) -> Result:
        return Baton(baton.params + 1, baton.weight + 1), visit.memory, Report(visit.client.id, 1)


def seconds(engine: Engine, chains: Sequence[Chain], rounds: int) -> float:
    """How long a round takes, in the middle."""
    found = []
    for number in range(1, SETTLED + rounds + 1):
        began = time.perf_counter()
        list(engine.run(Pass(), chains, {}, number))
        found.append(time.perf_counter() - began)
    return statistics.median(found[SETTLED:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=int, default=800_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--limit", type=float, default=10.0)
    options = parser.parse_args()
    federation = fr.Federation.split(quadratic(clients=40, dimension=2, seed=0), Natural())
    task: Any = fr.Task.of(Quadratic(), federation)
    start, worst = Baton(torch.randn(options.model)), 0.0
    with Ray(federation, task, workers=1) as ray:
        for length in (1, 4, 10):
            clients = range(0, 40, length)
            chains = [Chain(start, tuple(range(first, first + length))) for first in clients]
            here, there = (seconds(one, chains, options.rounds) for one in (Inline(federation, task), ray))
            more = 1000 * (there - here) / 40
            worst = max(worst, more)
            print(f"chains of {length:2}: {1000 * here / 40:6.2f} ms a hop inline, {more:+6.2f} ms on the cluster")
    return 0 if worst <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
