"""Attacks between chains: those that end at an attacker agree on what to send, knowing what the honest ones send.

A lie is a way from the model that all started from, so it needs peers: inside a chain there are none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import torch

from fedrelay.errors import BadInput, within
from fedrelay.merges.every import Every
from fedrelay.merges.mean import change
from fedrelay.types import ATTACKED, Merge, Outcome, State, Vector
from fedrelay.vectors import doubled


@dataclass(frozen=True)
class Collusion(ABC):
    """What colluding chains send. A frozen dataclass.

    Args:
        strength: how much of it: 0 is what the chains have trained, to the bit, and 1 all of it.
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        within("strength", self.strength, least=0, most=1)

    @abstractmethod
    def lie(self, honest: torch.Tensor, liars: int, /) -> Vector:
        """The change that all liars send, from the changes of the honest chains, one a row."""


@dataclass(frozen=True)
class Alie(Collusion):
    """A little is enough: the honest mean less `z` deviations of every weight, where lies are not told from honest
    spread (Baruch et al. 2019).

    Args:
        z: how many deviations; unless it is said, as many as a majority of n chains, f of them lying, still hides:
            the normal quantile of (n - f - q) / (n - f) with q = floor(n / 2) + 1 - f.
    """

    z: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.z is not None:
            within("z", self.z, least=0)

    def lie(self, honest: torch.Tensor, liars: int, /) -> Vector:
        z = hidden_deviations(len(honest) + liars, liars) if self.z is None else self.z
        return honest.mean(0) - z * deviation(honest)


@dataclass(frozen=True)
class Ipm(Collusion):
    """Inner product manipulation: the honest mean, turned round, `epsilon` times (Xie et al. 2020).

    Args:
        epsilon: how many times: 0.1 hides among honest changes, 100 turns a mean round.
    """

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        within("epsilon", self.epsilon, above=0)

    def lie(self, honest: torch.Tensor, liars: int, /) -> Vector:
        return -self.epsilon * honest.mean(0)


@dataclass(frozen=True)
class MinMax(Collusion):
    """As far from the honest mean as can be without being farther from any honest change than two of those are from
    one another (Shejwalkar & Houmansadr 2021).

    Args:
        direction: against the `deviation` of every weight, against the mean (`unit`), or against its `sign`.
    """

    direction: Literal["deviation", "unit", "sign"] = "deviation"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction not in ("deviation", "unit", "sign"):
            raise BadInput(f"direction must be deviation, unit or sign, not {self.direction!r}")

    def lie(self, honest: torch.Tensor, liars: int, /) -> Vector:
        middle = honest.mean(0)
        way = {"deviation": -deviation(honest), "unit": -middle, "sign": -middle.sign()}[self.direction]
        norm = torch.linalg.vector_norm(way)
        return middle + farthest(honest - middle, way / norm) * (way / norm) if norm > 0 else middle


@dataclass(frozen=True)
class Mimic(Collusion):
    """All send what one honest chain sends, so that it counts too much (Karimireddy et al. 2022): the one that stands
    out most in the direction in which honest changes differ most.

    Paper: the direction is learned in the first rounds and one worker is copied ever after; here chains are others in
    every round, so both are found anew.
    """

    def lie(self, honest: torch.Tensor, liars: int, /) -> Vector:
        apart = doubled(honest - honest.mean(0))
        _, vectors = torch.linalg.eigh((apart @ apart.T).cpu())
        return honest[int(vectors[:, -1].abs().argmax())]


COLLUSIONS: dict[str, type[Collusion]] = {"alie": Alie, "ipm": Ipm, "min_max": MinMax, "mimic": Mimic}
"""Attacks that happen between chains, just before they are merged."""


@dataclass(frozen=True)
class Colluding(Merge):
    """Merge after those that lie have agreed on what they send. A chain lies if its last client attacks: what the
    server gets is what that one sends."""

    merge: Merge
    collusion: Collusion

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        return self.merge(state, told(outcomes, self.collusion, state.trainable))

    def tells(self, state: State, outcomes: Sequence[Outcome], /) -> Mapping[str, float]:
        return self.merge.tells(state, told(outcomes, self.collusion, state.trainable))


def colluding(merge: Merge, collusion: Collusion) -> Merge:
    """The merge with these lies before it: where models are merged now and then, before they are."""
    if isinstance(merge, Every):
        return replace(merge, merge=Colluding(merge.merge, collusion))
    return Colluding(merge, collusion)


def told(outcomes: Sequence[Outcome], collusion: Collusion, trainable: int | None) -> list[Outcome]:
    """The outcomes as the server is told them; where nobody is honest there is nothing to go by."""
    honest = [outcome for outcome in outcomes if not lies(outcome)]
    liars = len(outcomes) - len(honest)
    if not collusion.strength or not liars or not honest:
        return list(outcomes)
    lie = collusion.lie(torch.stack([change(outcome)[:trainable] for outcome in honest]), liars)
    return [replaced(outcome, lie, collusion.strength) if lies(outcome) else outcome for outcome in outcomes]


def lies(outcome: Outcome) -> bool:
    """Whether the client that has the baton at last is an attacker."""
    return bool(outcome.reports) and ATTACKED in outcome.reports[-1].metrics


def replaced(outcome: Outcome, lie: Vector, strength: float) -> Outcome:
    """The outcome with this change in place of its own; running statistics are no weights, and stay."""
    start, params = outcome.chain.start.params, outcome.baton.params.clone()
    own = params[: len(lie)]
    own.copy_(torch.lerp(own, start[: len(lie)] + lie, strength))
    return replace(outcome, baton=replace(outcome.baton, params=params))


def hidden_deviations(chains: int, liars: int) -> float:
    """How many deviations a lie may be away so that enough honest chains are farther (Baruch et al. 2019, Alg. 3)."""
    honest = chains - liars
    supporters = max(chains // 2 + 1 - liars, 1)  # liars that are a majority still need one to hide behind
    share = (honest - supporters) / honest
    return max(NormalDist().inv_cdf(share), 0.0) if share > 0 else 0.0


def deviation(rows: torch.Tensor) -> Vector:
    """Of every number over the rows; none of one row."""
    return rows.std(0) if len(rows) > 1 else torch.zeros_like(rows[0])


def farthest(apart: torch.Tensor, way: Vector) -> float:
    """How far one can go along a unit vector from the mean until some row is as far as the farthest two rows are: the
    least root of |γ way - apart_i|² = most², over i."""
    rows, unit = doubled(apart), doubled(way)
    most = float(torch.pdist(rows).max()) if len(rows) > 1 else 0.0
    along = rows @ unit
    left = (most**2 - rows.square().sum(1) + along.square()).clamp(min=0)
    return float((along + left.sqrt()).min())
