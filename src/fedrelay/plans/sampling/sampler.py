"""What a sampler is, and the three moments at which a plan uses one: at the start, before and after a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import numpy as np

from fedrelay.errors import BadInput
from fedrelay.plans.grouping.groups import Groups
from fedrelay.plans.sampling.sizes import sums
from fedrelay.types import Outcome, Probe, Tree

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


class Sampler(Protocol):
    """Decides which `count` of the candidates (clients or groups, of these sizes) head chains. A frozen dataclass."""

    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Distributions: ...


@runtime_checkable
class Learner(Sampler, Protocol):
    """A sampler that knows more than sizes, and keeps it in a memo from round to round."""

    def init(self, probe: Probe) -> Tree:
        """What is known of the clients before the first round."""
        ...

    def begin(self, memo: Tree, groups: Groups) -> Tree:
        """Before a round among these groups: the memo that `distributions` needs. What it starts may run on beside the
        round, until `learn`."""
        ...

    def learn(self, memo: Tree, outcomes: Sequence[Outcome]) -> Tree:
        """After the round: what its outcomes teach, as plain data that can be saved."""
        ...


def check(sampler: object) -> None:
    """Refuse what is no sampler: a name, or a class where an object is wanted."""
    if isinstance(sampler, type) or not hasattr(sampler, "distributions"):
        raise BadInput(f"sampler must be a sampler, such as BySize(), not {sampler!r}")


def start(sampler: Sampler, probe: Probe) -> Tree:
    """A sampler's memo before the first round."""
    return sampler.init(probe) if isinstance(sampler, Learner) else {}


def draw(
    sampler: Sampler, memo: Tree, groups: Groups, sizes: Sequence[int], count: int, rng: np.random.Generator
) -> tuple[Tree, list[Draw], Tree]:
    """The sampler's memo, its draws among these groups (of these sizes), and what to say of them in the record."""
    if isinstance(sampler, Learner):
        memo = sampler.begin(memo, groups)
    distributions = sampler.distributions(sizes, count, memo)
    drawn = distributions.draw(rng)
    measured = {"distinct": len(drawn), "spread": spread(drawn, sizes)}
    expected = {"expected_distinct": distributions.distinct, "expected_spread": distributions.spread}
    return memo, drawn, measured | expected


def learn(sampler: Sampler, memo: Tree, outcomes: Sequence[Outcome]) -> Tree:
    """A sampler's memo after a round."""
    return sampler.learn(memo, outcomes) if isinstance(sampler, Learner) else memo


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
