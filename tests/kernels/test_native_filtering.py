"""Large convolutions of any network in the compiled library; the oracles are autograd in float64, and the operator of
PyTorch."""

from __future__ import annotations

import copy
from contextlib import closing

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fedrelay as fr
from fedrelay import Federation, Sgd, Task
from fedrelay.algorithms import fedavg
from fedrelay.data import Examples, Source
from fedrelay.engines import Inline, Pool
from fedrelay.kernels.native import Filtering, filtering, filters
from fedrelay.kernels.workspace import Workspace
from fedrelay.models import CharLstm, PflCnn, ResNet18
from fedrelay.system.threads import operator_threads
from fedrelay.vectors import Layout, sha256

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def calls(monkeypatch) -> list[bool]:
    """Which way the library filters, from now on: backward or not."""
    seen, real = list[bool](), filtering.Room.filter

    def spy(self, x, weight, *, backward):
        seen.append(backward)
        return real(self, x, weight, backward=backward)

    monkeypatch.setattr(filtering.Room, "filter", spy)
    return seen


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def differentiated(x, weight, bias, slope) -> list[torch.Tensor]:
    """The output of a convolution, and all gradients."""
    leaves = [part.clone().requires_grad_() for part in (x, weight, bias)]
    y = F.conv2d(*leaves, padding=1)
    y.backward(slope)
    return [y.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("side", [2, 4])
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1, 64, 64), (2, 5, 7, 64, 128), (3, 8, 4, 192, 64), (10, 4, 4, 128, 128), (50, 9, 10, 64, 64)],
    ids=str,
)
def test_outputs_and_gradients_are_those_of_autograd_in_float64(monkeypatch, lanes, shape, side, last) -> None:
    monkeypatch.setattr(filtering, "best_side", lambda *_: side)
    images, height, width, channels, count = shape
    x, slope = drawn(images, channels, height, width), drawn(images, count, height, width, seed=1)
    weight, bias = drawn(count, channels, 3, 3, seed=2), drawn(count, seed=3)
    if last:
        x, slope, weight = (part.contiguous(memory_format=torch.channels_last) for part in (x, slope, weight))
    with Filtering():
        found = differentiated(x, weight, bias, slope)
    exact = differentiated(*(part.double() for part in (x, weight, bias, slope)))
    for one, other in zip(found, exact, strict=True):
        assert (one - other).norm() <= {2: 1e-6, 4: 3e-6}[side] * other.norm()
        assert (one - other).abs().max() <= {2: 2e-6, 4: 1e-5}[side] * other.abs().max()


def test_it_does_not_matter_how_many_threads_there_are() -> None:
    x, weight = drawn(7, 64, 9, 8), drawn(128, 64, 3, 3)
    results = []
    for threads in (1, 2, 3):
        with operator_threads(threads), Filtering():
            results.append(F.conv2d(x, weight, padding=1))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_small_images_are_cut_into_small_tiles_and_single_ones_not_at_all() -> None:
    assert filtering.best_side(10, 32, 32) == filtering.best_side(10, 8, 8) == 4
    assert filtering.best_side(9, 4, 4) == filtering.best_side(2, 4, 4) == 2
    assert filtering.best_side(1, 4, 4) is None


OTHERS = {
    "stride": (64, {"padding": 1, "stride": 2}),
    "no zeros": (64, {}),
    "more zeros": (64, {"padding": 2}),
    "zeros on two sides": (64, {"padding": (1, 0)}),
    "dilation": (64, {"padding": 1, "dilation": 2}),
    "groups": (64, {"padding": 1, "groups": 2}),
    "zeros by name": (64, {"padding": "same"}),
    "few channels": (48, {"padding": 1}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_are_left_to_pytorch(calls, name) -> None:
    channels, settings = OTHERS[name]
    x, weight = drawn(4, channels, 8, 8), drawn(64, channels // settings.get("groups", 1), 3, 3)
    with Filtering():
        found = F.conv2d(x, weight, **settings)
    assert not calls
    assert torch.equal(found, F.conv2d(x, weight, **settings))


def test_other_numbers_and_wrong_images_are_left_to_pytorch(calls) -> None:
    x, weight = drawn(4, 64, 8, 8), drawn(64, 64, 3, 3)
    with Filtering():
        assert F.conv2d(x.double(), weight.double(), padding=1).dtype == torch.float64
        assert F.conv2d(x[0], weight, padding=1).shape == (64, 8, 8)
        assert F.conv2d(x[:0], weight, padding=1).shape == (0, 64, 8, 8)
        with pytest.raises(RuntimeError, match="channels"):
            F.conv2d(x[:, :32], weight, padding=1)
        each = torch.func.vmap(lambda one: F.conv2d(one.unsqueeze(0), weight, padding=1))(x)
    assert not calls
    assert each.shape == (4, 1, 64, 8, 8)


def test_arguments_may_be_said_by_name(calls) -> None:
    x, weight = drawn(4, 64, 8, 8), drawn(64, 64, 3, 3)
    with Filtering():
        one = torch.conv2d(x, weight, None, (1, 1), (1, 1))
        other = torch.conv2d(weight=weight, input=x, padding=[1, 1], stride=1)
    assert calls == [False, False]
    assert torch.equal(one, other)


def test_only_gradients_that_are_wanted_are_made(calls) -> None:
    x, weight = drawn(4, 64, 8, 8), drawn(64, 64, 3, 3)
    with Filtering():
        F.conv2d(x, weight.requires_grad_(), padding=1).sum().backward()
    assert calls == [False]
    assert weight.grad is not None


def test_gradients_of_gradients_are_those_of_autograd() -> None:
    x, weight = drawn(2, 64, 4, 4).requires_grad_(), drawn(64, 64, 3, 3).mul_(0.05).requires_grad_()

    def second() -> torch.Tensor:
        (slope,) = torch.autograd.grad(F.conv2d(x, weight, padding=1).square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), weight)[0]

    with Filtering():
        found = second()
    torch.testing.assert_close(found, second(), rtol=1e-4, atol=1e-3)


def test_what_is_not_a_number_shows() -> None:
    x = drawn(2, 64, 8, 8)
    x[1, 3, 4, 4] = float("nan")
    with Filtering():
        y = F.conv2d(x, drawn(64, 64, 3, 3), padding=1)
    assert y[0].isfinite().all()
    assert y[1, :, 3:6, 3:6].isnan().all()


def workspace_of(network: nn.Module, **how: bool) -> Workspace:
    return Workspace(network, Layout.of(network), F.cross_entropy, written=True, **how)


def test_a_residual_network_trains_as_it_does_without_up_to_rounding(calls) -> None:
    torch.manual_seed(0)
    network = ResNet18(norm="group")((3, 16, 16), 10)
    for module in list(network.modules()):  # smooth: a ReLU that rounding tips over changes gradients by more
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, name, nn.Softplus())
    before, modules = copy.deepcopy(network.state_dict()), {name: vars(m).keys() for name, m in network.named_modules()}
    natively, plainly = workspace_of(copy.deepcopy(network), native=True), workspace_of(network)
    x, y = drawn(8, 3, 16, 16), torch.arange(8)
    for workspace in (natively, plainly):
        workspace.load(workspace.params.clone(), training=True)
    one, other = natively.differentiate(x, y), plainly.differentiate(x, y)
    assert calls.count(False) == calls.count(True) == 13
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert (natively.gradient - plainly.gradient).norm() <= 2e-5 * plainly.gradient.norm()
    assert all(torch.equal(value, before[name]) for name, value in natively.network.state_dict().items())
    assert {name: vars(m).keys() for name, m in natively.network.named_modules()} == modules


def test_looking_is_native_too(calls) -> None:
    network = ResNet18()((3, 16, 16), 10)
    natively = workspace_of(network, native=True)
    natively.load(natively.params.clone(), training=False)
    x = drawn(8, 3, 16, 16)
    with torch.no_grad():
        found, there = natively.answer(x), natively.forward(x).output
        torch.testing.assert_close(found, network(x), rtol=1e-4, atol=1e-5)
    assert torch.equal(found, there)
    assert calls == [False] * 26


def federation() -> Federation:
    x, y = drawn(16, 12, 12, 3), torch.arange(16) % 3
    source = Source("drawn", Examples(x, y), Examples(x[:4], y[:4]), classes=3)
    return Federation.of(source, [list(range(8)), list(range(8, 16))])


def test_in_one_process_and_in_several_bits_are_the_same() -> None:
    data = federation()
    task = Task.of(ResNet18(), data)
    assert task.native
    results = []
    for engine in (Inline(data, task, native=True), Pool(data, task, workers=2, native=True), Inline(data, task)):
        with closing(engine):
            method = fr.method(fedavg(), local=Sgd(epochs=1, batch=4, lr=0.01), fraction=1.0)
            *_, state = fr.train(method, engine, rounds=1)
            results.append(state.batons[0].params)
    one, several, plain = results
    assert sha256(one) == sha256(several) != sha256(plain)
    assert (one - plain).norm() <= 1e-2 * (plain - task.init(0)).norm()


@pytest.mark.parametrize(("model", "native"), [(ResNet18(), True), (PflCnn(), False), (CharLstm(), False)], ids=repr)
def test_which_networks_have_something_to_gain(model, native) -> None:
    shape, classes = ((80,), 80) if isinstance(model, CharLstm) else ((3, 32, 32), 10)
    assert filters(model(shape, classes)) is native


def test_fewer_digits_are_for_the_operator_of_pytorch():
    x, weight = torch.randn(10, 64, 16, 16), torch.randn(64, 64, 3, 3)
    assert filtering.usual(x, weight, None, 1, 1)
    with torch.autocast("cpu", torch.bfloat16):
        assert not filtering.usual(x, weight, None, 1, 1)
