"""The one training loop: gradient descent on one client's examples, or on those of several clients side by side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.kernels.workspace import BatchLoss, StackedWorkspace, Workspace
from fedrelay.tasks import Task
from fedrelay.types import GIVEN, LATER, Baton, Report, Result, Tree, Vector, Visit, Work
from fedrelay.visits import batches
from fedrelay.visits.native import NativeLoop, native_loop, native_visits
from fedrelay.visits.noise import PerExample, noise_rng, refuse_buffers
from fedrelay.visits.progress import Progress, batch_loss, differentiate
from fedrelay.visits.schedules import Constant, Schedule
from fedrelay.visits.terms import Effect, Term, effect_of, ended, joined, recall, specimen_of
from fedrelay.visits.validation import Epoch, better, held_out, number_held, split, tell_poor_choice

if TYPE_CHECKING:
    from fedrelay.visits.optimisers import Optimiser


MOMENTUM = "momentum"
"""Its name in a client's memory, where it goes on at the next visit."""
FEW_STEPS = 10
"""So many show how fast steps are."""


@dataclass(frozen=True)
class Training(Work):
    """Train the baton on the client; how a step is made of a gradient, the optimiser says.

    Args:
        epochs: passes over the client's examples.
        steps: exactly so many steps, in place of epochs.
        batch: examples of a step; 0 takes all of the client's at once.
        lr: the learning rate.
        weight_decay: how strongly weights are drawn to zero.
        clip: the longest that the loss gradient may be, before weight decay and terms.
        schedule: how the learning rate changes from round to round.
        guard: a model that comes out more than so many times as long as it went in has diverged: its client is dropped.
        keep: the model after the last epoch, or after the best one on the client's validation part (the first of
            equals).
        validation: the share of its examples that a client holds out and does not train on: always the same ones.
        terms: what is added to the training.
    """

    epochs: int = 1
    steps: int | None = None
    batch: int = 32
    lr: float = 0.05
    weight_decay: float = 0.0
    clip: float | None = None
    schedule: Schedule = Constant()
    guard: float | None = 1e4
    keep: Literal["last", "best"] = "last"
    validation: float = 0.0
    terms: tuple[Term, ...] = ()
    per_example: PerExample | None = field(default=None, metadata={GIVEN: True, LATER: True})
    """Noise in every step, of which privacy at the level of examples is made."""

    def __post_init__(self) -> None:
        within("epochs", self.epochs, least=1)
        within("batch", self.batch, least=0)
        within("lr", self.lr, least=0)
        within("weight_decay", self.weight_decay, least=0)
        if self.steps is not None:
            within("steps", self.steps, least=1)
        if self.clip is not None:
            within("clip", self.clip, above=0)
        if self.guard is not None:
            within("guard", self.guard, above=1)
        if self.keep not in ("last", "best"):
            raise BadInput(f"keep must be last or best, not {self.keep!r}")
        within("validation", self.validation, least=0, most=0.9)
        if self.keep == "best" and not self.validation:
            raise BadInput('keep = "best" needs a part to find the best epoch on: validation = 0.1 holds a tenth out')
        object.__setattr__(self, "terms", joined(*self.terms))
        reading = next((term for term in self.terms if term.reads_steps), None)
        if reading is not None and self.plain_steps(1) is None:
            raise BadInput(
                f"{reading} reads gradients off the way a model went, which {type(self).__name__} scales number by "
                "number: use SGD"
            )

    @abstractmethod
    def optimiser(self, weights: torch.Tensor) -> Optimiser:
        """A new optimiser for these weights."""

    @property
    def plain(self) -> bool:
        """Whether its step is the gradient times the rate and nothing more."""
        return False

    def plain_steps(self, steps: int) -> float | None:
        """How many steps of plain gradient descent so many steps amount to; None if they are no sum of gradients."""
        return None

    @property
    def carries(self) -> bool:
        """Whether the momentum of the last step goes on at the client's next visit."""
        return False

    @property
    def keeps(self) -> tuple[str, ...]:
        kept = tuple(name for term in self.terms for name in term.keeps)
        return (*kept, MOMENTUM) if self.carries else kept

    @property
    def gradients(self) -> tuple[str, ...]:
        """Which of the vectors that terms keep add up gradients."""
        return tuple(name for term in self.terms for name in term.gradients)

    @property
    def brief(self) -> tuple[Training, float]:
        if self.steps is None:
            return replace(self, epochs=1, keep="last"), float(self.epochs)
        few = min(self.steps, FEW_STEPS)
        return replace(self, steps=few, keep="last"), self.steps / few

    def counted(self, size: int, /) -> int:
        return size - number_held(size, self.validation)

    def at_once(self, size: int, /) -> int:
        return min(self.batch or size, size)

    def adapt(self, task: Task, /) -> Task:
        for term in self.terms:
            task = term.adapt(task)
        if self.per_example is not None:
            refuse_buffers(task, ())
        return task

    def specimen(self, task: Task, /) -> Tree | None:
        return specimen_of(self.terms, task)

    def describing(self, work: Work, /) -> Work:
        if self.per_example is not None and self.per_example.noise:
            raise BadInput(
                f"{type(work).__name__} tells of all of a client's examples at once, and the noise is in the steps of "
                'training: group at random, or take level = "client"'
            )
        return work

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        held, best = held_out(visit, self.validation) if self.keep == "best" else None, None
        for epoch in self.train(baton, visit):
            if held is not None:
                best = better(best, epoch, held, visit)
        if self.keep == "best":
            tell_poor_choice(best, visit)
        params = visit.workspaces.main.model() if best is None else best.params
        return self.finish(baton, self.without_held_out(visit), params, epoch if best is None else best.epoch)

    def train(self, baton: Baton, visit: Visit) -> Iterator[Epoch]:
        """Train in the visit's main workspace, where the model is to be seen at the end of every epoch."""
        visit, workspace = self.without_held_out(visit), visit.workspaces.main
        workspace.load(baton.params, training=True)
        effect = effect_of(self.terms, baton.params, visit)
        loop = native_loop(self, effect, visit) or Loop(self, self.begin(workspace, visit, effect), visit)
        size, fold = visit.client.size, visit.task.parts.by_batch
        _, examples = self.lengths(size, fold=fold)
        with self.drawing(loop, visit):
            for number, some in enumerate(loop.passes, start=1):
                loop.descend(some)
                seen = min(number * size, examples)
                steps, kept = self.steps_for(seen, size, fold=fold), loop.momentum if self.carries else None
                yield Epoch(number, steps, seen, loop.losses, kept)

    def drawing(self, loop: Loop | NativeLoop, visit: Visit) -> AbstractContextManager[None]:
        """Inside, what a loop draws comes from the visit's seed; most draw nothing."""
        device = visit.workspaces.device
        return nullcontext() if loop.quiet else seeds.torch_seed(visit.seed, *labels(visit), device=device)

    def drawn(self, visit: Visit) -> Iterator[Iterator[batches.Batch]]:
        """The batches of a visit, pass by pass."""
        if self.per_example is None:
            return batches.alone(self.row(visit))
        size, fold = visit.client.size, visit.task.parts.by_batch
        steps, a_pass = self.lengths(size, fold=fold)[0], in_pass(size, min(self.batch or size, size), fold=fold)
        return batches.poisson(visit.client, self.rate(size), steps, a_pass, seeds.rng(visit.seed, *labels(visit)))

    def rate(self, size: int) -> float:
        """The probability with which an example is in a step, where batches are drawn by Poisson sampling."""
        return min((self.batch or size) / size, 1.0)

    def stacks(self, task: Task, /) -> bool:
        """Several visits can be made at once if no term looks at batches, and the network is known."""
        alike = self.keep == "last" and not self.carries and self.per_example is None
        return alike and all(term.stacks for term in self.terms) and task.stacks

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> list[Result]:
        """Several visits at once, one model a row: what they would be one by one, up to rounding."""
        whole, visits = visits, [self.without_held_out(visit) for visit in visits]
        native = native_visits(self, batons, visits)
        if native is not None:
            return native
        if not visits[0].task.stacks:  # only natively, and not with these terms
            return [self(baton, visit) for baton, visit in zip(batons, whole, strict=True)]
        # Those with most steps come first, so that the rows still in training are always the first ones.
        lengths = [self.lengths(visit.client.size, fold=visit.task.parts.by_batch) for visit in visits]
        order = sorted(range(len(visits)), key=lambda number: -lengths[number][0])
        pairs = [(batons[number], visits[number]) for number in order]
        stack = visits[0].workspaces.stack(len(visits))
        torch.stack([baton.params for baton, _ in pairs], out=stack.weights)
        effect = Effect.rows([effect_of(self.terms, baton.params, visit) for baton, visit in pairs])
        progress = self.begin(stack, visits[0], effect)
        for going, some in batches.side_by_side([self.row(visit) for _, visit in pairs]):
            self.descend(progress.first(going), some)
        done = [
            self.finish(baton, visit, params.clone(), Epoch(0, *lengths[number], loss))
            for number, (baton, visit), params, loss in zip(
                order, pairs, stack.weights, progress.losses.tolist(), strict=True
            )
        ]
        return [done[order.index(number)] for number in range(len(order))]

    def begin(self, workspace: Workspace | StackedWorkspace, visit: Visit, effect: Effect) -> Progress:
        """Training that is about to begin in a workspace."""
        losses = workspace.weights.new_zeros(workspace.weights.shape[:-1])
        lr, optimiser = self.lr * self.schedule(visit.round), self.new_optimiser(workspace.weights, visit)
        loss_of = batch_loss(workspace, visit.task, effect)
        return Progress(workspace, lr, effect, loss_of, optimiser, losses, self.private_gradient(workspace, visit))

    def new_optimiser(self, weights: torch.Tensor, visit: Visit) -> Optimiser:
        """The optimiser of a visit, with the momentum that the client has kept, if it keeps some."""
        optimiser = self.optimiser(weights)
        if self.carries and optimiser.momentum is not None:
            optimiser.momentum.copy_(recall(visit.memory, MOMENTUM, weights))
        return optimiser

    def private_gradient(self, workspace: Workspace | StackedWorkspace, visit: Visit) -> BatchLoss | None:
        """What fills a workspace's gradient from a batch where there is noise in every step; None if there is none."""
        private = self.per_example
        if private is None:
            return None
        assert isinstance(workspace, Workspace)
        rng, size = noise_rng(visit), visit.client.size
        batch = min(self.batch or size, size)
        return lambda x, y: private.differentiate(workspace, visit.task, x, y, batch=batch, rng=rng)

    def descend(self, progress: Progress, some: Iterable[batches.Batch]) -> None:
        """THE loop. It does not know whether it trains one model or several: everything acts on rows as on vectors."""
        workspace, effect, losses, lr = progress.workspace, progress.effect, progress.losses, progress.lr
        weights, gradient = workspace.weights, workspace.gradient
        force = effect.force if effect.force is not None and effect.force.acts else None
        # An optimiser that scales number by number would make steps of full length of mere rounding.
        exact = self.plain_steps(1) is None
        changed = force is not None or progress.loss_of is not None or effect.uphill or self.clip is not None
        changed = changed or progress.private is not None
        plain = self.plain and not (changed or effect.held or effect.guides)
        still = [(weights[..., place], weights[..., place].clone()) for place in effect.held]
        for x, y, count in some:
            loss = workspace.step(x, y, lr) if plain else differentiate(progress, x, y)
            losses.add_(loss, alpha=count) if isinstance(count, int) else losses.addcmul_(loss, count)
            if plain:  # then the step is taken
                continue
            if self.clip is not None:
                norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
                gradient.mul_((self.clip / (norm + 1e-6)).clamp(max=1.0))
            if force is not None:
                force.act(gradient, weights, exact=exact)
            for guide in effect.guides:
                guide(gradient, weights, float(loss))
            progress.optimiser.step(weights, gradient, lr)
            for here, before in still:
                here.copy_(before)

    def finish(self, baton: Baton, visit: Visit, params: Vector, epoch: Epoch) -> Result:
        """What a visit leaves behind, when its model is trained."""
        for term in self.terms:
            term.finish(baton.params, params, visit)
        steps, lr = self.plain_steps(epoch.steps), self.lr * self.schedule(visit.round)
        steps = float(epoch.steps) if steps is None else steps
        memory, uplink = ended(self.terms, baton.params, params, visit, steps=steps, lr=lr)
        if epoch.momentum is not None:
            memory = {**memory, MOMENTUM: epoch.momentum}
        size = visit.client.size
        examples = epoch.examples
        if self.keep == "best":  # those after the best epoch were worked on too
            _, examples = self.lengths(size, fold=visit.task.parts.by_batch)
        told = {} if self.per_example and self.per_example.noise else {"loss": epoch.losses / epoch.examples}
        report = Report(visit.client.id, examples, told, uplink)
        return Baton(params, baton.weight + size), memory, report

    def without_held_out(self, visit: Visit) -> Visit:
        """The visit as training and terms see it: nothing may learn from the examples that are held out."""
        return visit if not self.validation else replace(visit, client=split(visit, self.validation)[0])

    def number(self, visit: Visit) -> int:
        """What the generator of a visit's batches begins with."""
        return seeds.derive(visit.seed, *labels(visit))

    def row(self, visit: Visit) -> batches.Row:
        """The batches that this visit draws."""
        draw, client = seeds.rng(visit.seed, *labels(visit)), visit.client
        fold = visit.task.parts.by_batch
        steps, examples = self.lengths(client.size, fold=fold)
        batch = min(self.batch or client.size, client.size)
        return batches.Row(client, passes(client.size, examples, draw), batch, draw, steps, fold)

    def lengths(self, size: int, *, fold: bool = False) -> tuple[int, int]:
        """How many steps a visit to a client of this size has, and how many examples it processes. `fold`: a last batch
        of one example goes with the batch before it, because BatchNorm can make nothing of one."""
        batch = min(self.batch or size, size)
        per_epoch = in_pass(size, batch, fold=fold)
        steps = self.epochs * per_epoch if self.steps is None else self.steps
        done, rest = divmod(steps, per_epoch)
        return steps, done * size + min(rest * batch, size)

    def steps_for(self, examples: int, size: int, *, fold: bool = False) -> int:
        """How many steps it takes to process so many examples of a client of this size."""
        batch = min(self.batch or size, size)
        done, rest = divmod(examples, size)
        return done * in_pass(size, batch, fold=fold) + -(-rest // batch)


def passes(size: int, examples: int, draw: np.random.Generator) -> Iterator[torch.Tensor]:
    """Positions in a fresh order per pass; the last pass ends where the last step does."""
    left = examples
    while left > 0:
        order = torch.from_numpy(draw.permutation(size))
        yield order[:left] if left < size else order
        left -= size


def in_pass(size: int, batch: int, *, fold: bool) -> int:
    """How many steps a pass over all examples has."""
    alone = fold and size > batch and size % batch == 1
    return -(-size // batch) - alone


class Loop:
    """The steps of one visit in the interpreter."""

    def __init__(self, training: Training, progress: Progress, visit: Visit) -> None:
        assert isinstance(progress.workspace, Workspace)
        self._training, self._progress = training, progress
        self.passes = training.drawn(visit)
        self.quiet = progress.loss_of is None and not progress.workspace.draws

    def descend(self, some: Iterable[batches.Batch]) -> None:
        """Make the steps of one pass."""
        self._training.descend(self._progress, some)

    @property
    def losses(self) -> float:
        return float(self._progress.losses)

    @property
    def momentum(self) -> torch.Tensor | None:
        return self._progress.optimiser.momentum


def labels(visit: Visit) -> tuple[str | int, ...]:
    """What a visit's random numbers derive from, besides the seed."""
    here = "visit", visit.round, visit.hop, visit.client.id
    return (*here, visit.part) if visit.part else here
