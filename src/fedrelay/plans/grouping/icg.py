"""Inter-cluster grouping (FedGSP 2022, Alg. 2): clusters of equally many like clients, then one of each to a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.partitions.apportion import evenly
from fedrelay.errors import within
from fedrelay.plans.grouping.assignment import assign
from fedrelay.plans.grouping.distances import Distance, Floats, as_points
from fedrelay.plans.grouping.groups import Groups, Limits, canonical, examples_of, topped_up
from fedrelay.plans.grouping.traits import Traits
from fedrelay.types import LATER

Labels = NDArray[np.int64]


EXACT = 50_000
"""Up to so many clients all are clustered together, unless `at_once` says otherwise."""
AT_ONCE = 10_000
"""With more, so many at a time."""
MOST_CLUSTERS = 200
"""Of clients that are not all clustered together; then a group takes several clients of each."""


@dataclass(frozen=True)
class Icg:
    """Groups that each take one client of every cluster of like clients; clusters are balanced by minimum-cost flow.

    With K clients and M groups there are L = ⌊K/M⌋ clusters of ⌊K/L⌋ random clients (line 1), so that a cluster may
    have more clients than there are groups. Those whom no group took, and those outside all clusters, are the left
    over: fewer than there are groups. Paper: in this round they do not train (`left_over` = "rest"); here they `join`
    the groups, one each, as in FedSeq journal 2024, Section III-B2.

    Paper: all clients are clustered together. More than 50,000 are not: they are dealt at random into parts of about
    10,000, and every part makes its share of the groups, by at most 200 clusters, of each of which a group takes
    several clients if it is larger than that. So a group is as far from the mix of all as 10,000 random clients are, at
    least. `at_once` says how many are clustered together, whatever their number.
    """

    iterations: int = 10
    left_over: Literal["join", "rest"] = "join"
    at_once: int | None = field(default=None, metadata={LATER: True})
    needs: ClassVar[tuple[str, ...]] = ("euclidean", "cosine")

    def __post_init__(self) -> None:
        within("iterations", self.iterations, least=1)
        if self.at_once is not None:
            within("at_once", self.at_once, least=1)

    def __call__(
        self, traits: Traits, sizes: Sequence[int], distance: Distance, limits: Limits, rng: np.random.Generator, /
    ) -> Groups:
        limits.check(sizes)
        count, clients = limits.count(sizes), len(sizes)
        parts = self.parts(clients, count)
        points = as_points(traits.rows, distance)
        order = rng.permutation(clients)
        most = None if self.exact(clients) else MOST_CLUSTERS
        ends = np.concatenate([[0], np.cumsum(evenly(count, parts))])
        known = None if limits.min_examples is None else sizes
        groups: list[list[int]] = []
        for first, last in pairwise(ends.tolist()):
            some = order[clients * first // count : clients * last // count]
            groups += self.made(points, some, last - first, rng, most=most, sizes=known)
        return canonical(groups) if limits.min_examples is None else topped_up(groups, sizes, limits)

    def exact(self, clients: int) -> bool:
        """Whether so many clients are clustered together, as in the paper."""
        return clients <= (EXACT if self.at_once is None else self.at_once)

    def parts(self, clients: int, groups: int) -> int:
        """Into how many parts so many clients are dealt; each makes a group, or several."""
        at_once = clients if self.exact(clients) else self.at_once or AT_ONCE
        return min(-(-clients // at_once), groups)

    def made(
        self,
        points: Floats,
        clients: Labels,
        count: int,
        rng: np.random.Generator,
        *,
        most: int | None,
        sizes: Sequence[int] | None,
    ) -> list[list[int]]:
        """So many groups of these clients, who are in random order, by at most so many clusters; with their `sizes`,
        larger clients are dealt to poorer groups."""
        depth = len(clients) // count
        each = 1 if most is None else -(-depth // most)  # so many of every cluster are in a group
        clusters = depth // each
        clustered = clusters * (len(clients) // clusters)
        placed, left_over = clients[:clustered], clients[clustered:].tolist()
        if clusters == 1 or count == 1:  # clusters of everybody, or of one: any dealing is as good
            members = placed.reshape(clusters, -1)
        else:
            labels, _ = balanced_clusters(points[placed], clusters, rng, self.iterations)
            members = placed[np.argsort(labels, kind="stable")].reshape(clusters, -1)
        members = rng.permuted(members, axis=1)
        dealt, more = members[:, : count * each], members[:, count * each :]
        left_over += more.ravel().tolist()
        members = dealt.reshape(clusters * each, count)
        groups = members.T.tolist() if sizes is None else dealt_evenly(members, sizes)
        if self.left_over == "join":
            # With one client of each cluster, fewer are left over than there are groups, so no group gets two; with a
            # minimum to reach, the poorest do.
            if sizes is not None:
                groups.sort(key=lambda group: examples_of(group, sizes))
            for number, client in enumerate(left_over):
                groups[number % count].append(client)
        return groups


def dealt_evenly(members: Labels, sizes: Sequence[int]) -> list[list[int]]:
    """One client of every cluster to every group, the larger ones to the groups that have the fewest examples so far.

    Paper: dealt at random; this is for a minimum of examples, which no random dealing of unlike sizes would keep.
    """
    all_sizes = np.asarray(sizes)
    examples = np.zeros(members.shape[1], dtype=np.int64)
    groups: list[list[int]] = [[] for _ in examples]
    for cluster in members:
        largest_first = cluster[np.argsort(-all_sizes[cluster], kind="stable")]
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
