"""Terms: what a method adds to the training at a client.

A term may act on the gradient (a force), add to the loss of a batch, change how the model is run or where the gradient
is taken, and keep or send something when the visit ends. Terms add up.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, NamedTuple, TypeAlias

import torch

from fedrelay.errors import BadInput, within
from fedrelay.kernels.workspace import Forward
from fedrelay.tasks import Task
from fedrelay.types import Tree, Vector, Visit


class Batch(NamedTuple):
    """What a loss term sees: inputs, targets, and what the model in training makes of them."""

    x: torch.Tensor
    y: torch.Tensor
    features: torch.Tensor | None
    output: torch.Tensor


ExtraLoss: TypeAlias = Callable[[Batch], torch.Tensor]
"""What a term adds to the mean loss of a batch."""

Run: TypeAlias = Callable[[torch.Tensor], Forward]
"""How the model in training is run on a batch of inputs."""


Guide: TypeAlias = Callable[[Vector, Vector, float], None]
"""Adds to a gradient, in place, what depends on the weights and on the loss of the batch."""


@dataclass(frozen=True)
class Force:
    """What acts on the gradient: it gets `strength * (weights - anchor) + shift`. So forces cost one or two passes over
    the vector, they add up, and they work on a stack of models (one a row) as on a single one."""

    strength: float = 0.0
    anchor: Vector | None = None
    shift: Vector | None = None

    @classmethod
    def rows(cls, forces: Sequence[Force]) -> Force:
        """The forces of several visits, one a row."""
        kinds = {(force.strength, force.anchor is None, force.shift is None) for force in forces}
        if len(kinds) > 1:
            raise ValueError("forces of different strength or kind cannot act on rows at once")
        anchors = [force.anchor for force in forces if force.anchor is not None]
        shifts = [force.shift for force in forces if force.shift is not None]
        ((strength, *_),) = kinds
        return cls(strength, torch.stack(anchors) if anchors else None, torch.stack(shifts) if shifts else None)

    def first(self, rows: int) -> Force:
        """The forces of the first rows alone."""
        anchor, shift = (None if part is None else part[:rows] for part in (self.anchor, self.shift))
        return Force(self.strength, anchor, shift)

    @property
    def acts(self) -> bool:
        """Whether it does anything: a force that does not must not cost the fast step."""
        return self.shift is not None or (self.anchor is not None and bool(self.strength))

    def act(self, gradient: Vector, weights: Vector, *, exact: bool = False) -> None:
        """Add the force to the gradient, in place. Near the anchor most of it is rounding, unless it is to be `exact`,
        which costs a vector more."""
        if self.anchor is not None and self.strength and exact:
            gradient.add_(weights - self.anchor, alpha=self.strength)
        elif self.anchor is not None and self.strength:
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


@dataclass(frozen=True)
class Effect:
    """What a term does to the steps of one visit; with nothing said, nothing."""

    force: Force | None = None
    losses: tuple[ExtraLoss, ...] = ()
    run: Run | None = None
    """How the model is run, in place of plainly."""
    uphill: float = 0.0
    """How far uphill the gradient is taken (sharpness-aware minimisation)."""
    held: tuple[slice, ...] = ()
    """Which weights do not move, whatever the optimiser would do."""
    guides: tuple[Guide, ...] = ()
    """What acts on the gradient besides the force, and is no spring: at every step anew."""

    def __add__(self, other: Effect) -> Effect:
        if (self.run and other.run) or (self.uphill and other.uphill):
            what = "how the model is run" if self.run and other.run else "where the gradient is taken"
            raise BadInput(f"two terms decide {what}: only one of them can")
        forces = [force for force in (self.force, other.force) if force is not None]
        return Effect(
            reduce(Force.__add__, forces) if forces else None,
            self.losses + other.losses,
            self.run or other.run,
            self.uphill or other.uphill,
            self.held + other.held,
            self.guides + other.guides,
        )

    @classmethod
    def rows(cls, effects: Sequence[Effect]) -> Effect:
        """The effects of several visits, one a row: their forces may differ, all else must not."""
        first, *others = effects
        if any(replace(other, force=first.force) != first for other in others):
            raise ValueError("effects of different kinds cannot act on rows at once")
        if all(effect.force is None for effect in effects):
            return first
        return replace(first, force=Force.rows([effect.force or Force() for effect in effects]))


NO_EFFECT = Effect()


class Term(ABC):
    """What a method adds to the training at a client. A frozen, picklable dataclass; write only what it needs."""

    sole: ClassVar[str] = ""
    """What only one term of a training can decide, in words; empty if it goes with any other."""
    stacks: ClassVar[bool] = True
    """Whether it works on several models at once, one a row: terms that look at batches do not."""
    reads_steps: ClassVar[bool] = False
    """Whether it takes the way the model went for a sum of gradients, which it is only under plain steps (SGD)."""
    sends: ClassVar[bool] = False
    """Whether it sends something of one training besides the model."""

    @property
    def keeps(self) -> tuple[str, ...]:
        """The vectors, as long as the model or its trainable part, that it keeps in the client's memory."""
        return ()

    @property
    def gradients(self) -> tuple[str, ...]:
        """Which of them add up gradients, to be compared with everybody's."""
        return ()

    def adapt(self, task: Task, /) -> Task:
        """The task it needs: this one, one whose model has more, or a refusal. Adapting twice changes nothing."""
        return task

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        """What it does in this visit, from the model received (with its buffers), the client's memory and what the
        server shares."""
        return Effect()

    def finish(self, received: Vector, trained: Vector, visit: Visit, /) -> None:
        """What is still to be done to the trained model, in place, before anybody's `end`."""

    def end(self, received: Vector, trained: Vector, visit: Visit, /, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        """The client's new memory and what it sends besides the model, once per visit.

        `steps` counts plain steps: `(received - trained) / (steps * lr)` is a mean of the gradients of the visit.
        """
        return visit.memory, {}

    def specimen(self, task: Task, /) -> Tree | None:
        """The form of what it sends besides the model, as `Work.specimen` has it."""
        return {} if type(self).end is Term.end else None


def specimen_of(terms: Iterable[Term], task: Task) -> Tree | None:
    """The form of what all terms send; None if one of them does not say."""
    parts = [term.specimen(task) for term in terms]
    known = [part for part in parts if part is not None]
    return {key: value for part in known for key, value in part.items()} if len(known) == len(parts) else None


@dataclass(frozen=True)
class Proximal(Term):
    """A spring to the model *received*: in a chain, the previous client's (FedProx; FedSeq 2022, Eqs. 4-5)."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        within("mu", self.mu, least=0)

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        return Effect(Force(self.mu, visit.weights(received)))


@dataclass(frozen=True)
class Sharpness(Term):
    """The gradient is taken `rho` uphill (SAM: Foret et al. 2021), so that models end in flat places; every step costs
    two."""

    rho: float = 0.05
    sole: ClassVar[str] = "the radius of SAM"

    def __post_init__(self) -> None:
        within("rho", self.rho, least=0)

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        return Effect(uphill=self.rho)


def joined(*terms: Term) -> tuple[Term, ...]:
    """These terms together, the same one twice counting once; terms that cannot be together are refused."""
    parts = tuple(dict.fromkeys(terms))
    kept = [name for part in parts for name in part.keeps]
    twice = sorted({name for name in kept if kept.count(name) > 1})
    if twice:
        raise BadInput(f"two terms would both keep {', '.join(twice)} in the clients' memories")
    for number, part in enumerate(parts):
        rival = next((one for one in parts[:number] if part.sole and one.sole == part.sole), None)
        if rival is not None:
            raise BadInput(f"two terms decide {part.sole}, {rival} and {part}: only one of them can")
    return parts


def effect_of(terms: Sequence[Term], received: Vector, visit: Visit) -> Effect:
    """What all terms do in this visit."""
    return reduce(Effect.__add__, (term.begin(received, visit) for term in terms), NO_EFFECT) if terms else NO_EFFECT


def ended(
    terms: Sequence[Term], received: Vector, trained: Vector, visit: Visit, *, steps: float, lr: float
) -> tuple[Tree, Tree]:
    """What all terms leave behind: each keeps its own part of the client's memory."""
    if not terms:  # nearly always, and short visits are many
        return visit.memory, {}
    memory, uplink = dict(visit.memory), dict[str, object]()
    changed = False
    for term in terms:
        after, sent = term.end(received, trained, visit, steps=steps, lr=lr)
        if after is not visit.memory:
            changed = True
            memory |= {key: value for key, value in after.items() if visit.memory.get(key) is not value}
        twice = sorted(uplink.keys() & sent.keys())
        if twice:
            raise BadInput(f"two terms would both send {', '.join(twice)} to the server")
        uplink |= sent
    return memory if changed else visit.memory, uplink


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
