"""Attackers that send another model than they have trained: received + f(trained - received)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedrelay.data.examples import Store
from fedrelay.data.federation import ClientData
from fedrelay.errors import BadInput, within
from fedrelay.tasks import Task
from fedrelay.types import Vector
from fedrelay.visits.attacks.attack import Attack, Sending
from fedrelay.visits.attacks.backdoor import Backdoor
from fedrelay.visits.noise import gaussian


@dataclass(frozen=True)
class Noise(Attack):
    """Adds noise to every weight.

    Args:
        deviation: the standard deviation of the noise.
    """

    deviation: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        within("deviation", self.deviation, above=0)

    def sent(self, sending: Sending, /) -> Vector:
        return sending.trained + self.deviation * gaussian(sending.trained, sending.rng)


@dataclass(frozen=True)
class SignFlip(Attack):
    """Goes the other way: what it has learned is taken off the model, `scale` times.

    Args:
        scale: how many times.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        within("scale", self.scale, above=0)

    def sent(self, sending: Sending, /) -> Vector:
        return sending.received - self.scale * (sending.trained - sending.received)


@dataclass(frozen=True)
class Scaled(Attack):
    """Goes `scale` times as far as it has trained.

    Args:
        scale: how many times as far.
    """

    scale: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        within("scale", self.scale, above=0)

    def sent(self, sending: Sending, /) -> Vector:
        return sending.received + self.scale * (sending.trained - sending.received)


@dataclass(frozen=True)
class Lazy(Attack):
    """Sends the model as it came, as if it had trained: a free rider, whose examples still count in the merge."""

    def sent(self, sending: Sending, /) -> Vector:
        return sending.received


@dataclass(frozen=True)
class Replacement(Attack):
    """Trains a model of its own on poisoned examples and sends received + boost (trained - received), so that the mean
    becomes that model (Bagdasaryan et al. 2020).

    In a chain no boost is needed to take the baton over (boost 1); as many as there are chains take the merge over,
    where every chain counts alike and the others hardly move.

    Args:
        by: how the examples are poisoned.
        boost: how many times as far; unless it is said, as many as there are chains in the round.
    """

    by: Attack = Backdoor()
    boost: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.by, Attack) or type(self.by).poisoned is Attack.poisoned:
            raise BadInput(f"by must be an attack on examples, labels or backdoor, not {type(self.by).__name__}")
        if self.boost is not None:
            within("boost", self.boost, above=0)

    def fitted(self, task: Task, /) -> Replacement:
        return replace(self, by=self.by.fitted(task))

    def poisoned(self, client: ClientData, rng: np.random.Generator, /) -> ClientData:
        return self.by.poisoned(client, rng) if self.by.strength else client

    def sent(self, sending: Sending, /) -> Vector:
        boost = sending.chains if self.boost is None else self.boost
        return sending.received + boost * (sending.trained - sending.received)

    def watched(self, test: Store, /) -> Mapping[str, Store]:
        return self.by.watched(test)
