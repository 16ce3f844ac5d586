"""Gradients of single examples against a loop over them."""

from __future__ import annotations

import pytest
import torch

import fedrelay as fr
from fedrelay.data import Iid, digits
from fedrelay.kernels import per_example
from fedrelay.kernels.per_example import clipped_sum
from fedrelay.tasks import Workspaces


@pytest.mark.parametrize("model", [fr.models.Mlp(hidden=(6,)), fr.models.SmallCnn()], ids=["mlp", "small_cnn"])
@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_the_sum_of_shortened_gradients_is_that_of_a_loop(model, clip, monkeypatch):
    federation = fr.Federation.split(digits(), Iid(), 4)
    task = fr.Task.of(model, federation)
    workspace, network = Workspaces(task).main, task.network()
    params = task.init(3)
    workspace.load(params, training=True)
    x, y = federation.client(0).take(torch.arange(7), None)
    monkeypatch.setattr(per_example, "AT_ONCE", 3 * task.layout.trainable)  # 7 examples in pieces of 3
    loss = clipped_sum(workspace, task.layout, task.loss, x, y, clip=clip)

    vector, gradient = torch.empty(task.layout.size), torch.zeros(task.layout.trainable)
    task.layout.bind(network, vector, gradient)
    vector.copy_(params)
    total, losses = torch.zeros_like(gradient), 0.0
    for one, target in zip(x, y, strict=True):
        gradient.zero_()
        value = torch.nn.functional.cross_entropy(network(one.unsqueeze(0)), target.unsqueeze(0))
        value.backward()
        losses += float(value.detach())
        total += gradient * min(1.0, clip / float(gradient.norm()))
    torch.testing.assert_close(workspace.gradient, total, atol=1e-5, rtol=1e-4)
    assert float(loss) == pytest.approx(losses / 7, rel=1e-5)
    if clip > 1:  # nothing is shortened: seven times the gradient of the mean
        workspace.differentiate(x, y)
        torch.testing.assert_close(7 * workspace.gradient, total, atol=1e-5, rtol=1e-4)
