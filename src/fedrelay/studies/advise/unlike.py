"""How unlike clients are, in one number: by their classes, or by their gradients where classes are not known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay import seeds
from fedrelay.data import Federation
from fedrelay.data.heterogeneity import Floats, label_mixes
from fedrelay.engines import Inline
from fedrelay.tasks import Task
from fedrelay.types import Baton, Chain
from fedrelay.visits import Sgd

Counts = NDArray[np.int64]
LOOKED_AT = 200
"""So many clients, drawn at random, speak for all where looking at each would take long."""
ALONE = 50
"""So many clients are asked for a gradient."""
REPEATS = 5


def hellinger(mixes: Floats, overall: Floats) -> Floats:
    """√(1 − Σ√(p q)) of every row p and the mix of all, q: 0 for equal ones, 1 for those without a common class."""
    result: Floats = np.sqrt(np.clip(1 - np.sqrt(mixes * overall).sum(axis=1), 0, 1))
    return result


def distance(counts: Counts) -> float:
    """h: the mean over clients of the Hellinger distance of its class mix from that of all examples."""
    return float(hellinger(label_mixes(counts), counts.sum(axis=0) / counts.sum()).mean())


def distance_by_chance(counts: Counts, rng: np.random.Generator) -> float:
    """h0: what an even split into clients of the same sizes has: few examples never show the mix of all."""
    overall, sizes = counts.sum(axis=0), counts.sum(axis=1)
    if len(sizes) > LOOKED_AT:
        sizes = rng.choice(sizes, LOOKED_AT, replace=False)
    drawn = np.stack([rng.multivariate_hypergeometric(overall, size) for size in np.tile(sizes, REPEATS)])
    return float(hellinger(label_mixes(drawn), overall / overall.sum()).mean())


def excess(h: float, by_chance: float) -> float:
    """√(h² − h0²): what is left of h when chance is taken off; 0 where chance explains all of it."""
    return float(np.sqrt(max(h * h - by_chance * by_chance, 0.0)))


def distance_of_groups(counts: Counts, clients: int, rng: np.random.Generator) -> float:
    """h of random groups of so many clients, each of which tells its classes as one."""
    found = []
    for _ in range(REPEATS):
        order = rng.permutation(len(counts))
        groups = [order[start : start + clients] for start in range(0, len(order) - clients + 1, clients)]
        grouped = np.stack([counts[group].sum(axis=0) for group in groups])
        found.append(float(hellinger(label_mixes(grouped), counts.sum(axis=0) / counts.sum()).mean()))
    return float(np.mean(found))


def shortest_chain(counts: Counts, enough: float, most: int, rng: np.random.Generator) -> int | None:
    """The smallest number of clients whose random groups are within `enough` of the mix of all; None if `most` are
    not."""
    lengths = range(1, min(most, len(counts)) + 1)
    return next((length for length in lengths if distance_of_groups(counts, length, rng) <= enough), None)


def diversity(gradients: Sequence[torch.Tensor]) -> float:
    """ρ = mean‖g_k − ḡ‖² / ‖ḡ‖²: 0 where all clients pull the same way."""
    stacked = torch.stack([one.double() for one in gradients])
    mean = stacked.mean(dim=0)
    apart = (stacked - mean).square().sum(dim=1).mean()
    return float(apart / mean.square().sum().clamp_min(1e-30))


def gradients(federation: Federation, task: Task, seed: int) -> list[torch.Tensor]:
    """The gradient of the first model on all examples of each client (of a few, where there are many)."""
    rng = seeds.rng(seed, "gradients")
    asked = np.sort(rng.permutation(len(federation))[:ALONE]).tolist()
    step, model = 0.01, task.init(seed)
    work = Sgd(steps=1, batch=0, lr=step)
    chains = [Chain(Baton(model), (client,)) for client in asked]
    outcomes = Inline(federation, task, seed).run(work, chains, {}, 0)
    return [(model - one.baton.params) / step for one in outcomes if not one.dropped]


def diversities(federation: Federation, task: Task, seed: int) -> tuple[float, float]:
    """ρ of the clients, and of an even split of the same examples into clients of the same sizes."""
    rng = seeds.rng(seed, "even split")
    even = Federation.of(
        federation.source, np.split(rng.permutation(federation.order.numpy()), federation.starts[1:-1])
    )
    return diversity(gradients(federation, task, seed)), diversity(gradients(even, task, seed))
