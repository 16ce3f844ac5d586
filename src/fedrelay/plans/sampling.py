"""Samplers: which clients (or groups) head the chains of a round, and with which weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fedrelay.types import Outcome, Tree


class Draw(NamedTuple):
    """One draw: the index of a client or group, and the weight of its chain in the merge (None: by examples)."""

    index: int
    weight: float | None = None


class Sampler(Protocol):
    """Draws `count` of the candidates, whose sizes (examples) are given. A frozen dataclass."""

    def init(self, sizes: Sequence[int], count: int) -> Tree:
        """What the sampler must remember from round to round."""
        ...

    def __call__(self, memo: Tree, sizes: Sequence[int], count: int, rng: np.random.Generator, /) -> list[Draw]: ...

    def learn(self, memo: Tree, drawn: Sequence[tuple[int, Outcome]]) -> Tree:
        """The memo after a round: what came back from every candidate that was drawn."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Uniformly without replacement, weights by examples (FedAvg)."""

    def init(self, sizes: Sequence[int], count: int) -> Tree:
        return {}

    def __call__(self, memo: Tree, sizes: Sequence[int], count: int, rng: np.random.Generator, /) -> list[Draw]:
        return [Draw(int(index)) for index in rng.choice(len(sizes), count, replace=False)]

    def learn(self, memo: Tree, drawn: Sequence[tuple[int, Outcome]]) -> Tree:
        return memo


def share(fraction: float, total: int) -> int:
    """max(⌊fraction · total⌋, 1): how many of `total` take part."""
    # The small term keeps 0.29 * 100 at 29: the papers mean the number, not its rounding in binary.
    return max(int(fraction * total + 1e-9), 1)


SAMPLERS = {"uniform": Uniform}
