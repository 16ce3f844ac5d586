"""Several models at once through `torch.func`: for networks that are not plain sequences of known layers."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional as F

from fedrelay.kernels.layers import PADDING
from fedrelay.vectors import Layout

ALIKE = 1e-4
"""What a network says of an example, alone and among others, may differ by so much, relatively: rounding."""


class Functional:
    """Any network over the rows of a matrix, and its cross-entropy, if `works_by_example` says that it can be."""

    draws = False

    def __init__(self, network: nn.Module, layout: Layout, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        self._network, self._layout, self._vectors = network, layout, (weights, gradient)
        self._resting = [module for module in network.modules() if not module.training]
        self._of = vmap(grad_and_value(self._loss))

    def _loss(self, weights: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = functional_call(self._network, self._layout.pieces(weights), (x,))
        return F.cross_entropy(logits, y, ignore_index=PADDING)

    def differentiate(
        self, x: torch.Tensor, y: torch.Tensor, *, training: bool = True, lr: float | None = None
    ) -> torch.Tensor:
        """As the layers that are written out do it; for one model too, x is (models, batch, ...)."""
        self._network.train(training)
        for module in self._resting:
            module.training = False
        weights, gradient = self._vectors
        found, losses = self._of(weights, x, y)
        if lr is None:
            gradient.copy_(found)
        else:
            weights.add_(found, alpha=-lr)
        mean: torch.Tensor = losses.detach()
        return mean


@torch.no_grad()
def works_by_example(network: nn.Module, layout: Layout, x: torch.Tensor) -> bool:
    """Whether the network's models can be trained side by side: all that it has is trained, it draws no random numbers,
    no example has to do with the others of its batch (some models have fewer, and get others to fill up), and
    `torch.func` knows its operators. `x` are two examples, or more."""
    if layout.size != layout.trainable or any(True for _ in network.buffers()):
        return False
    before = torch.random.get_rng_state()
    try:
        together, alone = network(x), network(x[:1])
        if together.ndim != 2 or not torch.equal(before, torch.random.get_rng_state()):
            return False
        if not torch.allclose(together[:1], alone, rtol=ALIKE, atol=ALIKE * float(together.abs().max())):
            return False
        elsewhere, x = deepcopy(network).to("meta"), x.to("meta").expand(2, *x.shape)  # where it takes no time
        two, y = torch.empty(2, layout.size, device="meta"), torch.zeros(x.shape[:2], dtype=torch.int64, device="meta")
        with torch.enable_grad():
            Functional(elsewhere, layout, two, two).differentiate(x, y)
    except Exception:  # whatever it says of such inputs: models of this kind are trained one by one
        return False
    finally:
        torch.random.set_rng_state(before)
    return True
