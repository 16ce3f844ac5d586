"""Samplers that need to know nothing but sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrelay.plans.sampling import urns
from fedrelay.plans.sampling.sampler import NOTHING, Draw, Sampler, checked, sums
from fedrelay.plans.sampling.urns import Urns
from fedrelay.types import Tree


@dataclass(frozen=True, eq=False)
class Subset:
    """`count` candidates, uniformly without replacement."""

    sizes: Sequence[int]
    count: int
    shares: bool = False
    """Whether a weight is the candidate's share of all examples, rather than of those drawn."""

    def draw(self, rng: np.random.Generator) -> list[Draw]:
        drawn = rng.choice(len(self.sizes), self.count, replace=False).tolist()
        total = sums(self.sizes).total
        return [Draw(index, self.sizes[index] / total if self.shares else None) for index in drawn]

    @property
    def distinct(self) -> float:
        return float(self.count)

    @property
    def variance(self) -> float | None:
        chance = self.count / len(self.sizes)
        known = sums(self.sizes)
        if self.shares:
            # The weight is p with this chance, else 0: variance and squared bias together are p²(1 − chance).
            return known.squares / known.total**2 * (1 - chance)
        if known.smallest == known.largest or self.count == len(self.sizes):
            return (1 - chance) / self.count
        return None  # a ratio of random sums


@dataclass(frozen=True)
class Uniform(Sampler):
    """Uniformly without replacement; weights by examples among those drawn. Biased where sizes differ."""

    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Subset:
        return Subset(checked(sizes, count), int(count))


@dataclass(frozen=True)
class Original(Sampler):
    """Uniformly without replacement; whoever is not drawn counts as the old model (McMahan et al. 2017, as clustered
    sampling 2021, Eq. 3). Its merge must be with_absent, which fedavg chooses by itself."""

    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Subset:
        return Subset(checked(sizes, count), int(count), shares=True)


@dataclass(frozen=True)
class Full(Sampler):
    """Everybody, every round, weights by examples; the fraction is passed over."""

    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Subset:
        return Subset(checked(sizes, count), len(sizes))


@dataclass(frozen=True)
class Multinomial(Sampler):
    """MD sampling: independent draws with replacement, chances by size, weight 1/m each (Li et al. 2018)."""

    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Urns:
        return urns.multinomial(sizes, count)


@dataclass(frozen=True)
class BySize(Sampler):
    """Clustered by size: one draw from each of m urns that are filled large clients first (clustered sampling 2021,
    Alg. 1)."""

    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Urns:
        return urns.by_size(sizes, count)
