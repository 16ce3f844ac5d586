"""Growth: how many groups there are in a round. Few long chains first, many short ones later."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from fedrelay.errors import BadInput, within

NEARLY = 1e-9  # added before rounding down: 0.1 · 30 means 3, not the number just below it that binary has


class Growth(Protocol):
    """The number of groups wished for in a round, from 1 on. A frozen dataclass; plans cap it at their clients."""

    def __call__(self, round: int, /) -> int: ...


@dataclass(frozen=True)
class Fixed:
    """The same number of `groups` in every round."""

    groups: int = 10

    def __post_init__(self) -> None:
        within("groups", self.groups, least=1)

    def __call__(self, round: int, /) -> int:
        return self.groups


@dataclass(frozen=True)
class Linear:
    """Smooth growth: β⌊α(r − 1) + 1⌋ groups in round r (FedGSP 2022, Eq. 1).

    `beta` is the number to begin with and the size of a step. Give the rate `alpha`, or the number of groups to `reach`
    `by` a round, which is then not exceeded.
    """

    beta: int = 10
    alpha: float | None = None
    reach: int | None = None
    by: int | None = None

    def __post_init__(self) -> None:
        check(self.beta, self.alpha, self.reach, self.by)

    @property
    def rate(self) -> float:
        return self.alpha if self.alpha is not None else (steps(self.beta, self.reach) - 1) / (last(self.by) - 1)

    def __call__(self, round: int, /) -> int:
        return stepped(self.beta, self.rate * (round - 1) + 1, self.reach)


@dataclass(frozen=True)
class Logarithmic:
    """Fast first, slow later: β⌊α ln r + 1⌋ groups in round r (FedGSP 2022, Eq. 2).

    `beta` is the number to begin with and the size of a step. Give the rate `alpha`, or the number of groups to `reach`
    `by` a round, which is then not exceeded.
    """

    beta: int = 10
    alpha: float | None = None
    reach: int | None = None
    by: int | None = None

    def __post_init__(self) -> None:
        check(self.beta, self.alpha, self.reach, self.by)

    @property
    def rate(self) -> float:
        return self.alpha if self.alpha is not None else (steps(self.beta, self.reach) - 1) / math.log(last(self.by))

    def __call__(self, round: int, /) -> int:
        return stepped(self.beta, self.rate * math.log(round) + 1, self.reach)


@dataclass(frozen=True)
class Exponential:
    """Slow first, fast later: β⌊(1 + α)^(r − 1)⌋ groups in round r (FedGSP 2022, Eq. 3).

    `beta` is the number to begin with and the size of a step. Give the rate `alpha`, or the number of groups to `reach`
    `by` a round, which is then not exceeded.
    """

    beta: int = 10
    alpha: float | None = None
    reach: int | None = None
    by: int | None = None

    def __post_init__(self) -> None:
        check(self.beta, self.alpha, self.reach, self.by)

    @property
    def rate(self) -> float:
        return self.alpha if self.alpha is not None else steps(self.beta, self.reach) ** (1 / (last(self.by) - 1)) - 1

    def __call__(self, round: int, /) -> int:
        # A power this large is above any number of clients, and a float cannot hold the ones that follow.
        exponent = min((round - 1) * math.log1p(self.rate), 40.0)
        return stepped(self.beta, math.exp(exponent), self.reach)


def stepped(beta: int, factor: float, most: int | None) -> int:
    """`beta` times the factor rounded down, but at most `most`."""
    count = beta * math.floor(factor * (1 + NEARLY))
    return count if most is None else min(count, most)


def steps(beta: int, reach: int | None) -> int:
    """How many times `beta` it takes to have at least the wished number of groups."""
    return -(-(reach or beta) // beta)


def last(by: int | None) -> int:
    """The round of the wished number; `check` has made sure that there is one."""
    return by or 2


def check(beta: int, alpha: float | None, reach: int | None, by: int | None) -> None:
    """Refuse a growth that is not said, said twice, or backwards."""
    within("beta", beta, least=1)
    if alpha is not None and (reach is not None or by is not None):
        raise BadInput("give alpha, or reach and by, not both: they are two ways to say how fast the number grows")
    if alpha is not None:
        within("alpha", alpha, least=0)
    elif reach is None or by is None:
        raise BadInput("growth needs a rate: alpha, or the groups to reach by a round (as in reach = 100, by = 500)")
    else:
        within("by", by, least=2)
        within("reach", reach, least=beta)


GROWTHS: dict[str, type[Growth]] = {
    "constant": Fixed,
    "linear": Linear,
    "logarithmic": Logarithmic,
    "exponential": Exponential,
}
