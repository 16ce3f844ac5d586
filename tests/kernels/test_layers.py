"""Gradients that are written out by hand; the oracle is autograd on the same network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedrelay import BadInput, Task
from fedrelay.kernels.layers import PADDING, mask, written_out
from fedrelay.models import (
    CharLstm,
    ClusteredCnn,
    FemnistCnn,
    LeafCnn,
    LeNet5,
    Logistic,
    Mlp,
    Own,
    PflCnn,
    Quadratic,
    ResNet18,
    SmallCnn,
)
from fedrelay.tasks import Workspaces

ODD = Own(
    nn.Sequential(
        nn.Conv2d(2, 6, 3, stride=2, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(6, 4, (2, 3), stride=(1, 2), padding=(1, 0)),
        nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.Flatten(),
        nn.Identity(),
        nn.Dropout(0.0),
        nn.Linear(32, 10, bias=False),
    )
)
KNOWN = [
    (Logistic(), (20,)),
    (Mlp(hidden=(9, 7)), (1, 4, 5)),
    (SmallCnn(), (1, 8, 8)),
    (LeNet5(), (3, 20, 18)),
    (FemnistCnn(), (1, 10, 10)),
    (PflCnn(), (3, 10, 8)),
    (LeafCnn(), (1, 8, 8)),
    (ClusteredCnn(), (3, 18, 18)),
    (ODD, (2, 12, 12)),
]
DROPOUT = (FemnistCnn, PflCnn, ClusteredCnn, Own)
WITHOUT_DROPOUT = [(model, shape) for model, shape in KNOWN if not isinstance(model, DROPOUT)]


def name_of(value: object) -> str:
    return type(value).__name__


def batch(shape: tuple[int, ...], size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x, y = torch.randn(size, *shape, generator=draw), torch.randint(0, 10, (size,), generator=draw)
    return (x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x), y


@pytest.mark.parametrize(("model", "shape"), KNOWN, ids=name_of)
@pytest.mark.parametrize("training", [True, False])
def test_one_model_has_the_loss_and_gradient_of_autograd(model, shape, training, monkeypatch):
    def drop(x: torch.Tensor, p: float, training: bool, inplace: bool) -> torch.Tensor:
        return x * mask(x, 1 - p) if training and p else x

    monkeypatch.setattr(nn.functional, "dropout", drop)  # autograd by the same masks: torch draws others
    task = Task(model, shape, 10)
    workspace, (x, y) = Workspaces(task).main, batch(shape, 6, seed=1)
    assert workspace._layers is not None
    workspace.load(task.init(2), training=training)
    with torch.random.fork_rng():
        torch.manual_seed(3)  # the same units are dropped
        loss = workspace.differentiate(x, y).clone()
        gradient = workspace.gradient.clone()
        torch.manual_seed(3)
        expected = workspace.differentiate(x, y, workspace.loss)  # a loss of one's own goes by autograd
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(
        gradient, workspace.gradient, rtol=1e-5, atol=1e-7
    )  # the same arithmetic, in other places
    assert gradient.count_nonzero() > 0


@pytest.mark.parametrize(("model", "shape"), KNOWN, ids=name_of)
def test_a_plain_step_goes_against_the_gradient(model, shape):
    task = Task(model, shape, 10)
    workspace, (x, y) = Workspaces(task).main, batch(shape, 6, seed=1)
    workspace.load(task.init(2), training=False)
    loss = workspace.differentiate(x, y).clone()
    expected = workspace.weights - 0.1 * workspace.gradient
    torch.testing.assert_close(workspace.step(x, y, 0.1), loss)
    torch.testing.assert_close(workspace.weights, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("model", "shape"), WITHOUT_DROPOUT, ids=name_of)
def test_a_plain_step_of_a_stack_goes_against_its_gradients(model, shape):
    task = Task(model, shape, 10)
    stack, batches = Workspaces(task).stack(2), [batch(shape, 4, seed=row) for row in range(2)]
    x, y = (torch.stack(parts) for parts in zip(*batches, strict=True))
    for row in range(2):
        stack.weights[row] = task.init(row)
    losses = stack.differentiate(x, y).clone()
    expected = stack.weights - 0.1 * stack.gradient
    torch.testing.assert_close(stack.step(x, y, 0.1), losses)
    torch.testing.assert_close(stack.weights, expected, rtol=1e-5, atol=1e-7)


def test_a_model_that_autograd_differentiates_takes_the_same_step():
    task, (x, y) = Task(Own(Residual()), (6,), 6), batch((6,), 4, seed=1)
    workspace = Workspaces(task).main
    workspace.load(task.init(0), training=True)
    workspace.differentiate(x, y.clamp(max=5))
    expected = workspace.weights - 0.1 * workspace.gradient
    workspace.step(x, y.clamp(max=5), 0.1)
    torch.testing.assert_close(workspace.weights, expected)


def test_losses_can_be_summed_in_place():
    task, (x, y) = Task(Mlp(), (6,), 10), batch((6,), 4, seed=1)
    workspace = Workspaces(task).main
    workspace.load(task.init(0), training=True)
    total = workspace.differentiate(x, y)
    once = float(total)
    total += workspace.differentiate(x, y)
    assert float(total) == pytest.approx(2 * once)


def test_images_are_dropped_in_the_order_of_memory():
    x = torch.empty(2, 5, 4, 3).permute(0, 3, 1, 2)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        found = mask(x, 0.5)
        torch.manual_seed(1)
        expected = mask(torch.empty(2, 5, 4, 3), 0.5).permute(0, 3, 1, 2)
    assert torch.equal(found, expected)
    assert found.stride() == x.stride()


@pytest.mark.parametrize("kept", [0.75, 0.5, 0.2, 1e-9])
def test_a_mask_keeps_its_share_and_the_mean(kept):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        found = mask(torch.empty(999, 1001), kept)
    share = max(kept, 1 / 65536)
    values = found.unique()
    assert values[0] == 0
    assert values[1:].tolist() == pytest.approx([1 / share], rel=1e-4)
    error = (share * (1 - share) / found.numel()) ** 0.5
    assert (found > 0).double().mean().item() == pytest.approx(share, abs=5 * error)


@pytest.mark.parametrize(("model", "shape"), WITHOUT_DROPOUT, ids=name_of)
def test_a_stack_has_the_gradients_of_its_models_one_by_one(model, shape):
    task, sizes = Task(model, shape, 10), (5, 3, 4)
    assert task.stacks
    workspaces = Workspaces(task)
    stack, workspace = workspaces.stack(3), workspaces.main
    batches = [batch(shape, size, seed=row) for row, size in enumerate(sizes)]
    x, y = torch.zeros(3, 5, *shape), torch.full((3, 5), PADDING)
    for row, (size, part) in enumerate(zip(sizes, batches, strict=True)):
        stack.weights[row] = task.init(row)
        x[row, :size], y[row, :size] = part
    losses = stack.differentiate(x, y)
    for row, part in enumerate(batches):
        workspace.load(task.init(row), training=True)
        torch.testing.assert_close(losses[row], workspace.differentiate(*part), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(stack.gradient[row], workspace.gradient, rtol=1e-4, atol=1e-5)


def test_the_first_rows_of_a_stack_are_the_same_memory():
    task = Task(Mlp(hidden=(4,)), (5,), 3)
    stack = Workspaces(task).stack(3)
    stack.weights.zero_()
    stack.first(2).weights.fill_(1)
    assert stack.weights.sum(1).tolist() == [task.layout.size, task.layout.size, 0]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(x)


def hooked() -> nn.Module:
    network = nn.Sequential(nn.Flatten(), nn.Linear(6, 6))
    network[1].register_forward_hook(lambda module, inputs, output: output * 2)
    return network


def tied() -> nn.Module:
    network = nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    network[3].weight = network[1].weight
    return network


class Backwards(nn.Flatten):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).flip(1)


def twice() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


def frozen() -> nn.Module:
    network = nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    network[1].weight.requires_grad_(False)
    return network


@pytest.mark.parametrize(
    "network",
    [
        Residual(),
        hooked(),
        twice(),
        tied(),
        frozen(),
        nn.Sequential(Backwards(), nn.Linear(6, 6)),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.BatchNorm1d(6)),
        nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))),
        nn.Sequential(nn.Linear(6, 6)),  # without Flatten it could also act on every position of a sequence
    ],
)
def test_any_other_network_is_left_to_autograd(network):
    x, y = batch((6,), 4, seed=1)
    task = Task(Own(network), (6,), 6)
    workspace = Workspaces(task).main
    assert workspace._layers is None
    assert not task.written
    workspace.load(task.init(0), training=True)
    workspace.differentiate(x, y.clamp(max=5))
    assert workspace.gradient.count_nonzero() > 0


@pytest.mark.parametrize(
    ("model", "shape", "classes"), [(Quadratic(), (2,), 1), (ResNet18(), (3, 9, 9), 4), (CharLstm(), (5,), 7)]
)
def test_models_of_other_kinds_do_not_stack(model, shape, classes):
    task = Task(model, shape, classes)
    assert not task.stacks
    with pytest.raises(BadInput, match="cannot be stacked"):
        Workspaces(task).stack(2)


def test_models_with_dropout_are_written_out_but_not_stacked():
    task = Task(FemnistCnn(), (1, 10, 10), 10)
    workspace = Workspaces(task).main
    assert workspace._layers is not None
    assert not task.stacks
    assert written_out(workspace.network, task.layout, *torch.empty(2, 2, task.layout.size)) is None


def test_padding_alone_does_not_count_in_a_single_model():
    task = Task(Logistic(), (4,), 3)
    workspace = Workspaces(task).main
    workspace.load(task.init(0), training=True)
    x, _ = batch((4,), 5, seed=1)
    y = torch.tensor([0, PADDING, 2, 1, PADDING])
    loss = workspace.differentiate(x, y).clone()
    gradient = workspace.gradient.clone()
    torch.testing.assert_close(workspace.differentiate(x[[0, 2, 3]], y[[0, 2, 3]]), loss)
    torch.testing.assert_close(workspace.gradient, gradient)
