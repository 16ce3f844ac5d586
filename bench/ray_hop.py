"""What a hop costs on a Ray cluster: chains by the engine ray, beside inline and beside Ray itself for the same bytes.

    python bench/ray_hop.py [--model 800000] [--rounds 30] [--limit 10]

A client does next to nothing, so nearly all of the time is the way there and back: a vector of `model` floats goes to a
worker and comes home once for every chain. Chains of one client are the worst case; along longer ones the model stays
where it is. "Ray itself" is one call of an actor that takes such a vector and returns another, so every hop of a relay
that calls actors client by client would cost that. All three take turns, so that a busy machine is as busy for each.

Medians over rounds, without the first ones, in which workers start. The cluster is this machine, and ends with the
program. Ends with exit code 1 when a hop costs more than `limit` milliseconds more than inline.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

import fedrelay as fr
from fedrelay.data import Natural, quadratic
from fedrelay.engines import Inline, Ray
from fedrelay.engines.cluster import joining
from fedrelay.models import Quadratic
from fedrelay.types import Baton, Chain, Engine, Report, Result, Visit, Work

SETTLED = 3
"""Rounds that do not count."""

CLIENTS = 40


@dataclass(frozen=True)
class Pass(Work):
    """Hands on another vector than it got, so that it has to travel."""

    def __call__(self, baton: Baton, visit: Visit) -> Result:
        return Baton(baton.params + 1, baton.weight + 1), visit.memory, Report(visit.client.id, 1)


class Adder:
    """The same in plain Ray."""

    def step(self, vector: Any) -> Any:
        return vector + 1


def milliseconds(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """How long each of these takes in the middle; they take turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(SETTLED + rounds):
        for call, times in zip(calls, found, strict=True):
            began = time.perf_counter()
            call()
            times.append(1000 * (time.perf_counter() - began))
    return [median(times[SETTLED:]) for times in found]


def relaying(engine: Engine, chains: Sequence[Chain]) -> Callable[[], object]:
    return lambda: list(engine.run(Pass(), chains, {}, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=int, default=800_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--limit", type=float, default=10.0)
    options = parser.parse_args()
    os.environ.setdefault("FEDRELAY_CORES", "2")  # a CPU for the worker, and one for Ray itself
    federation = fr.Federation.split(quadratic(clients=CLIENTS, dimension=2, seed=0), Natural())
    task: Any = fr.Task.of(Quadratic(), federation)
    start, worst = Baton(torch.randn(options.model)), 0.0
    with Ray(federation, task, workers=1) as engine:
        ray = joining.join("local")
        adder, vector = ray.remote(num_cpus=1)(Adder).remote(), start.params.numpy()
        for length in (1, 4, 10):
            chains = [Chain(start, tuple(range(at, at + length))) for at in range(0, CLIENTS, length)]
            calls = [relaying(Inline(federation, task), chains), relaying(engine, chains)]
            here, there, plain = milliseconds([*calls, lambda: ray.get(adder.step.remote(vector))], options.rounds)
            here, there = here / CLIENTS, there / CLIENTS
            worst = max(worst, there - here)
            print(
                f"chains of {length:2}: {there:6.2f} ms a hop, inline {here:5.2f}; Ray itself {plain:6.2f} ms a call, "
                f"so {there / plain:.2f} of it"
            )
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"at most {worst:.2f} ms a hop more than inline ({os.cpu_count()} cores{load})")
    return 0 if worst <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
