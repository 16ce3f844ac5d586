"""The one training loop: stochastic gradient descent on one client's examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.task import Desk, Loss, Task
from fedrelay.types import Baton, Report, Tree, Visit
from fedrelay.visits.objectives import Objective
from fedrelay.visits.pulls import Pull
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
        client, desk = visit.client, visit.task.desk
        labels = (visit.round, visit.hop, client.id)
        draw = seeds.rng(visit.seed, "visit", *labels)
        lr = self.lr * self.schedule(visit.round)
        desk.load(baton.params, training=True)
        weights, gradient = desk.weights, desk.gradient
        velocity = torch.zeros_like(weights) if self.momentum else None
        force = None if self.pull is None else self.pull.begin(baton.params[: len(weights)], visit)
        loss_of = None if self.objective is None else self.objective.begin(baton.params, visit)
        losses = torch.zeros(())
        examples = steps = 0
        with seeds.torch_seed(visit.seed, "visit", *labels):
            for positions in self.batches(client.size, draw):
                x, y = client.take(positions, draw)
                losses += self.differentiate(desk, x, y, loss_of) * len(y)
                examples += len(y)
                if self.clip is not None:
                    gradient.mul_((self.clip / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp(max=1.0))
                if force is not None:
                    force.act(gradient, weights)
                if self.weight_decay:
                    gradient.add_(weights, alpha=self.weight_decay)
                step = gradient if velocity is None else velocity.mul_(self.momentum).add_(gradient)
                weights.add_(step, alpha=-lr)
                steps += 1
        metrics = {"loss": float(losses) / examples}
        after = Baton(desk.params.clone(), baton.weight + client.size)
        if self.objective is not None:
            self.objective.end(baton.params, after.params, visit)
        memory: Tree = visit.memory
        uplink: Tree = {}
        if self.pull is not None:
            received, trained = baton.params[: len(weights)], after.params[: len(weights)]
            memory, uplink = self.pull.end(received, trained, visit, steps=plain_steps(steps, self.momentum), lr=lr)
        return after, memory, Report(client.id, examples, metrics, uplink)

    def differentiate(self, desk: Desk, x: torch.Tensor, y: torch.Tensor, loss_of: Loss | None) -> torch.Tensor:
        """Fill the desk's gradient from a batch and return the loss at the weights themselves."""
        loss = desk.differentiate(x, y, loss_of)
        if self.sam:
            before = desk.params.clone()
            uphill = self.sam / (torch.linalg.vector_norm(desk.gradient, dim=-1, keepdim=True) + 1e-12)
            desk.weights.add_(desk.gradient * uphill)
            desk.differentiate(x, y, loss_of)
            desk.params.copy_(before)  # the buffers too: the statistics of the step uphill do not count
        return loss

    def batches(self, size: int, draw: np.random.Generator) -> Iterator[torch.Tensor]:
        """Positions of every batch: a fresh shuffle per pass, the last batch of a pass may be smaller."""
        batch = min(self.batch or size, size)
        per_epoch = -(-size // batch)
        left = self.epochs * per_epoch if self.steps is None else self.steps
        while left > 0:
            order = torch.from_numpy(draw.permutation(size))
            for start in range(0, batch * min(per_epoch, left), batch):
                yield order[start : start + batch]
            left -= per_epoch


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
