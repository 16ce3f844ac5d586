"""The training loop outside the interpreter, for what can be done there: the same steps, up to rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from ctypes import c_float
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch

from fedrelay import seeds
from fedrelay.data.augment import Augment, Levelled, Normalise
from fedrelay.data.examples import Examples
from fedrelay.kernels.native import Dense, Rule, Way, WholeVisits, draws_orders, passes
from fedrelay.kernels.workspace import Workspace
from fedrelay.system.threads import side_by_side
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Result, Vector, Visit
from fedrelay.visits import batches
from fedrelay.visits.terms import Effect, effect_of
from fedrelay.visits.validation import Epoch

if TYPE_CHECKING:
    from fedrelay.visits.optimisers import Optimiser
    from fedrelay.visits.training import Training

OURS = (Normalise, Levelled, Augment)
"""Transforms that any number of threads may use at once."""
Pass: TypeAlias = torch.Tensor | Iterator[batches.Batch]
"""The rows of a pass, to be taken as they lie; or what was taken of them, several batches in one."""


def native_loop(training: Training, effect: Effect, visit: Visit, like: NativeLoop | None = None) -> NativeLoop | None:
    """What trains outside the interpreter, if that can do all that is asked for. `like` is a loop of the same training,
    whose rule serves this visit too if nothing in it is the visit's own."""
    workspace = visit.workspaces.main
    if like is not None and like.forgets and workspace.dense is not None:
        return NativeLoop(workspace.dense, like.rule, like.kept, training, visit, like)
    special = effect.losses or effect.run or effect.uphill or effect.held or effect.guides or training.per_example
    if workspace.dense is None or special:
        return None
    optimiser = training.new_optimiser(workspace.weights, visit)
    rule = optimiser.rule()
    if rule is None:
        return None
    kept = optimiser, effect
    return NativeLoop(workspace.dense, completed(rule, training, effect, visit), kept, training, visit, like)


class NativeLoop:
    """One visit: its passes over the client's examples, and what to do with each."""

    steps: int
    examples: int
    """How many it makes and goes through."""
    source: Examples | None
    """The client's examples, if they can be taken as they lie in memory."""
    shares: bool
    """Whether it can go on beside others: code of the user's, or a file that is read, may not be made for that."""
    whole: bool
    """Whether the library can make all of it in one call."""
    _size: int
    _batch: int

    def __init__(
        self,
        dense: Dense,
        rule: Rule,
        kept: tuple[Optimiser, Effect],
        training: Training,
        visit: Visit,
        like: NativeLoop | None = None,
    ) -> None:
        client = visit.client
        self._dense, self._training, self._visit = dense, training, visit
        self.rule, self.kept = rule, kept  # what the rule points to must stay as long as the visit
        self.losses = 0.0
        self._seed, examples = training.number(visit), cast("Any", client.examples)
        if like is not None and like._visit.client.examples is examples and like._size == client.size:
            self._size, self._batch, self.steps, self.examples = like._size, like._batch, like.steps, like.examples
            self.source, self.shares, self.whole = like.source, like.shares, like.whole
        else:
            size = self._size = client.size
            self._batch, (self.steps, self.examples) = training.at_once(size), training.lengths(size)
            plain = type(examples) is Examples and not examples.transform
            self.source = examples if plain and dense.takes(examples.x, examples.y) else None
            self.shares = plain or (type(examples) is Examples and type(examples.transform) in OURS)
            self.whole = self.source is not None and not dense.draws and draws_orders(size)
        self._draw = seeds.torch_generator(self._seed) if dense.draws and self.shares else None

    @property
    def quiet(self) -> bool:
        """Nothing in it draws from torch's global generator: dropout has one of its own, and the user's code is not in
        it, or never finds that one seeded."""
        return self.shares or not self._visit.workspaces.main.draws

    @property
    def momentum(self) -> torch.Tensor | None:
        return self.kept[0].momentum

    @property
    def forgets(self) -> bool:
        """Whether its rule is that of other visits too."""
        return not self._training.terms and self.kept[0].forgets

    @property
    def passes(self) -> Iterator[Pass]:
        """All of them, to be gone through once."""
        training, visit, rows = self._training, self._visit, self._visit.client.rows
        if self.source is None:
            return batches.alone(training.row(visit), joined=True)
        return passes(self._seed, rows, self.examples) or (
            rows.index_select(0, order) for order in training.row(visit).passes
        )

    def descend(self, some: Pass, dense: Dense | None = None) -> None:
        """Make the steps of one pass, at the place that it was made for or at another one."""
        dense, batch = dense or self._dense, self._batch
        if isinstance(some, torch.Tensor):
            assert self.source is not None
            total = dense.descend(self.source.x, self.source.y, batch, self.rule, some, self._draw)
        else:
            total = sum(dense.descend(x, y, batch, self.rule, draw=self._draw) for x, y, _ in some)
        self.losses = c_float(self.losses + c_float(total).value).value  # in float32, as the other loop adds them up

    def way(self, received: Vector) -> Way:
        """The whole of it, from this model on."""
        rows = self._visit.client.rows.long().contiguous()
        return Way(received, rows, self._seed, self.examples, self._batch, self.rule)

    def trained(self, received: Vector, workspace: Workspace) -> Vector:
        """The model after all passes, made one by one in this workspace."""
        workspace.load(received, training=True)
        with self._training.drawing(self, self._visit):
            for some in self.passes:
                self.descend(some, workspace.dense)
        return workspace.model()

    def end(self, losses: float) -> None:
        """The library has made all of it, with this sum of losses."""
        self.losses = losses
        if math.isnan(losses) and self.source is not None:
            rows = self._visit.client.rows
            self._dense.check(self.source.x[rows], self.source.y[rows])


def native_visits(training: Training, batons: Sequence[Baton], visits: Sequence[Visit]) -> list[Result] | None:
    """Several visits, each to the bits it has alone; None if they cannot be made outside the interpreter.

    All are made ready, then all are trained, then all are ended: a processor that goes through the same code again has
    it at hand, and short visits take a quarter less. Outside the interpreter several threads train at once.
    """
    loops, loop = list[NativeLoop](), None
    for baton, visit in zip(batons, visits, strict=True):
        loop = native_loop(training, effect_of(training.terms, baton.params, visit), visit, loop)
        if loop is None:
            return None
        loops.append(loop)
    models = all_trained(loops, batons, visits[0].workspaces)
    ended = []
    for baton, visit, model, loop in zip(batons, visits, models, loops, strict=True):
        ended.append(training.finish(baton, visit, model, Epoch(0, loop.steps, loop.examples, loop.losses)))
    return ended


def all_trained(loops: Sequence[NativeLoop], batons: Sequence[Baton], workspaces: Workspaces) -> list[Vector]:
    """What becomes of the models, by as many threads as there may be: each takes the longest visit that is left."""
    models, longest_first = dict[int, Vector](), sorted(range(len(loops)), key=lambda number: -loops[number].examples)
    alone = not all(loop.shares for loop in loops)
    hands = workspaces.for_threads(1 if alone else len(loops))
    source = loops[0].source
    if source is not None and all(loop.whole and loop.source is source for loop in loops):
        ways = [loops[number].way(batons[number].params) for number in longest_first]
        visits = WholeVisits(source.x, source.y, ways, workspaces.main.params)
        side_by_side(take_some, hands, [visits] * len(hands), visits.stop)
        for number, model, losses in zip(longest_first, visits.models, visits.losses, strict=True):
            models[number] = model
            loops[number].end(losses)
    else:

        def one(workspace: Workspace, number: int) -> None:
            models[number] = loops[number].trained(batons[number].params, workspace)

        side_by_side(one, hands, longest_first)
    return [models[number] for number in range(len(loops))]


def take_some(workspace: Workspace, visits: WholeVisits) -> None:
    """Make those visits in this workspace that no other thread has begun."""
    assert workspace.dense is not None
    workspace.dense.visits(visits)


def completed(rule: Rule, training: Training, effect: Effect, visit: Visit) -> Rule:
    """How steps are made of gradients in this visit: the optimiser's rule with all that is not the optimiser's."""
    force = effect.force
    rule.lr, rule.clip = training.lr * training.schedule(visit.round), training.clip or 0.0
    if force is not None and force.acts:
        rule.strength = force.strength
        rule.anchor, rule.shift = (None if part is None else part.data_ptr() for part in (force.anchor, force.shift))
    return rule
