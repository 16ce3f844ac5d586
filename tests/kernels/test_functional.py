"""Several models at once through torch.func; the oracle is autograd, one model after another."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import fedrelay as fr
from fedrelay import Sgd, Task, deployed, train
from fedrelay.algorithms import fedavg, fedseq
from fedrelay.data import from_arrays
from fedrelay.engines import Inline, Stacked
from fedrelay.kernels.functional import Functional
from fedrelay.kernels.layers import PADDING
from fedrelay.models import CharLstm, Own, ResNet18
from fedrelay.tasks import Workspaces


class Residual(nn.Module):
    """What no sequence can say: a sum of two ways, normalised image by image, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.more = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 6, 3, padding=1)
        self.norm, self.head = nn.GroupNorm(2, 6), nn.Linear(6, 10)
        self.frozen = nn.Conv2d(6, 6, 1).requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = F.relu(x + self.norm(self.more(x)) + self.frozen(x))
        return self.head(x.mean((2, 3)))


class Among(nn.Sequential):
    """Says of an example what its batch is like."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        return x - x.mean(0)


def task_of(network: nn.Module) -> Task:
    return Task(Own(network), (1, 8, 8), 10)


def test_gradients_are_those_of_every_model_alone_with_fewer_examples_too():
    torch.manual_seed(1)
    task = task_of(Residual())
    weights = torch.stack([task.init(seed) for seed in range(3)])
    gradient = torch.empty_like(weights)
    x, y = torch.randn(3, 5, 1, 8, 8), torch.randint(0, 10, (3, 5))
    y[1, 3:] = PADDING
    losses = Functional(task.network(), task.layout, weights, gradient).differentiate(x, y)
    alone = Workspaces(task).main
    for row, count in enumerate((5, 3, 5)):
        alone.load(weights[row], training=True)
        wanted = alone.differentiate(x[row, :count], y[row, :count])
        torch.testing.assert_close(losses[row], wanted, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient[row], alone.gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", [fedavg(), fedseq(groups=4)], ids=["fedavg", "fedseq"])
def test_stacks_of_networks_that_are_no_sequences_are_visits_one_by_one(method):
    found = load_digits()
    images, labels = np.kron(found.images, np.ones((2, 2)))[..., None].astype("float32") / 16, found.target
    clients = [(images[start:end], labels[start:end]) for start, end in pairwise((0, 30, 70, 80, 120, 129, 150))]
    federation = from_arrays(clients, test=(images[150:200], labels[150:200]))
    algorithm = fr.method(method, local=Sgd(batch=8, lr=0.02, steps=2), fraction=0.5)
    task = Task.of(Own(Residual()), federation)
    assert task.stacks
    assert not task.written
    one, other = (
        deployed(list(train(algorithm, engine, rounds=2))[-1]).params
        for engine in (Inline(federation, task, 1), Stacked(federation, task, 1))
    )
    assert not torch.equal(one, other)  # else nothing was stacked
    assert not torch.allclose(one, task.init(1), rtol=1e-2)
    assert float((one - other).norm() / one.norm()) < 1e-4


@pytest.mark.parametrize(
    "network",
    [
        Among(nn.Flatten(), nn.Linear(64, 10)),
        nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Dropout(0.5), nn.Linear(64, 10)),
        nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 10)),
    ],
    ids=["looks at its batch", "draws", "keeps means"],
)
def test_networks_whose_examples_depend_on_more_do_not_stack(network):
    before = torch.random.get_rng_state()
    assert not task_of(network).stacks
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_resnet_stacks_if_its_means_are_of_an_image_alone():
    assert Task(ResNet18(norm="group"), (3, 9, 9), 4).stacks
    assert not Task(ResNet18(), (3, 9, 9), 4).stacks


def test_what_torch_func_does_not_know_does_not_stack():
    assert not Task(CharLstm(), (5,), 7).stacks


class Halving(nn.Module):
    """Halves what goes through, unless it is trained."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.training else x / 2


def test_what_its_owner_put_in_eval_stays_so_in_stacks():
    task = task_of(nn.Sequential(nn.Flatten(), nn.Tanh(), Halving().eval(), nn.Linear(64, 10)))
    assert task.stacks
    weights = task.init(3).unsqueeze(0)
    gradient = torch.empty_like(weights)
    x, y = torch.randn(1, 5, 1, 8, 8), torch.randint(0, 10, (1, 5))
    Functional(task.network(), task.layout, weights, gradient).differentiate(x, y)
    alone = Workspaces(task).main
    alone.load(weights[0], training=True)
    alone.differentiate(x[0], y[0])
    torch.testing.assert_close(gradient[0], alone.gradient, rtol=1e-4, atol=1e-6)


class Reads(nn.Module):
    """Takes its inputs for rows of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 4), nn.Linear(4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(x.flatten(1).long()).mean(1))


def test_a_network_that_cannot_be_tried_out_is_trained_alone():
    assert not task_of(Reads()).stacks
