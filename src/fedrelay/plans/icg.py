"""Inter-cluster grouping (FedGSP 2022, Alg. 2): clusters of equally many like clients, then one of each to a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from fedrelay.errors import within
from fedrelay.plans.distances import Distance, Floats, as_points
from fedrelay.plans.groups import Groups, Limits, canonical, held, topped_up
from fedrelay.plans.traits import Traits

Labels = NDArray[np.int64]
RESOLUTION = 2**30
"""Costs are whole numbers for the solver: this many steps between the smallest and the largest one."""


@dataclass(frozen=True)
class Icg:
    """Groups that each take one client of every cluster of like clients; clusters are balanced by minimum-cost flow.

    With K clients and M groups there are ⌊K/M⌋ clusters of M. Paper: K must be divisible, and clients that are left
    over are not placed; here they join the groups, one each (FedSeq journal 2024, Section III-B2).
    """

    iterations: int = 10
    needs: ClassVar[tuple[str, ...]] = ("euclidean", "cosine")

    def __post_init__(self) -> None:
        within("iterations", self.iterations, least=1)

    def __call__(
        self, traits: Traits, sizes: Sequence[int], distance: Distance, limits: Limits, rng: np.random.Generator, /
    ) -> Groups:
        limits.check(sizes)
        count = limits.count(sizes)
        points = as_points(traits.rows, distance)
        order = rng.permutation(len(sizes))
        depth = len(sizes) // count
        placed, left_over = order[: depth * count], order[depth * count :]
        if depth == 1 or count == 1:  # clusters of everybody, or of one: any dealing is as good
            members = [placed[number * count : (number + 1) * count] for number in range(depth)]
        else:
            labels, _ = balanced_clusters(points[placed], depth, rng, self.iterations)
            members = [placed[labels == number] for number in range(depth)]
        if limits.min_examples is None:
            dealt = np.stack([rng.permutation(cluster) for cluster in members])
            groups = [dealt[:, number].tolist() for number in range(count)]
        else:
            groups = dealt_evenly(members, sizes, rng)
        # Fewer are left over than there are groups, so no group gets two; with a minimum to reach, the poorest do.
        if limits.min_examples is not None:
            groups.sort(key=lambda group: held(group, sizes))
        for group, client in zip(groups, left_over.tolist(), strict=False):
            group.append(client)
        return canonical(groups) if limits.min_examples is None else topped_up(groups, sizes, limits)


def dealt_evenly(members: Sequence[Labels], sizes: Sequence[int], rng: np.random.Generator) -> list[list[int]]:
    """One client of every cluster to every group, the larger ones to the groups that have the fewest examples so far.

    Paper: dealt at random; this is for a minimum of examples, which no random dealing of unlike sizes would keep.
    """
    all_sizes = np.asarray(sizes)
    examples = np.zeros(len(members[0]), dtype=np.int64)
    groups: list[list[int]] = [[] for _ in examples]
    for cluster in members:
        shuffled = rng.permutation(cluster)
        largest_first = shuffled[np.argsort(-all_sizes[shuffled], kind="stable")]
        for number, client in zip(np.argsort(examples, kind="stable").tolist(), largest_first.tolist(), strict=True):
            groups[number].append(client)
            examples[number] += all_sizes[client]
    return groups


def balanced_clusters(
    points: Floats, count: int, rng: np.random.Generator, iterations: int = 10
) -> tuple[Labels, list[float]]:
    """`count` clusters of equally many points, from a random start; and the cost at the start and after each iteration.

    The cost is the sum of squared distances to the centroids (Eq. 10 without the half). It never rises: assigning to
    fixed centroids and moving the centroids to the means each lower it, and a step that rounding spoils is not taken.
    """
    size = len(points) // count
    if size * count != len(points):
        raise ValueError(f"{len(points)} points do not make {count} clusters of one size")
    labels = rng.permutation(np.repeat(np.arange(count), size))
    centroids, cost = update(points, labels, count)
    costs = [cost]
    for _ in range(iterations):
        # The squared length of a point is the same for all centroids, so it changes nothing.
        distances = np.einsum("ij,ij->i", centroids, centroids) - 2 * points @ centroids.T
        new = assign(distances, size)
        new_centroids, new_cost = update(points, new, count)
        if new_cost >= cost:
            break
        labels, centroids, cost = new, new_centroids, new_cost
        costs.append(cost)
    return labels, costs


def update(points: Floats, labels: Labels, count: int) -> tuple[Floats, float]:
    """The centroid of every cluster, and the sum of squared distances to them."""
    order = np.argsort(labels, kind="stable").reshape(count, -1)
    centroids: Floats = points[order].mean(axis=1)
    difference = points - centroids[labels]
    return centroids, float(np.einsum("ij,ij->", difference, difference))


def assign(costs: Floats, size: int) -> Labels:
    """The cheapest assignment of every row to a column, with `size` rows to each column: a minimum-cost flow."""
    rows, columns = costs.shape
    low = costs - costs.min(axis=1, keepdims=True)
    scale = RESOLUTION / (low.max() or 1.0)
    flow = SimpleMinCostFlow()
    tails = np.repeat(np.arange(rows, dtype=np.int32), columns)
    heads = np.tile(np.arange(rows, rows + columns, dtype=np.int32), rows)
    whole = np.rint(low * scale).astype(np.int64).ravel()
    arcs = flow.add_arcs_with_capacity_and_unit_cost(tails, heads, np.ones(len(tails), dtype=np.int64), whole)
    supplies = np.concatenate([np.ones(rows, dtype=np.int64), np.full(columns, -size, dtype=np.int64)])
    flow.set_nodes_supplies(np.arange(rows + columns, dtype=np.int32), supplies)
    status = flow.solve()
    if status != flow.OPTIMAL:
        raise RuntimeError(
            f"the solver of the minimum-cost flow ended with {status} for {rows} rows, {columns} columns"
        )
    chosen: Labels = flow.flows(arcs).reshape(rows, columns).argmax(axis=1)
    return chosen
