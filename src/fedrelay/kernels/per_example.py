"""The gradients of single examples, each shortened before they are added up (DP-SGD: Abadi et al. 2016, Alg. 1)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.func import functional_call, grad_and_value, vmap

from fedrelay.errors import BadInput
from fedrelay.kernels.workspace import BatchLoss, Workspace
from fedrelay.vectors import Layout

AT_ONCE = 1 << 24
"""How many numbers of gradients are held at a time: 64 MB."""


def clipped_sum(
    workspace: Workspace, layout: Layout, loss: BatchLoss, x: torch.Tensor, y: torch.Tensor, *, clip: float
) -> torch.Tensor:
    """Fill the workspace's gradient with the sum of the examples' gradients, none longer than `clip`; their mean loss
    is returned. No example at all is a sum of nothing."""
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        raise BadInput("single examples' gradients are taken of inputs and targets that are one tensor each")
    workspace.gradient.zero_()
    total = workspace.gradient.new_zeros(())
    some = max(AT_ONCE // layout.trainable, 1)
    for first in range(0, len(x), some):
        here = slice(first, first + some)
        gradients, losses = per_example(workspace, layout, loss, x[here], y[here])
        total += losses.sum()
        lengths = torch.stack([part.flatten(1).square().sum(1) for part in gradients.values()]).sum(0).sqrt()
        shares = (clip / lengths.clamp(min=torch.finfo(torch.float32).tiny)).clamp(max=1.0)
        for entry in layout.entries:
            if entry.name in gradients:
                entry.view(workspace.gradient).add_(torch.tensordot(shares, gradients[entry.name], dims=1))
    return total / max(len(x), 1)


def per_example(
    workspace: Workspace, layout: Layout, loss: BatchLoss, x: torch.Tensor, y: torch.Tensor
) -> tuple[Mapping[str, torch.Tensor], torch.Tensor]:
    """By name, the gradients of all examples of a batch, one a row; and their losses."""
    weights = {
        entry.name: entry.view(workspace.weights).detach() for entry in layout.entries if entry.start < layout.trainable
    }

    def alone(given: Mapping[str, torch.Tensor], one: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return loss(functional_call(workspace.network, dict(given), (one.unsqueeze(0),)), target.unsqueeze(0))

    each = vmap(grad_and_value(alone), in_dims=(None, 0, 0), randomness="different")
    gradients, losses = each(weights, x, y)
    return gradients, losses
