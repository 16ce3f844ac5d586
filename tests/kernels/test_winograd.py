"""Convolutions with fewer multiplications; the oracle is torch's convolution in double precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedrelay import Task
from fedrelay.kernels.winograd import PAIRS, Filtering, Points, best_points
from fedrelay.models import LeNet5, Own
from fedrelay.tasks import Workspaces


def worked(points: Points, taps: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """One tile by way of the points."""
    at = [torch.empty(1) for _ in range(points.count)]
    points.forth(list(pixels.split(1)), at)
    products = [value * factor for value, factor in zip(at, points.filters @ taps, strict=True)]
    out = [torch.empty(1) for _ in range(points.outputs)]
    points.back(products, out)
    return torch.cat(out)


ABLE = [(taps, pairs) for taps in (2, 3, 4, 5) for pairs in range(1, len(PAIRS) + 1) if 2 * pairs + 2 > taps]


@pytest.mark.parametrize(("taps", "pairs"), ABLE)
def test_a_tile_is_filtered(taps, pairs):
    points, draw = Points(taps, pairs), torch.Generator().manual_seed(taps)
    assert points.outputs == points.count - taps + 1
    line = torch.randint(-4, 5, (taps,), generator=draw).float()
    pixels = torch.randint(-4, 5, (points.count,), generator=draw).float()
    expected = [float(line @ pixels[first : first + taps]) for first in range(points.outputs)]
    assert worked(points, line, pixels).tolist() == pytest.approx(expected, abs=1e-4)


CASES = [
    # filters, channels, (high, wide), batch, (height, width), padding
    (64, 64, (5, 5), 9, (14, 14), (0, 0)),  # LeNet-5; the last tile is not full
    (64, 32, (3, 3), 10, (30, 30), (0, 0)),  # pfl-research's
    (64, 32, (5, 5), 20, (14, 14), (2, 2)),  # LEAF's
    (96, 64, (3, 3), 6, (15, 18), (1, 0)),
    (64, 64, (2, 5), 12, (9, 21), (0, 1)),
    (192, 192, (1, 5), 12, (9, 21), (0, 0)),  # a single line
]


@pytest.mark.parametrize(("filters", "channels", "kernel", "batch", "size", "padding"), CASES)
def test_values_and_gradients_are_those_of_plain_convolution(filters, channels, kernel, batch, size, padding):
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(batch, *size, channels, generator=draw).permute(0, 3, 1, 2)
    weight = torch.randn(filters, *kernel, channels, generator=draw)
    bias = torch.randn(filters, generator=draw)
    filtering = Filtering(weight, gradient := torch.empty_like(weight), padding)
    y = filtering.forward(x, None)
    assert y is not None, "plain convolution was taken, so nothing is tested"
    bare = functional.conv2d(x.double(), weight.permute(0, 3, 1, 2).double(), padding=padding)
    assert off(y, bare) < 3e-6
    y = filtering.forward(x.contiguous(), bias)  # laid otherwise in memory
    assert y is not None
    exact = [part.double().requires_grad_() for part in (x, weight.permute(0, 3, 1, 2), bias)]
    expected = functional.conv2d(*exact, padding=padding)
    assert off(y, expected) < 3e-6
    dy = torch.randn(y.shape, generator=draw)
    expected.backward(dy.double())
    for laid in (dy, dy.contiguous(memory_format=torch.channels_last)):
        gradient.zero_()
        assert off(filtering.backward(laid), exact[0].grad) < 3e-6
        assert off(gradient.permute(0, 3, 1, 2), exact[1].grad) < 3e-6


def off(found: torch.Tensor, expected: torch.Tensor | None) -> float:
    """The relative error."""
    assert expected is not None
    assert found.shape == expected.shape
    return float((found.double() - expected.detach()).norm() / expected.detach().norm())


@pytest.mark.parametrize(
    ("filters", "batch", "rows", "columns"),
    [
        ((64, 5, 5, 3), 64, 28, 28),  # too few channels
        ((32, 3, 3, 16), 32, 14, 14),
        ((64, 5, 5, 64), 1, 10, 10),  # a single image
        ((64, 5, 1, 64), 64, 10, 10),  # nothing to save along a width of one tap
        ((64, 5, 9, 64), 64, 10, 10),  # more taps than points
    ],
)
def test_plain_convolution_is_taken_where_it_is_cheaper(filters, batch, rows, columns):
    assert best_points(filters, batch, rows, columns) is None


@pytest.mark.parametrize("bias", [True, False])
def test_a_workspace_takes_batches_of_any_size_in_turn(bias):
    # Nothing in it chooses between nearly equal pixels, so gradients are near those of autograd.
    network = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 5, bias=bias), nn.Flatten(), nn.Linear(64 * 6 * 6, 10)
    )
    task, draw = Task(Own(network), (3, 12, 12), 10), torch.Generator().manual_seed(3)
    workspace = Workspaces(task).main
    workspace.load(task.init(2), training=True)
    for size in (64, 20, 1, 64):
        x = torch.randn(size, 12, 12, 3, generator=draw).permute(0, 3, 1, 2)
        y = torch.randint(0, 10, (size,), generator=draw)
        expected = workspace.differentiate(x, y, workspace.loss).clone()
        gradient = workspace.gradient.clone()
        workspace.gradient.zero_()
        torch.testing.assert_close(workspace.differentiate(x, y), expected, rtol=1e-5, atol=1e-6)
        for name, part in task.layout.pieces(workspace.gradient).items():
            assert off(part, task.layout.pieces(gradient)[name]) < 1e-5, name
        after = workspace.weights - 0.1 * workspace.gradient
        workspace.step(x, y, 0.1)
        torch.testing.assert_close(workspace.weights, after, rtol=1e-5, atol=1e-7)


def test_lenet_has_the_gradient_of_autograd():
    task, draw = Task(LeNet5(), (3, 32, 32), 10), torch.Generator().manual_seed(3)
    x, y = torch.randn(64, 32, 32, 3, generator=draw).permute(0, 3, 1, 2), torch.randint(0, 10, (64,), generator=draw)
    workspace = Workspaces(task).main
    workspace.load(task.init(2), training=True)
    loss = workspace.differentiate(x, y)
    gradient = workspace.gradient.clone()
    torch.testing.assert_close(loss, workspace.differentiate(x, y, workspace.loss), rtol=1e-5, atol=1e-6)
    # Rounding decides which of two nearly equal pixels is the largest of a window, in autograd as here.
    assert off(gradient, workspace.gradient) < 5e-3
