"""Training under way in a workspace: of one model, or of several side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from fedrelay.kernels.workspace import BatchLoss, StackedWorkspace, Workspace
from fedrelay.tasks import Task
from fedrelay.visits.terms import Batch, Effect

if TYPE_CHECKING:
    from fedrelay.visits.optimisers import Optimiser


@dataclass(frozen=True)
class Progress:
    """Training under way: of the model in a workspace, or of several, one a row of everything."""

    workspace: Workspace | StackedWorkspace
    lr: float
    effect: Effect
    loss_of: BatchLoss | None
    optimiser: Optimiser
    losses: torch.Tensor
    """The sums, over all examples so far."""
    private: BatchLoss | None = None
    """What fills the gradient from a batch, where it is made of single examples' gradients and noise."""

    def first(self, rows: int) -> Progress:
        """The first rows of a stack alone."""
        if not isinstance(self.workspace, StackedWorkspace) or rows == len(self.losses):
            return self
        force = None if self.effect.force is None else self.effect.force.first(rows)
        return Progress(
            self.workspace.first(rows),
            self.lr,
            replace(self.effect, force=force),
            None,
            self.optimiser.first(rows),
            self.losses[:rows],
        )


def batch_loss(workspace: Workspace | StackedWorkspace, task: Task, effect: Effect) -> BatchLoss | None:
    """The loss of a batch with all that terms add to it; None if that is the plain loss."""
    if not effect.losses and effect.run is None:
        return None
    assert isinstance(workspace, Workspace)
    run = effect.run or workspace.forward

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen = run(x)
        total = task.loss(seen.output, y)
        for extra in effect.losses:
            total = total + extra(Batch(x, y, seen.features, seen.output))
        return total

    return loss


def differentiate(progress: Progress, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Fill the workspace's gradient from a batch and return the loss at the weights themselves."""
    workspace, uphill = progress.workspace, progress.effect.uphill
    if progress.private is not None:
        return progress.private(x, y)
    loss = workspace.differentiate(x, y, progress.loss_of)
    if uphill:
        before = workspace.model()
        far = uphill / (torch.linalg.vector_norm(workspace.gradient, dim=-1, keepdim=True) + 1e-12)
        workspace.weights.add_(workspace.gradient * far)
        workspace.differentiate(x, y, progress.loss_of)
        workspace.put(before)  # the buffers too: the statistics of the step uphill do not count
    return loss
