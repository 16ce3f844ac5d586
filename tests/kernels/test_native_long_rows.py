"""Dense layers with long rows, which have products of their own; the oracle is PyTorch's autograd in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from needs import lacking
from torch import nn
from torch.nn import functional as F

from fedrelay.kernels import native
from fedrelay.kernels.native import Dense, Rule, dense_layers
from fedrelay.vectors import Layout

SIZES = [(48, 1), (784, 10), (784, 50, 10), (63, 4), (81, 49, 52, 3), (1600, 84, 12), (130, 17, 5)]
"""Rows that fill whole registers and others, sums that fill whole blocks and others."""


pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(params=[16, 8, 4])
def lanes(request) -> Iterator[int]:
    """As on processors with registers of so many numbers at most; with 4, products are those of the BLAS."""
    count = native.found().library.front_lanes(request.param)
    if count != request.param:
        lacking(f"this processor has registers of {count} numbers")
    yield count
    native.found().library.front_lanes(16)


class Case:
    """A network over vectors of its own, and the same in float64."""

    def __init__(self, *sizes: int, shift: float = 0.0) -> None:
        torch.manual_seed(3)
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
            layers[-2].bias.data[torch.arange(outputs) % 4 > 0] += shift
        self.net = nn.Sequential(*layers[:-1])
        self.exact = copy.deepcopy(self.net).double()
        layout = Layout.of(self.net)
        self.weights, self.gradient, self.velocity = (torch.zeros(layout.size) for _ in range(3))
        layout.bind(self.net, self.weights, self.gradient)
        self.dense = Dense(dense_layers(self.net, layout), self.weights, self.gradient)
        self.start, self.inputs, self.classes = self.weights.clone(), sizes[0], sizes[-1]

    def examples(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(count, self.inputs), torch.randint(0, self.classes, (count,))

    def again(self, *args, **settings) -> torch.Tensor:
        """The weights after steps from the start."""
        self.weights.copy_(self.start)
        self.dense.descend(*args, Rule(lr=0.1), **settings)
        return self.weights.clone()


def distance(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((mine - theirs).norm() / theirs.norm().clamp(min=1e-30))


@pytest.mark.parametrize("shift", [0.0, -30.0, 3.0], ids=["half cut", "most cut", "few cut"])
@pytest.mark.parametrize("count", [1, 7, 50, 131])
@pytest.mark.parametrize("sizes", SIZES)
def test_gradients_are_those_of_autograd_within_a_millionth(sizes, count, shift, lanes):
    case = Case(*sizes, shift=shift)
    x, y = case.examples(count)
    rule = Rule(lr=0.1, momentum=0.9, velocity=case.velocity.data_ptr())  # then gradients are written down
    total = case.dense.descend(x, y, count, rule)
    loss = F.cross_entropy(case.exact(x.double()), y)
    loss.backward()
    assert total == pytest.approx(float(loss.detach()) * count, rel=1e-6, abs=1e-6)
    for mine, theirs in zip(case.net.parameters(), case.exact.parameters(), strict=True):
        assert distance(mine.grad, theirs.grad) < 1e-6 or float((mine.grad - theirs.grad).abs().max()) < 1e-9


@pytest.mark.parametrize("sizes", SIZES)
def test_plain_steps_are_those_of_autograd(sizes, lanes):
    """Here the step is taken where the gradient is made; the last batch is smaller."""
    case = Case(*sizes)
    x, y = case.examples(25)
    mine = case.again(x, y, 9)
    steps = torch.optim.SGD(case.exact.parameters(), lr=0.1)
    for part, targets in zip(x.double().split(9), y.split(9), strict=True):
        steps.zero_grad()
        F.cross_entropy(case.exact(part), targets).backward()
        steps.step()
    theirs = nn.utils.parameters_to_vector(case.exact.parameters())
    assert distance(mine - case.start, theirs.detach() - case.start) < 2e-5
    assert not torch.equal(mine, case.start) or case.classes == 1  # a single class has nothing to learn


def test_where_rows_lie_does_not_change_a_bit(lanes):
    case = Case(81, 49, 5)
    x, y = case.examples(90)
    which = torch.randperm(90)[:70]
    one = case.again(x, y, 20, which=which)
    assert torch.equal(case.again(x[which], y[which], 20), one)
    room = torch.empty(90 * 81 + 1)
    other = room[1:].view(90, 81).copy_(x)  # begins at no line of the cache
    assert torch.equal(case.again(other, y, 20, which=which), one)
    case.dense = Dense(dense_layers(case.net, Layout.of(case.net)), case.weights, case.gradient)  # with new scratch
    assert torch.equal(case.again(other, y, 20, which=which), one)


def test_zeros_that_are_left_out_do_not_change_a_bit(lanes):
    """The gradients of examples that are not cut at all, among as many that are, so that lists are made; and alone,
    where all is added up: the same sums in the same order."""
    case = Case(96, 20, 4)
    case.weights.clamp_(min=0)
    x, y = case.examples(32)
    x.abs_()[1::2] *= -1  # whose outputs are negative before ReLU: every second one
    case.weights[96 * 20 : 96 * 20 + 20] = 0
    rule = Rule(lr=0.1, momentum=0.9, velocity=case.velocity.data_ptr())
    case.start.copy_(case.weights)
    case.dense.descend(x, y, 32, rule)
    among = case.gradient[: 96 * 20].clone()
    case.weights.copy_(case.start)
    case.dense.descend(x[::2], y[::2], 16, rule)
    assert among.count_nonzero()
    assert torch.equal(among * 2, case.gradient[: 96 * 20])  # a mean over half as many, which is exact


def test_what_is_not_a_number_shows(lanes):
    case = Case(100, 8, 3)
    x, y = case.examples(6)
    x[2, 99] = float("nan")
    assert not bool(case.again(x, y, 6).isfinite().all())
