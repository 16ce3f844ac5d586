"""How the learning rate changes as rounds go by: plain factors on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from fedrelay.errors import within


class Schedule(Protocol):
    """The factor on the learning rate in a round (rounds count from 1). A frozen dataclass."""

    def __call__(self, round: int, /) -> float: ...


@dataclass(frozen=True)
class Constant:
    """The same learning rate in every round."""

    def __call__(self, round: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Exponential:
    """Times `decay` after every round."""

    decay: float = 0.99

    def __post_init__(self) -> None:
        within("decay", self.decay, above=0, most=1)

    def __call__(self, round: int) -> float:
        return float(self.decay ** (round - 1))


@dataclass(frozen=True)
class Step:
    """Times `factor` after every `every` rounds."""

    every: int = 100
    factor: float = 0.1

    def __post_init__(self) -> None:
        within("every", self.every, least=1)
        within("factor", self.factor, above=0, most=1)

    def __call__(self, round: int) -> float:
        return float(self.factor ** ((round - 1) // self.every))


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 down to `floor` over `rounds` rounds, then `floor`."""

    rounds: int = 100
    floor: float = 0.0

    def __post_init__(self) -> None:
        within("rounds", self.rounds, least=1)
        within("floor", self.floor, least=0, most=1)

    def __call__(self, round: int) -> float:
        done = min((round - 1) / self.rounds, 1.0)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


SCHEDULES = {"constant": Constant, "exponential": Exponential, "step": Step, "cosine": Cosine}
