"""Inter-cluster grouping (FedGSP 2022, Alg. 2): clusters of equally many like clients, then one of each to a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import within
from fedrelay.plans.grouping.assignment import assign
from fedrelay.plans.grouping.distances import Distance, Floats, as_points
from fedrelay.plans.grouping.groups import Groups, Limits, canonical, examples_of, topped_up
from fedrelay.plans.grouping.traits import Traits

Labels = NDArray[np.int64]


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
            groups.sort(key=lambda group: examples_of(group, sizes))
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
    costs, prices = [cost], None
    for _ in range(iterations):
        new, prices = assign(SquaredDistances(points, centroids), size, prices)
        new_centroids, new_cost = update(points, new, count)
        if new_cost >= cost:
            break
        labels, centroids, cost = new, new_centroids, new_cost
        costs.append(cost)
    return labels, costs


class SquaredDistances:
    """Of every point to every centroid, computed for the points that are asked for.

    Less the squared length of the point, which is the same for all centroids and so changes nothing.
    """

    def __init__(self, points: Floats, centroids: Floats) -> None:
        self.points, self.centroids = points, centroids
        self.shape = (len(points), len(centroids))
        self.lengths = np.einsum("ij,ij->i", centroids, centroids)

    def __getitem__(self, rows: slice) -> Floats:
        result: Floats = self.lengths - 2 * self.points[rows] @ self.centroids.T
        return result


def update(points: Floats, labels: Labels, count: int) -> tuple[Floats, float]:
    """The centroid of every cluster, and the sum of squared distances to them."""
    order = np.argsort(labels, kind="stable").reshape(count, -1)
    centroids: Floats = points[order].mean(axis=1)
    difference = points - centroids[labels]
    return centroids, float(np.einsum("ij,ij->", difference, difference))
