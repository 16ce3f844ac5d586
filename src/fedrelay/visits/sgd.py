"""The one training loop: stochastic gradient descent on one client's examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.tasks.task import Desk, Loss, Stack, Task
from fedrelay.types import Baton, Report, Tree, Vector, Visit
from fedrelay.visits.batches import Batch, Row, alone, side_by_side
from fedrelay.visits.objectives import Objective
from fedrelay.visits.pulls import Force, Pull
from fedrelay.visits.schedules import Constant, Schedule


@dataclass(frozen=True)
class Sgd:
    """Train the baton on the client: `epochs` passes, or exactly `steps` steps if given.

    `batch` 0 takes all of the client's examples at once. The optimiser is new at every visit, so momentum does not
    travel. `clip` bounds the norm of the loss gradient, before weight decay. `sam` is the radius of sharpness-aware
    minimisation (Foret et al. 2021): the gradient is taken that far uphill, which costs a second pass. `pull` adds to
    the gradient, `objective` takes the place of the loss. A model that comes out more than `guard` times as long as it
    went in has diverged: its client is dropped.
    """

    epochs: int = 1
    steps: int | None = None
    batch: int = 32
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    schedule: Schedule = Constant()
    sam: float = 0.0
    guard: float | None = 1e4
    pull: Pull | None = None
    objective: Objective | None = None

    def __post_init__(self) -> None:
        within("epochs", self.epochs, least=1)
        within("batch", self.batch, least=0)
        within("lr", self.lr, least=0)
        within("momentum", self.momentum, least=0)
        within("weight_decay", self.weight_decay, least=0)
        if self.momentum >= 1:
            raise BadInput(f"momentum must be below 1, not {self.momentum:g}")
        if self.steps is not None:
            within("steps", self.steps, least=1)
        if self.clip is not None:
            within("clip", self.clip, above=0)
        within("sam", self.sam, least=0)
        if self.guard is not None:
            within("guard", self.guard, above=1)

    @property
    def keeps(self) -> tuple[str, ...]:
        """The vectors, as long as the trainable part of the model, that it keeps in the clients' memories."""
        return () if self.pull is None else self.pull.keeps

    def adapt(self, task: Task) -> Task:
        """The task as the objective asks for it."""
        return task if self.objective is None else self.objective.adapt(task)

    def __call__(self, baton: Baton, visit: Visit, /) -> tuple[Baton, Tree, Report]:
        desk = visit.task.desk
        desk.load(baton.params, training=True)
        force = None if self.pull is None else self.pull.begin(baton.params[: desk.weights.shape[0]], visit)
        loss_of = None if self.objective is None else self.objective.begin(baton.params, visit)
        course = self.course(desk, visit, force, loss_of)
        quiet = loss_of is None and not desk.draws
        with nullcontext() if quiet else seeds.torch_seed(visit.seed, *labels(visit)):
            self.descend(course, alone(self.row(visit)))
        return self.finish(baton, visit, desk.params.clone(), float(course.losses))

    def stacks(self, task: Task, /) -> bool:
        """Several visits can be made at once if nothing takes the place of the loss, and the network is known."""
        return self.objective is None and task.stacks

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> list[tuple[Baton, Tree, Report]]:
        """Several visits at once, one model a row: what they would be one by one, up to rounding."""
        # Those with most steps come first, so that the rows still in training are always the first ones.
        order = sorted(range(len(visits)), key=lambda number: -self.lengths(visits[number].client.size)[0])
        pairs = [(batons[number], visits[number]) for number in order]
        stack = visits[0].task.stack(len(visits))
        torch.stack([baton.params for baton, _ in pairs], out=stack.weights)
        force = None if self.pull is None else Force.rows([self.pull.begin(b.params, visit) for b, visit in pairs])
        course = self.course(stack, visits[0], force, None)
        for going, batches in side_by_side([self.row(visit) for _, visit in pairs]):
            self.descend(course.first(going), batches)
        done = [
            self.finish(baton, visit, params.clone(), loss)
            for (baton, visit), params, loss in zip(pairs, stack.weights, course.losses.tolist(), strict=True)
        ]
        return [done[order.index(number)] for number in range(len(order))]

    def course(self, desk: Desk | Stack, visit: Visit, force: Force | None, loss_of: Loss | None) -> Course:
        """Training that is about to begin at a desk."""
        velocity = torch.zeros_like(desk.weights) if self.momentum else None
        losses = torch.zeros(desk.weights.shape[:-1])
        return Course(desk, self.lr * self.schedule(visit.round), force, loss_of, velocity, losses)

    def descend(self, course: Course, batches: Iterable[Batch]) -> None:
        """THE loop. It does not know whether it trains one model or several: everything acts on rows as on vectors."""
        desk, velocity, losses = course.desk, course.velocity, course.losses
        weights, gradient = desk.weights, desk.gradient
        plain = self.plain and course.force is None and course.loss_of is None
        for x, y, count in batches:
            loss = desk.step(x, y, course.lr) if plain else self.differentiate(desk, x, y, course.loss_of)
            losses.add_(loss, alpha=count) if isinstance(count, int) else losses.addcmul_(loss, count)
            if plain:  # then the step is taken
                continue
            if self.clip is not None:
                norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
                gradient.mul_((self.clip / (norm + 1e-6)).clamp(max=1.0))
            if course.force is not None:
                course.force.act(gradient, weights)
            if self.weight_decay:
                gradient.add_(weights, alpha=self.weight_decay)
            step = gradient if velocity is None else velocity.mul_(self.momentum).add_(gradient)
            weights.add_(step, alpha=-course.lr)

    @property
    def plain(self) -> bool:
        """Whether a step is the gradient times the rate and nothing more."""
        return self.clip is None and not (self.momentum or self.weight_decay or self.sam)

    def differentiate(self, desk: Desk | Stack, x: torch.Tensor, y: torch.Tensor, loss_of: Loss | None) -> torch.Tensor:
        """Fill the desk's gradient from a batch and return the loss at the weights themselves."""
        loss = desk.differentiate(x, y, loss_of)
        if self.sam:
            before = desk.params.clone()
            uphill = self.sam / (torch.linalg.vector_norm(desk.gradient, dim=-1, keepdim=True) + 1e-12)
            desk.weights.add_(desk.gradient * uphill)
            desk.differentiate(x, y, loss_of)
            desk.params.copy_(before)  # the buffers too: the statistics of the step uphill do not count
        return loss

    def finish(self, baton: Baton, visit: Visit, params: Vector, losses: float) -> tuple[Baton, Tree, Report]:
        """What a visit leaves behind, when its model is trained."""
        client = visit.client
        steps, examples = self.lengths(client.size)
        if self.objective is not None:
            self.objective.end(baton.params, params, visit)
        memory: Tree = visit.memory
        uplink: Tree = {}
        if self.pull is not None:
            lr, trainable = self.lr * self.schedule(visit.round), visit.task.layout.trainable
            received, trained = baton.params[:trainable], params[:trainable]
            memory, uplink = self.pull.end(received, trained, visit, steps=plain_steps(steps, self.momentum), lr=lr)
        report = Report(client.id, examples, {"loss": losses / examples}, uplink)
        return Baton(params, baton.weight + client.size), memory, report

    def row(self, visit: Visit) -> Row:
        """The batches that this visit draws."""
        draw = seeds.rng(visit.seed, *labels(visit))
        size = visit.client.size
        steps, _ = self.lengths(size)
        return Row(visit.client, self.passes(size, draw), min(self.batch or size, size), draw, steps)

    def passes(self, size: int, draw: np.random.Generator) -> Iterator[torch.Tensor]:
        """Positions in a fresh order per pass; the last pass ends where the last step does."""
        _, left = self.lengths(size)
        while left > 0:
            order = torch.from_numpy(draw.permutation(size))
            yield order[:left] if left < size else order
            left -= size

    def lengths(self, size: int) -> tuple[int, int]:
        """How many steps a visit to a client of this size has, and how many examples it processes."""
        batch = min(self.batch or size, size)
        per_epoch = -(-size // batch)
        steps = self.epochs * per_epoch if self.steps is None else self.steps
        passes, rest = divmod(steps, per_epoch)
        return steps, passes * size + min(rest * batch, size)


@dataclass(frozen=True)
class Course:
    """Training under way: of the model on a desk, or of those on a stack of desks, one a row of everything."""

    desk: Desk | Stack
    lr: float
    force: Force | None
    loss_of: Loss | None
    velocity: torch.Tensor | None
    losses: torch.Tensor
    """The sums, over all examples so far."""

    def first(self, rows: int) -> Course:
        """The first rows of a stack alone."""
        if not isinstance(self.desk, Stack) or rows == len(self.losses):
            return self
        force = None if self.force is None else self.force.first(rows)
        velocity = None if self.velocity is None else self.velocity[:rows]
        return Course(self.desk.first(rows), self.lr, force, None, velocity, self.losses[:rows])


def labels(visit: Visit) -> tuple[str, int, int, int]:
    """What a visit's random numbers derive from, besides the seed."""
    return "visit", visit.round, visit.hop, visit.client.id


def plain_steps(steps: int, momentum: float) -> float:
    """How many steps without momentum the visit amounts to: the sum of the weights its gradients had in its way.

    Gradient k of K is felt for K - k + 1 steps: it moves the model by lr * (1 - momentum^(K - k + 1)) / (1 - momentum).
    """
    if not momentum:
        return float(steps)
    return sum((1 - momentum**k) / (1 - momentum) for k in range(1, steps + 1))


def minimising(local: Sgd, objective: Objective) -> Sgd:
    """The same training with this objective; another one that is there already is not silently replaced."""
    if local.objective not in (None, objective):
        raise BadInput(f"only one objective can take the place of the loss: {local.objective} or {objective}, not both")
    return replace(local, objective=objective)
