"""The training loop outside the interpreter, for what can be done there: the same steps, up to rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import c_float
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch

from fedrelay import seeds
from fedrelay.data.examples import Examples
from fedrelay.kernels.native import Dense, Rule, passes
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

Pass: TypeAlias = torch.Tensor | Iterator[batches.Batch]
"""The rows of a pass, to be taken as they lie; or what was taken of them, several batches in one."""


def native_loop(training: Training, effect: Effect, visit: Visit) -> NativeLoop | None:
    """What trains in the main workspace outside the interpreter, if that can do all that is asked for."""
    workspace = visit.workspaces.main
    special = effect.losses or effect.run or effect.uphill or effect.held or effect.guides or training.per_example
    if workspace.dense is None or special:
        return None
    optimiser = training.new_optimiser(workspace.weights, visit)
    rule = optimiser.rule()
    if rule is None:
        return None
    return NativeLoop(workspace.dense, completed(rule, training, effect, visit), (optimiser, effect), training, visit)


class NativeLoop:
    """One visit: its passes over the client's examples, and what to do with each."""

    quiet = True
    """It has a generator of its own."""

    def __init__(
        self, dense: Dense, rule: Rule, kept: tuple[Optimiser, Effect], training: Training, visit: Visit
    ) -> None:
        client, examples = visit.client, cast("Any", visit.client.examples)
        self._dense, self._rule, self._batch = dense, rule, training.at_once(client.size)
        self._kept = kept  # what the rule points to must stay as long as the visit
        self.momentum, self.losses = kept[0].momentum, 0.0
        number = training.number(visit)
        self._draw = seeds.torch_generator(number) if visit.workspaces.main.draws else None
        self.steps, self.examples = training.lengths(client.size)
        in_memory = type(examples) is Examples
        self._from = examples if in_memory and not examples.transform else None
        self.shares = in_memory and (not examples.transform or getattr(examples.transform, "anywhere", False))
        """Whether it can go on beside others: code of the user's, or a file that is read, may not be made for that."""
        if self._from is not None and dense.takes(examples.x, examples.y):
            self.passes: Iterator[Pass] = passes(number, client.rows, self.examples) or (
                client.rows.index_select(0, order) for order in training.row(visit).passes
            )
        else:
            self.passes = batches.alone(training.row(visit), joined=True)

    def descend(self, some: Pass, dense: Dense | None = None) -> None:
        """Make the steps of one pass, at the place that it was made for or at another one."""
        dense = dense or self._dense
        if isinstance(some, torch.Tensor):
            assert self._from is not None
            total = dense.descend(self._from.x, self._from.y, self._batch, self._rule, some, self._draw)
        else:
            total = sum(dense.descend(x, y, self._batch, self._rule, draw=self._draw) for x, y, _ in some)
        self.losses = c_float(self.losses + c_float(total).value).value  # in float32, as the other loop adds them up


def native_visits(training: Training, batons: Sequence[Baton], visits: Sequence[Visit]) -> list[Result] | None:
    """Several visits, each to the bits it has alone; None if they cannot be made outside the interpreter.

    All are made ready, then all are trained, then all are ended: a processor that goes through the same code again has
    it at hand, and short visits take a quarter less. Outside the interpreter several threads train at once.
    """
    loops = list[NativeLoop]()
    for baton, visit in zip(batons, visits, strict=True):
        loop = native_loop(training, effect_of(training.terms, baton.params, visit), visit)
        if loop is None:
            return None
        loops.append(loop)
    models = trained(loops, batons, visits[0].workspaces)
    ended = []
    for baton, visit, model, loop in zip(batons, visits, models, loops, strict=True):
        ended.append(training.finish(baton, visit, model, Epoch(0, loop.steps, loop.examples, loop.losses)))
    return ended


def trained(loops: Sequence[NativeLoop], batons: Sequence[Baton], workspaces: Workspaces) -> list[Vector]:
    """What becomes of the models, by as many threads as there may be: each takes the longest visit that is left."""
    models, longest_first = dict[int, Vector](), sorted(range(len(loops)), key=lambda number: -loops[number].examples)
    following = iter(longest_first)

    def go_on(workspace: Workspace) -> None:
        try:
            while (number := next(following, None)) is not None:
                models[number] = one(number, workspace)
        except BaseException:
            list(following)  # nobody needs the others any more
            raise

    def one(number: int, workspace: Workspace) -> Vector:
        workspace.load(batons[number].params, training=True)
        for some in loops[number].passes:
            loops[number].descend(some, workspace.dense)
        return workspace.model()

    alone = not all(loop.shares for loop in loops)
    side_by_side(go_on, workspaces.for_threads(1 if alone else len(loops)))
    return [models[number] for number in range(len(loops))]


def completed(rule: Rule, training: Training, effect: Effect, visit: Visit) -> Rule:
    """How steps are made of gradients in this visit: the optimiser's rule with all that is not the optimiser's."""
    force = effect.force
    rule.lr, rule.clip = training.lr * training.schedule(visit.round), training.clip or 0.0
    if force is not None and force.acts:
        rule.strength = force.strength
        rule.anchor, rule.shift = (None if part is None else part.data_ptr() for part in (force.anchor, force.shift))
    return rule
