"""Grouping criteria: a trait, a distance and a grouper that go together (FedSeq 2022: G_S = {ψ, τ, φ})."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrelay.errors import BadInput
from fedrelay.plans.grouping.distances import DISTANCES, Distance, Euclidean, name_of
from fedrelay.plans.grouping.groupers import GROUPERS, Greedy, Grouper, KMeans, Random
from fedrelay.plans.grouping.groups import Groups, Limits, canonical, joined
from fedrelay.plans.grouping.icg import Icg
from fedrelay.plans.grouping.traits import Traits, gather
from fedrelay.types import Kind, Survey, Trait, Work

BEST: dict[Kind, str] = {"weights": "cosine", "shares": "kl", "counts": "kl", "information": "normalised_cosine"}
"""The distance that the papers found best for each kind of trait, in greedy groups."""


GREEDY = 100_000
"""More clients than these are not grouped greedily: everybody is compared with every group, which would take hours."""


@dataclass(frozen=True)
class Grouping:
    """How clients are grouped. A trait and a distance that have no meaning together are refused."""

    traits: Trait | None = None
    distance: Distance | None = None
    grouper: Grouper = Random()

    def __post_init__(self) -> None:
        grouper = next((name for name, kind in GROUPERS.items() if type(self.grouper) is kind), "this grouper")
        if not self.grouper.needs:
            if self.traits is not None or self.distance is not None:
                what = "traits" if self.traits is not None else "distance"
                raise BadInput(f"grouper {grouper} looks at no trait, so {what} would do nothing: leave it out")
            return
        if self.traits is None:
            raise BadInput(
                f"grouper {grouper} needs traits, to know who is unlike whom: name some, or take grouper random"
            )
        if self.distance is None:
            return
        named = name_of(self.distance)
        if named in DISTANCES and named not in self.grouper.needs:
            raise BadInput(
                f"grouper {grouper} cannot work with distance {named}: it computes centroids; "
                f"it takes {' or '.join(self.grouper.needs)}"
            )
        if self.traits.kind not in self.distance.takes:
            raise BadInput(
                f"distance {named} has no meaning for a trait of {WORDS[self.traits.kind]}; pairs that work: {pairs()}"
            )

    @property
    def measure(self) -> Distance:
        """The distance; where none is given, Euclidean for groupers that compute centroids, as in their papers, and for
        others the one the papers found best for the trait."""
        if self.distance is not None:
            return self.distance
        best = "" if self.traits is None or isinstance(self.grouper, KMeans | Icg) else BEST[self.traits.kind]
        return DISTANCES[best]() if best in self.grouper.needs else Euclidean()

    def trained_like(self, local: Work) -> Grouping:
        """The same grouping; a trait that trains at the client, and does not say how, trains as the run does."""
        return self if self.traits is None else replace(self, traits=self.traits.trained_like(local))

    def check(self, clients: int) -> None:
        """Refuse more clients than can be grouped so, before they are put to work."""
        if isinstance(self.grouper, Greedy) and clients > GREEDY:
            raise BadInput(
                f"the grouper greedy goes to {GREEDY:,} clients, because its time grows with their square, and there "
                f"are {clients:,}: take icg, kmeans or random"
            )

    def learn(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator) -> Traits:
        """What the grouper must know of the clients; nothing if it looks at no trait."""
        if self.traits is None:
            return Traits(np.zeros((len(sizes), 0)), 0)
        found = gather(self.traits, survey, len(sizes), rng)
        return replace(found, missing=tuple(one for one in found.missing if sizes[one[0]]))

    def __call__(self, traits: Traits, sizes: Sequence[int], limits: Limits, rng: np.random.Generator) -> Groups:
        """Groups of clients with these traits and sizes; those that have not joined yet are in none."""
        there = joined(sizes)
        if len(there) == len(sizes):
            return self.grouper(traits, sizes, self.measure, limits, rng)
        known, own = replace(traits, rows=traits.rows[np.asarray(there)]), [sizes[client] for client in there]
        groups = self.grouper(known, own, self.measure, limits.among(own), rng)
        return canonical([[there[place] for place in group] for group in groups])


def criteria(traits: Trait | None, distance: Distance | None, grouper: Grouper | None) -> Grouping:
    """The grouping of a recipe: if it names no grouper, clients with traits are grouped greedily, others at random."""
    if grouper is None:
        grouper = Random() if traits is None else Greedy()
    return Grouping(traits, distance, grouper)


WORDS: dict[Kind, str] = {
    "weights": "network weights (classifier)",
    "shares": "class shares (confidence)",
    "counts": "class counts (histogram)",
    "information": "Fisher information (task2vec)",
}


def pairs() -> str:
    """Which distances have a meaning for which kind of trait."""
    return "; ".join(
        f"{words} with {', '.join(name for name, distance in DISTANCES.items() if kind in distance.takes)}"
        for kind, words in WORDS.items()
    )
