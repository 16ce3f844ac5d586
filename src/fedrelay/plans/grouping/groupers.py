"""Groupers (φ): from traits to groups of unlike clients. Each places every client exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import within
from fedrelay.plans.grouping.distances import DISTANCES, Distance, Floats, MixScore, as_points
from fedrelay.plans.grouping.groups import Groups, Limits, fill, finished, random_groups
from fedrelay.plans.grouping.icg import Icg
from fedrelay.plans.grouping.traits import Traits


class Grouper(Protocol):
    """A frozen dataclass. `needs` names the distances it can work with; none means that it looks at no trait."""

    needs: ClassVar[tuple[str, ...]]

    def __call__(
        self, traits: Traits, sizes: Sequence[int], distance: Distance, limits: Limits, rng: np.random.Generator, /
    ) -> Groups: ...


@dataclass(frozen=True)
class Random:
    """Clients in random order fill one group after another; it needs no traits (FedSeq 2022, φ_rand)."""

    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(
        self, traits: object, sizes: Sequence[int], distance: object, limits: Limits, rng: np.random.Generator, /
    ) -> Groups:
        return random_groups(sizes, limits, rng)


@dataclass(frozen=True)
class KMeans:
    """Clusters of like clients by k-means, then dealt out one of each cluster in turn (FedSeq 2022, Alg. 2).

    Without a number of `clusters` there are as many as classes. `starts` is how often k-means begins anew.
    """

    clusters: int | None = None
    starts: int = 3
    needs: ClassVar[tuple[str, ...]] = ("euclidean", "cosine")

    def __post_init__(self) -> None:
        within("starts", self.starts, least=1)
        if self.clusters is not None:
            within("clusters", self.clusters, least=1)

    def __call__(
        self, traits: Traits, sizes: Sequence[int], distance: Distance, limits: Limits, rng: np.random.Generator, /
    ) -> Groups:
        limits.check(sizes)
        points = as_points(traits.rows, distance)
        return fill(dealt(self.labels(points, traits.classes, rng), rng), sizes, limits)

    def labels(self, points: Floats, classes: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """The cluster of every client."""
        from sklearn.cluster import KMeans as Lloyd  # here, because importing it takes a second
        from threadpoolctl import threadpool_limits

        count = min(self.clusters or classes, len(np.unique(points, axis=0)))
        with threadpool_limits(1, "openmp"):  # sums in another order could move a client to another cluster
            fitted = Lloyd(count, n_init=self.starts, random_state=int(rng.integers(2**31))).fit(points)
        result: NDArray[np.int64] = fitted.labels_.astype(np.int64)
        return result


def dealt(labels: NDArray[np.int64], rng: np.random.Generator) -> list[int]:
    """Clients in turn from every cluster, each time a random one that is left; an empty cluster is passed over."""
    shuffled = rng.permutation(len(labels))
    by_cluster = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    turn = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    order: list[int] = by_cluster[np.lexsort((labels[by_cluster], turn))].tolist()
    return order


@dataclass(frozen=True)
class Greedy:
    """A random client opens a group; the one most unlike the group so far joins, until it is complete (FedSeq 2022,
    Alg. 3).

    What a candidate is compared with, by `rule`: the `mean` of the group (the text of both papers); `halving`, where
    each new client counts half and all before it the other half (Alg. 3 as printed); `published`, as the authors' code
    does: the mean weighted by examples, the first client being the one most unlike the uniform vector instead of a
    random one, and, when no score is above 0, simply the first client that is left.

    `kl` and `gini` score the group as it would be with the candidate: by `mean`, everybody in it counts the same; by
    `halving` and as `published`, the candidate is half of it, however many there are already, so that with soft
    confidence vectors the least confident client wins over one that brings a missing class.
    """

    rule: Literal["mean", "halving", "published"] = "mean"
    needs: ClassVar[tuple[str, ...]] = tuple(DISTANCES)

    def __call__(
        self, traits: Traits, sizes: Sequence[int], distance: Distance, limits: Limits, rng: np.random.Generator, /
    ) -> Groups:
        limits.check(sizes)
        left = Left(distance.ready(traits.rows))
        total = len(sizes)
        groups: list[list[int]] = [[]]
        centre, examples = left.uniform(), 0
        for _ in range(total):
            if groups[-1] and limits.complete(len(groups) - 1, len(groups[-1]), examples, total):
                groups.append([])
                centre, examples = left.uniform(), 0
            client, row = left.take(self.choose(left, centre, distance, rng, clients=len(groups[-1])))
            centre += (row - centre) * self.share(len(groups[-1]), examples, sizes[client])
            examples += sizes[client]
            groups[-1].append(client)
        return finished(groups, sizes, limits)

    def choose(self, left: Left, centre: Floats, distance: Distance, rng: np.random.Generator, *, clients: int) -> int:
        """The place, among those left, of the one who joins so many clients."""
        if not clients and self.rule != "published":
            return int(rng.integers(left.count))
        rows = left.rows[: left.count]
        if isinstance(distance, MixScore) and self.rule == "mean":
            scores = distance(rows, centre, share=1 / (clients + 1))
        else:
            scores = distance(rows, centre)
        best = scores.max()
        if self.rule == "published" and best <= 0:
            return int(left.clients[: left.count].argmin())
        ties = np.flatnonzero(scores == best)
        return int(ties[left.clients[ties].argmin()])

    def share(self, clients: int, examples: int, size: int) -> float:
        """How much of the group's centre a new client makes up."""
        if not clients:
            return 1.0
        if self.rule == "halving":
            return 0.5
        return size / (examples + size) if self.rule == "published" else 1 / (clients + 1)


class Left:
    """The clients that are not placed yet: the first `count` rows; whoever is taken gives its row to the last one."""

    def __init__(self, rows: Floats) -> None:
        self.rows, self.clients, self.count = rows.copy(), np.arange(len(rows)), len(rows)

    def uniform(self) -> Floats:
        return np.full(self.rows.shape[1], 1 / self.rows.shape[1])

    def take(self, place: int) -> tuple[int, Floats]:
        client, row = int(self.clients[place]), self.rows[place].copy()
        self.count -= 1
        self.rows[place], self.clients[place] = self.rows[self.count], self.clients[self.count]
        return client, row


GROUPERS: dict[str, type[Grouper]] = {"random": Random, "kmeans": KMeans, "greedy": Greedy, "icg": Icg}
