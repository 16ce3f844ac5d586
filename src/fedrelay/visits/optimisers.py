"""Local optimisers: how a step is made of a gradient. Each is new at every visit, and nothing of it travels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from fedrelay.errors import BadInput, within
from fedrelay.kernels.native import KINDS, Rule
from fedrelay.types import LATER
from fedrelay.visits.training import Training


class Optimiser(ABC):
    """The optimiser of one visit (or of several, one a row): everything acts on rows as on vectors."""

    @abstractmethod
    def step(self, weights: torch.Tensor, gradient: torch.Tensor, lr: float) -> None:
        """Move the weights, in place; the gradient may be overwritten."""

    @property
    def momentum(self) -> torch.Tensor | None:
        """What of earlier steps goes on in the next one, if that is one vector; it may be overwritten."""
        return None

    @property
    def forgets(self) -> bool:
        """Whether a step has nothing of the steps before it."""
        return False

    @abstractmethod
    def first(self, rows: int) -> Optimiser:
        """The optimiser of the first rows alone, at the same place in memory."""

    def rule(self) -> Rule | None:
        """The same steps, as the compiled loop takes them (what it keeps is where it is kept here); None: it cannot."""
        return None


@dataclass(frozen=True)
class Descent(Optimiser):
    """Gradient descent: v ← momentum · v + g + weight_decay · w, w ← w - lr · v."""

    factor: float
    weight_decay: float
    velocity: torch.Tensor | None

    @property
    def momentum(self) -> torch.Tensor | None:
        return self.velocity

    @property
    def forgets(self) -> bool:
        return self.velocity is None

    def step(self, weights: torch.Tensor, gradient: torch.Tensor, lr: float) -> None:
        if self.weight_decay:
            gradient.add_(weights, alpha=self.weight_decay)
        step = gradient if self.velocity is None else self.velocity.mul_(self.factor).add_(gradient)
        weights.add_(step, alpha=-lr)

    def first(self, rows: int) -> Descent:
        return self if self.velocity is None else Descent(self.factor, self.weight_decay, self.velocity[:rows])

    def rule(self) -> Rule:
        velocity = None if self.velocity is None else self.velocity.data_ptr()
        return Rule(kind=KINDS["sgd"], momentum=self.factor, weight_decay=self.weight_decay, velocity=velocity)


@dataclass(frozen=True)
class Adaptive(Optimiser):
    """Adam on one flat vector, by torch's own fused kernel; `decoupled` weight decay acts on the weights themselves."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    decoupled: bool
    mean: torch.Tensor
    square: torch.Tensor
    steps: torch.Tensor

    def step(self, weights: torch.Tensor, gradient: torch.Tensor, lr: float) -> None:
        (adamw if self.decoupled else adam)(
            [weights],
            [gradient],
            [self.mean],
            [self.square],
            [],
            [self.steps],
            fused=True,
            amsgrad=False,
            beta1=self.beta1,
            beta2=self.beta2,
            lr=lr,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )

    def first(self, rows: int) -> Adaptive:
        return Adaptive(
            self.beta1,
            self.beta2,
            self.eps,
            self.weight_decay,
            self.decoupled,
            self.mean[:rows],
            self.square[:rows],
            self.steps,
        )

    def rule(self) -> Rule:
        kind = KINDS["adamw" if self.decoupled else "adam"]
        betas, kept = (self.beta1, self.beta2), (self.mean.data_ptr(), self.square.data_ptr())
        return Rule(
            kind=kind,
            weight_decay=self.weight_decay,
            eps=self.eps,
            **dict(zip(("beta1", "beta2", "velocity", "square"), betas + kept, strict=True)),
        )


@dataclass(frozen=True)
class Sgd(Training):
    """Stochastic gradient descent on the client's examples: `epochs` passes, or exactly `steps` steps if given.

    Args:
        epochs, steps, batch, lr, weight_decay, clip, schedule, guard, keep, validation, terms: see `Training`.
        momentum: of the steps of one visit; it does not travel. Weight decay is part of the gradient.
        carry_momentum: whether the momentum goes on at the client's next visit, as in one long training; it stays at
            the client. So centralised training is that of a book: a round is an epoch of it.
    """

    momentum: float = 0.0
    carry_momentum: bool = field(default=False, metadata={LATER: True})

    def __post_init__(self) -> None:
        super().__post_init__()
        below_one("momentum", self.momentum)
        if self.carry_momentum:
            self.check_carrying()

    def check_carrying(self) -> None:
        """Refuse what does not go with momentum from earlier visits."""
        if not self.momentum:
            raise BadInput("carry_momentum needs a momentum to carry: momentum = 0.9, or leave it out")
        if self.keep == "best":
            raise BadInput('carry_momentum goes on from the last epoch, so it does not go with keep = "best"')
        reading = next((term for term in self.terms if term.reads_steps), None)
        if reading is not None:
            raise BadInput(f"{reading} reads the gradients of one visit off its way: leave carry_momentum out")

    @property
    def carries(self) -> bool:
        return self.carry_momentum

    @property
    def plain(self) -> bool:
        return not (self.momentum or self.weight_decay)

    def optimiser(self, weights: torch.Tensor) -> Descent:
        velocity = torch.zeros_like(weights) if self.momentum else None
        return Descent(self.momentum, self.weight_decay, velocity)

    def plain_steps(self, steps: int) -> float:
        return plain_steps(steps, self.momentum)


@dataclass(frozen=True)
class Adam(Training):
    """Adam at the clients (Kingma & Ba 2015): every number has a step of its own; weight decay is part of the gradient.

    Args:
        epochs, steps, batch, weight_decay, clip, schedule, guard, keep, validation, terms: see `Training`.
        lr: usually far smaller than for SGD; 0.001 is Adam's own default.
        beta1, beta2, eps: as in the paper.
    """

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_adaptive(self.beta1, self.beta2, self.eps)

    def optimiser(self, weights: torch.Tensor) -> Adaptive:
        return adaptive(self, weights)


@dataclass(frozen=True)
class AdamW(Training):
    """Adam whose weight decay acts on the weights themselves, not through the gradient (Loshchilov & Hutter 2019).

    Args:
        epochs, steps, batch, clip, schedule, guard, keep, validation, terms: see `Training`.
        lr, beta1, beta2, eps: as Adam's.
        weight_decay: the weights lose this share, times lr, at every step.
    """

    lr: float = 0.001
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_adaptive(self.beta1, self.beta2, self.eps)

    def optimiser(self, weights: torch.Tensor) -> Adaptive:
        return adaptive(self, weights)


def adaptive(local: Adam | AdamW, weights: torch.Tensor) -> Adaptive:
    """A new optimiser for these weights."""
    mean, square = torch.zeros_like(weights), torch.zeros_like(weights)
    settings = local.beta1, local.beta2, local.eps, local.weight_decay, local.decoupled
    return Adaptive(*settings, mean, square, weights.new_zeros(()))


def check_adaptive(beta1: float, beta2: float, eps: float) -> None:
    below_one("beta1", beta1)
    below_one("beta2", beta2)
    within("eps", eps, above=0)


def below_one(name: str, value: float) -> None:
    within(name, value, least=0)
    if value >= 1:
        raise BadInput(f"{name} must be below 1, not {value:g}")


def plain_steps(steps: int, momentum: float) -> float:
    """How many steps without momentum the visit amounts to: the sum of the weights its gradients had in its way.

    Gradient k of K is felt for K - k + 1 steps: it moves the model by lr * (1 - momentum^(K - k + 1)) / (1 - momentum).
    """
    if not momentum:
        return float(steps)
    return sum((1 - momentum**k) / (1 - momentum) for k in range(1, steps + 1))


OPTIMISERS: dict[str, type[Training]] = {"sgd": Sgd, "adam": Adam, "adamw": AdamW}
"""What `[local] optimiser` chooses from."""
