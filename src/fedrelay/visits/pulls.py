"""Gradient-level objectives: what pulls at the weights at every step, besides the loss.

All of them have one form: the gradient gets `strength * (weights - anchor) + shift`. So they cost one or two passes
over the vector, they add up, and they work on a stack of models (one a row) as on a single one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import torch

from fedrelay.errors import BadInput, within
from fedrelay.types import Tree, Vector, Visit


@dataclass(frozen=True)
class Force:
    """The pull of one visit."""

    strength: float = 0.0
    anchor: Vector | None = None
    shift: Vector | None = None

    @classmethod
    def rows(cls, forces: Sequence[Force]) -> Force:
        """The pulls of several visits, one a row."""
        kinds = {(force.strength, force.anchor is None, force.shift is None) for force in forces}
        if len(kinds) > 1:
            raise ValueError("pulls of different strength or kind cannot act on rows at once")
        anchors = [force.anchor for force in forces if force.anchor is not None]
        shifts = [force.shift for force in forces if force.shift is not None]
        ((strength, *_),) = kinds
        return cls(strength, torch.stack(anchors) if anchors else None, torch.stack(shifts) if shifts else None)

    def first(self, rows: int) -> Force:
        """The pulls of the first rows alone."""
        anchor, shift = (None if part is None else part[:rows] for part in (self.anchor, self.shift))
        return Force(self.strength, anchor, shift)

    def act(self, gradient: Vector, weights: Vector) -> None:
        """Add the pull to the gradient, in place."""
        if self.anchor is not None and self.strength:
            gradient.add_(weights, alpha=self.strength).sub_(self.anchor, alpha=self.strength)
        if self.shift is not None:
            gradient.add_(self.shift)

    def __add__(self, other: Force) -> Force:
        """Both at once: two springs are one, between their anchors."""
        strength = self.strength + other.strength
        anchor = self.anchor if self.anchor is not None and self.strength else other.anchor
        if self.strength and other.strength and self.anchor is not other.anchor:
            if self.anchor is None or other.anchor is None:
                raise ValueError("a force with a strength needs an anchor")
            anchor = torch.lerp(self.anchor, other.anchor, other.strength / strength)
        shifts = [shift for shift in (self.shift, other.shift) if shift is not None]
        return Force(strength, anchor, shifts[0] + shifts[1] if len(shifts) == 2 else next(iter(shifts), None))


class Pull(Protocol):
    """An objective that acts on the gradient. A frozen dataclass; vectors are the trainable part only."""

    @property
    def keeps(self) -> tuple[str, ...]:
        """The vectors, as long as the trainable part of the model, that it keeps in the client's memory."""
        ...

    def begin(self, received: Vector, visit: Visit) -> Force:
        """The force of this visit, from the model received, the client's memory and what the server shares."""
        ...

    def end(self, received: Vector, trained: Vector, visit: Visit, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        """The client's new memory and its uplink, once per visit.

        `steps` counts plain steps: `(received - trained) / (steps * lr)` is a mean of the gradients of the visit.
        """
        ...


@dataclass(frozen=True)
class Proximal:
    """Pull towards the model *received*: in a chain, the previous client's (FedProx; FedSeq 2022, Eqs. 4-5)."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        within("mu", self.mu, least=0)

    @property
    def keeps(self) -> tuple[str, ...]:
        return ()

    def begin(self, received: Vector, visit: Visit) -> Force:
        return Force(self.mu, received)

    def end(self, received: Vector, trained: Vector, visit: Visit, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        return visit.memory, {}


@dataclass(frozen=True)
class Pulls:
    """Several at once: their forces add up, each keeps its own part of the client's memory."""

    parts: tuple[Pull, ...]

    def __post_init__(self) -> None:
        kept = self.keeps
        twice = sorted({name for name in kept if kept.count(name) > 1})
        if twice:
            raise BadInput(f"two objectives would both keep {', '.join(twice)} in the clients' memories")

    @property
    def keeps(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.keeps)

    def begin(self, received: Vector, visit: Visit) -> Force:
        return reduce(Force.__add__, (part.begin(received, visit) for part in self.parts))

    def end(self, received: Vector, trained: Vector, visit: Visit, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        ends = [part.end(received, trained, visit, steps=steps, lr=lr) for part in self.parts]
        changes = {
            key: value for memory, _ in ends for key, value in memory.items() if visit.memory.get(key) is not value
        }
        memory = {**visit.memory, **changes} if changes else visit.memory
        return memory, {key: value for _, uplink in ends for key, value in uplink.items()}


def stacked(*pulls: Pull | None) -> Pull | None:
    """All these pulls as one; the same one twice counts once."""
    parts: list[Pull] = []
    for pull in pulls:
        for part in parts_of(pull):
            if part not in parts:
                parts.append(part)
    return Pulls(tuple(parts)) if len(parts) > 1 else next(iter(parts), None)


def parts_of(pull: Pull | None) -> Iterable[Pull]:
    """The pulls that a pull is made of."""
    if isinstance(pull, Pulls):
        return pull.parts
    return () if pull is None else (pull,)


def recall(memory: Tree, name: str, like: Vector) -> Vector:
    """A vector from a client's memory: zeros if it is not there yet."""
    vector: Vector | None = memory.get(name)
    if vector is None:
        return torch.zeros_like(like)
    check_size(vector, name, len(like))
    return vector


def check_size(vector: Vector, name: str, trainable: int) -> None:
    """Refuse a kept vector of another model."""
    if len(vector) != trainable:
        raise BadInput(
            f"the kept vector {name!r} has {len(vector)} numbers, this model trains {trainable}: it is another model's"
        )


PULLS = {"proximal": Proximal}
"""Those that need nothing from the server, so that any method can have them."""
