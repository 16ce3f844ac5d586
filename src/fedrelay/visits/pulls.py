"""Gradient-level objectives: what pulls at the weights at every step, besides the loss.

All of them have one form: the gradient gets `strength * (weights - anchor) + shift`. So they cost one or two passes
over the vector, and they work on a stack of models (one a row) as on a single one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fedrelay.errors import within
from fedrelay.types import Tree, Vector, Visit


@dataclass(frozen=True)
class Force:
    """The pull of one visit."""

    strength: float = 0.0
    anchor: Vector | None = None
    shift: Vector | None = None

    def act(self, gradient: Vector, weights: Vector) -> None:
        """Add the pull to the gradient, in place."""
        if self.anchor is not None and self.strength:
            gradient.add_(weights, alpha=self.strength).sub_(self.anchor, alpha=self.strength)
        if self.shift is not None:
            gradient.add_(self.shift)


class Pull(Protocol):
    """An objective that acts on the gradient. A frozen dataclass; vectors are the trainable part only."""

    def begin(self, received: Vector, visit: Visit) -> Force:
        """The force of this visit, from the model received, the client's memory and what the server shares."""
        ...

    def end(self, received: Vector, trained: Vector, visit: Visit, *, steps: int, lr: float) -> tuple[Tree, Tree]:
        """The client's new memory and its uplink, once per visit."""
        ...


@dataclass(frozen=True)
class Proximal:
    """Pull towards the model *received*: in a chain, the previous client's (FedProx; FedSeq 2022, Eqs. 4-5)."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        within("mu", self.mu, least=0)

    def begin(self, received: Vector, visit: Visit) -> Force:
        return Force(self.mu, received)

    def end(self, received: Vector, trained: Vector, visit: Visit, *, steps: int, lr: float) -> tuple[Tree, Tree]:
        return visit.memory, {}
