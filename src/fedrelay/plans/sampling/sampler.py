"""What a sampler is, and the three moments at which a plan uses one: at the start, before and after a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from fedrelay.errors import BadInput
from fedrelay.plans.grouping.groups import Groups
from fedrelay.plans.sampling.sizes import sums
from fedrelay.types import Outcome, Survey, Tree

NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw: the index of a client or group, and the weight of its chain in the merge (None: by examples)."""

    index: int
    weight: float | None = None


class Distributions(Protocol):
    """What one round draws from, with its closed forms."""

    def draw(self, rng: np.random.Generator) -> list[Draw]:
        """Nobody twice: who was drawn again counts more instead."""
        ...

    @property
    def distinct(self) -> float:
        """How many different candidates are drawn in expectation: the sum of their chances."""
        ...

    @property
    def spread(self) -> float | None:
        """E Σ (weight − p)² over all candidates: for an unbiased scheme the sum of the variances of the weights. None
        where there is no closed form."""
        ...


class Sampler(ABC):
    """Decides which `count` of the candidates (clients or groups, of these sizes) head chains. A frozen dataclass.

    One that knows more than sizes keeps it in a memo from round to round.
    """

    @abstractmethod
    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Distributions:
        """What is drawn from."""

    def init(self, survey: Survey, /) -> Tree:
        """What is known of the clients before the first round."""
        return {}

    def begin(self, memo: Tree, groups: Groups, /) -> tuple[Tree, Future[Any] | None]:
        """Before a round among these groups: the memo that `distributions` needs, and what is computed beside the round
        until `learn`."""
        return memo, None

    def learn(self, memo: Tree, outcomes: Sequence[Outcome], coming: Future[Any] | None, /) -> Tree:
        """After the round: what its outcomes teach, and what was computed beside it, as plain data."""
        return memo


@dataclass(frozen=True)
class Drawn:
    """The draws of a round, what the sampler remembers of it, and what there is to say of it in the record."""

    memo: Tree
    draws: list[Draw]
    said: Tree
    coming: Mapping[str, Future[Any]] = field(default_factory=dict)


def check(sampler: object) -> None:
    """Refuse what is no sampler: a name, or a class where an object is wanted."""
    if not isinstance(sampler, Sampler):
        raise BadInput(f"sampler must be a sampler, such as BySize(), not {sampler!r}")


def draw(
    sampler: Sampler, memo: Tree, groups: Groups, sizes: Sequence[int], count: int, rng: np.random.Generator
) -> Drawn:
    """Draw among these groups (of these sizes)."""
    memo, coming = sampler.begin(memo, groups)
    distributions = sampler.distributions(sizes, count, memo)
    draws = distributions.draw(rng)
    measured = {"distinct": len(draws), "spread": spread(draws, sizes)}
    expected = {"expected_distinct": distributions.distinct, "expected_spread": distributions.spread}
    return Drawn(memo, draws, measured | expected, {} if coming is None else {"sampler": coming})


def spread(drawn: Sequence[Draw], sizes: Sequence[int]) -> float:
    """Σ (weight − p)² over all candidates: how far this round's weights are from those of full participation."""
    known, held = sums(sizes), sum(sizes[one.index] for one in drawn)
    found = known.squares / known.total**2  # if nobody were drawn
    for one in drawn:
        p = sizes[one.index] / known.total
        weight = sizes[one.index] / held if one.weight is None else one.weight
        found += (weight - p) ** 2 - p**2
    return found


def share(fraction: float, total: int) -> int:
    """max(⌊fraction · total⌋, 1): how many of `total` take part."""
    # The small term keeps 0.29 * 100 at 29: the papers mean the number, not its rounding in binary.
    return max(int(fraction * total + 1e-9), 1)
