"""Differential privacy for every method: noise at clients, per visit or per step, and what it promises."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from fedrelay.errors import BadInput, within
from fedrelay.types import Algorithm, Work
from fedrelay.visits.noise import Noised, PerExample, check_clip
from fedrelay.visits.private import AtHome
from fedrelay.visits.terms import Proximal
from fedrelay.visits.training import Training


@dataclass(frozen=True)
class Privacy:
    """Noise at the clients, so that it protects from everybody: the next client of a chain, the server, and whoever
    gets the model. It is local, it is counted for every visit, and nobody is hidden among others: no sampling of
    clients makes it stronger, because the next client knows who was before it.

    Args:
        level: what is hidden: whether a `client` took part in a visit at all (else the model would have passed
            unchanged), or whether one `example` was among a client's (DP-SGD inside a visit).
        clip: what a visit changes is made no longer than this; at the level of examples, an example's gradient.
        noise: the deviation of the Gaussian noise, in clips. 0 is no noise, and with `clip = inf` nothing is changed.
        delta: the probability with which epsilon may not hold.
        epsilon: the most that a client may spend in the whole run; one that would spend more is refused, with the noise
            that would do.
        trait_clip: a trait by which clients are grouped is made no longer than this and gets noise too; it counts as
            one more visit.
    """

    level: Literal["client", "example"] = "client"
    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5
    epsilon: float | None = None
    trait_clip: float = 1.0

    def __post_init__(self) -> None:
        if self.level not in ("client", "example"):
            raise BadInput(f"level must be client or example, not {self.level!r}")
        if self.clip != math.inf:
            within("clip", self.clip, above=0)
        within("noise", self.noise, least=0)
        check_clip("clip", self.clip, self.noise)
        within("trait_clip", self.trait_clip, above=0)
        within("delta", self.delta, above=0)
        if self.delta >= 1:
            raise BadInput(f"delta must be below 1, not {self.delta:g}: with probability 1 nothing is promised")
        if self.epsilon is not None:
            within("epsilon", self.epsilon, above=0)


def made_private(algorithm: Algorithm, privacy: Privacy) -> Algorithm:
    """The method with this privacy; without noise and bound it is the method itself."""
    if not privacy.noise and privacy.clip == math.inf:
        if privacy.epsilon is not None:
            raise BadInput("epsilon is had by noise, and there is none (noise = 0)")
        return algorithm
    if algorithm.pooled:
        raise BadInput("the centralised reference has no clients that could be hidden from one another")
    if privacy.level == "example":
        return replace(algorithm, update=by_examples(algorithm.update, privacy), privacy=privacy)
    if privacy.noise:
        refuse_sending(algorithm.update)
    update = Noised(algorithm.update, privacy.clip, privacy.noise, privacy.trait_clip)
    return replace(algorithm, update=update, privacy=privacy)


def by_examples(update: Work, privacy: Privacy) -> Work:
    """The training with noise in every step; one that looks at examples in another way is refused."""
    if isinstance(update, AtHome):
        return replace(update, work=by_examples(update.work, privacy))
    if not isinstance(update, Training):
        raise BadInput(f"{type(update).__name__} trains in a way of its own, in whose steps no noise is known")
    other = next((term for term in update.terms if not isinstance(term, Proximal)), None)
    if other is not None:
        raise BadInput(f"{other} looks at examples beside the steps, where there is no noise: only proximal goes here")
    if update.keep == "best":
        raise BadInput('keep = "best" chooses by examples without noise: keep = "last", or level = "client"')
    return replace(update, per_example=PerExample(privacy.clip, privacy.noise))


def refuse_sending(update: Work) -> None:
    """Refuse terms that send something besides the model."""
    inner = update.work if isinstance(update, AtHome) else update
    sending = next((term for term in inner.terms if term.sends), None) if isinstance(inner, Training) else None
    if sending is not None:
        raise BadInput(f"{sending} sends something besides the model, for which no noise is known")
