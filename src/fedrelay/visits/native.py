"""The training loop outside the interpreter, for what can be done there: the same steps, up to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from fedrelay.data.examples import Examples
from fedrelay.kernels.native import Dense, Rule
from fedrelay.kernels.workspace import Workspace
from fedrelay.types import Visit
from fedrelay.visits import batches

if TYPE_CHECKING:
    from fedrelay.visits.training import Progress, Training

Pass: TypeAlias = torch.Tensor | Iterator[batches.Batch]
"""The rows of a pass, to be taken as they lie; or what was taken of them, several batches in one."""


def native_loop(training: Training, progress: Progress, visit: Visit) -> NativeLoop | None:
    """What trains in a workspace outside the interpreter, if that can do all that is asked for."""
    workspace, effect = progress.workspace, progress.effect
    if not isinstance(workspace, Workspace) or workspace.dense is None:
        return None
    special = progress.loss_of or progress.private or effect.uphill or effect.held or effect.guides
    rule = None if special else progress.optimiser.rule()
    if rule is None:
        return None
    return NativeLoop(workspace.dense, completed(rule, training, progress), training, progress, visit)


class NativeLoop:
    """One visit: its passes over the client's examples, and what to do with each."""

    def __init__(self, dense: Dense, rule: Rule, training: Training, progress: Progress, visit: Visit) -> None:
        self._dense, self._losses, self._rule = dense, progress.losses, rule
        # What the rule points to must stay as long as the visit.
        self._kept = progress
        row = training.row(visit)
        self._batch, client = row.batch, row.client
        examples: Any = client.examples
        self._from = examples if type(examples) is Examples and not examples.transform else None
        if self._from is not None and dense.takes(examples.x, examples.y):
            self.passes: Iterator[Pass] = (client.rows.index_select(0, order) for order in row.passes)
        else:
            self.passes = batches.alone(row, joined=True)

    def descend(self, some: Pass) -> None:
        """Make the steps of one pass."""
        if isinstance(some, torch.Tensor):
            assert self._from is not None
            total = self._dense.descend(self._from.x, self._from.y, self._batch, self._rule, some)
        else:
            total = sum(self._dense.descend(x, y, self._batch, self._rule) for x, y, _ in some)
        self._losses.add_(total)


def completed(rule: Rule, training: Training, progress: Progress) -> Rule:
    """How steps are made of gradients in this visit: the optimiser's rule with all that is not the optimiser's."""
    force = progress.effect.force
    rule.lr, rule.clip = progress.lr, training.clip or 0.0
    if force is not None and force.acts:
        rule.strength = force.strength
        rule.anchor, rule.shift = (None if part is None else part.data_ptr() for part in (force.anchor, force.shift))
    return rule
