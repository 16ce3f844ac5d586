"""Convolutions outside the interpreter; the oracles are autograd in float64, and the layers of PyTorch."""

from __future__ import annotations

import copy
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fedrelay as fr
from fedrelay import Adam, Federation, Sgd, Task
from fedrelay.algorithms import fedavg
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.kernels import native
from fedrelay.kernels.native import Dense, Looking, Rule, dense_layers
from fedrelay.kernels.workspace import Workspace
from fedrelay.models import FemnistCnn, LeafCnn, LeNet5, Own, PflCnn, SmallCnn
from fedrelay.models.cnn import ClusteredCnn, FedelmyCnn
from fedrelay.runs.record import Recorder
from fedrelay.system.threads import operator_threads
from fedrelay.types import Baton, Chain
from fedrelay.vectors import Layout, sha256

pytestmark = pytest.mark.usefixtures("compiled")


def dense(*before: nn.Module, features: int, classes: int = 4) -> nn.Sequential:
    return nn.Sequential(*before, nn.Flatten(), nn.Linear(features, classes))


NETWORKS = {
    "one filter of one pixel": (lambda: dense(nn.Conv2d(1, 1, 1), features=12), (1, 3, 4)),
    "many channels and filters": (
        lambda: dense(nn.Conv2d(3, 70, 3), nn.ReLU(), nn.Conv2d(70, 17, 3), nn.MaxPool2d(2), features=17 * 4),
        (3, 8, 8),
    ),
    "zeros around, no bias": (
        lambda: dense(
            nn.Conv2d(2, 5, (2, 3), padding=(1, 2), bias=False), nn.MaxPool2d(2), nn.ReLU(), features=5 * 3 * 4
        ),
        (2, 5, 7),
    ),
    "ReLU before pooling, rows and columns left over": (
        lambda: dense(
            *(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(16, 33, 3, padding=1), nn.MaxPool2d(2)),
            features=33,
        ),
        (3, 11, 9),
    ),
    "a large dense layer for few examples": (
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 16, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4096, 64), nn.ReLU(), nn.Linear(64, 4))
        ),
        (1, 16, 16),
    ),
    "the same without convolutions": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(4096, 64), nn.ReLU(), nn.Linear(64, 4)),
        (1, 64, 64),
    ),
    "three of them, dense layers behind": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 6, 5), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(24, 9), nn.ReLU(), nn.Linear(9, 4)),
        ),
        (3, 12, 12),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd_within_a_millionth(name, lanes):
    torch.manual_seed(2)
    make, shape = NETWORKS[name]
    net = make()
    layout, exact = Layout.of(net), copy.deepcopy(net).double()
    weights, gradient, velocity = (torch.zeros(layout.size) for _ in range(3))
    layout.bind(net, weights, gradient)
    x, y = torch.randn(5, *shape), torch.randint(0, 4, (5,))
    rule = Rule(lr=0.1, momentum=0.9, velocity=velocity.data_ptr())  # then gradients are written down
    total = Dense(dense_layers(net, layout), weights, gradient).descend(x, y, 5, rule)
    loss = F.cross_entropy(exact(x.double()), y)
    loss.backward()
    assert total == pytest.approx(float(loss.detach()) * 5, rel=1e-6)
    for mine, theirs in zip(net.parameters(), exact.parameters(), strict=True):
        assert float((mine.grad - theirs.grad).norm() / theirs.grad.norm()) < 1e-6


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", [name for name in NETWORKS if "without" not in name])
def test_answers_are_those_of_float64_within_a_millionth(name, threads, lanes):
    torch.manual_seed(2)
    make, shape = NETWORKS[name]
    net = make()
    layout, exact = Layout.of(net), copy.deepcopy(net).double()
    weights = torch.zeros(layout.size)
    layout.bind(net, weights, torch.zeros(layout.size))
    x = torch.randn(50, *shape)
    with torch.no_grad(), operator_threads(threads):
        found, wanted = Looking(net, dense_layers(net, layout), weights)(x), exact(x.double())
    assert float((found - wanted).norm() / wanted.norm()) < 1e-6


ZOO = {
    "lenet5": (LeNet5(), (3, 32, 32)),
    "pfl_cnn": (PflCnn(), (3, 32, 32)),
    "femnist_cnn": (FemnistCnn(), (1, 28, 28)),
    "leaf_cnn": (LeafCnn(), (1, 28, 28)),
    "clustered_cnn": (ClusteredCnn(), (3, 32, 32)),
    "fedelmy_cnn": (FedelmyCnn(), (3, 32, 32)),
}


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_takes_the_steps_of_pytorchs_layers_with_the_same_dropout(name):
    model, shape = ZOO[name]
    torch.manual_seed(3)
    net = model(shape, 10)
    layout, other = Layout.of(net), copy.deepcopy(net)
    weights, gradient = torch.empty(layout.size), torch.empty(layout.size)
    layout.bind(net, weights, gradient)
    workspace = Workspace(other, layout, F.cross_entropy, written=True)
    workspace.mode(training=True)
    x = torch.randn(7, *shape).contiguous(memory_format=torch.channels_last)
    y, expected = torch.randint(0, 10, (7,)), 0.0
    before = weights.clone()
    torch.manual_seed(4)
    total = Dense(dense_layers(net, layout), weights, gradient).descend(x, y, 3, Rule(lr=0.05))
    torch.manual_seed(4)
    for part, targets in zip(x.split(3), y.split(3), strict=True):
        expected += float(workspace.step(part, targets, 0.05)) * len(targets)
    assert total == pytest.approx(expected, rel=1e-5)
    assert float((weights - workspace.weights).norm() / (weights - before).norm()) < 1e-4


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Conv2d(1, 2, 3, stride=2), nn.ReLU()),
        (nn.Conv2d(1, 2, 3, dilation=2), nn.ReLU()),
        (nn.Conv2d(1, 2, 3), nn.MaxPool2d(3)),
        (nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, ceil_mode=True)),
        (nn.Conv2d(1, 2, 3), nn.Dropout(0.1), nn.ReLU()),
        (nn.MaxPool2d(2), nn.Conv2d(1, 2, 3)),
        (nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)),
    ],
    ids=["stride", "dilation", "pool of 3", "pool beyond the edge", "dropout first", "pool first", "norm"],
)
def test_other_networks_are_not_taken(layers):
    net = dense(*layers, features=8)
    assert dense_layers(net, Layout.of(net)) is None


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(digits(), Dirichlet(alpha=0.5), 20)


DROPPING = Own(
    nn.Sequential(
        *(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3), nn.Flatten(), nn.Dropout(0.2)),
        *(nn.Linear(54, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 10)),
    )
)


def relayed(federation: Federation, model, local, *, kind=Inline, **settings) -> torch.Tensor:
    with closing(kind(federation, Task.of(model, federation), **settings)) as engine:
        *_, state = fr.train(fr.method(local=local, fraction=0.3), engine, rounds=2)
    return state.batons[0].params


def test_a_native_workspace_answers_natively_where_nothing_is_trained(monkeypatch):
    spied = []
    monkeypatch.setattr(Looking, "_look", lambda self, *given: spied.append(len(given[1])))
    net = DROPPING((1, 8, 8), 10)
    workspace = Workspace(net, Layout.of(net), F.cross_entropy, written=True, native=True)
    x = torch.randn(7, 1, 8, 8)
    workspace.load(torch.zeros_like(workspace.params), training=True)
    with torch.no_grad():
        workspace.answer(x)
    assert not spied  # dropout is for the layers of PyTorch
    workspace.mode(training=False)
    workspace.answer(x)  # somebody may want gradients
    assert not spied
    with torch.no_grad():
        workspace.answer(x)
        assert spied == [7]
        assert workspace.answer(x[:0]).shape == (0, 10)
        with pytest.raises(RuntimeError, match="shape"):
            workspace.answer(torch.randn(2, 1, 20, 20))  # as ever
    assert spied == [7]


def test_a_look_at_images_of_another_size_leaves_training_as_it_was():
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(8, 4, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(576, 4)),
    )
    layout = Layout.of(net)
    weights, gradient = torch.zeros(layout.size), torch.zeros(layout.size)
    layout.bind(net, weights, gradient)
    sequence = dense_layers(net, layout)
    looking, dense = Looking(net, sequence, weights), Dense(sequence, weights, gradient)
    dense.descend(torch.randn(5, 1, 29, 29), torch.zeros(5, dtype=torch.int64), 4, Rule(lr=0.1))
    words = sequence.drawn(1)
    with torch.no_grad():
        assert looking.takes(torch.randn(2, 1, 28, 28))
        looking(torch.randn(2, 1, 28, 28))
        assert not looking.takes(torch.randn(2, 1, 5, 5))
    assert sequence.drawn(1) == words


def test_runs_that_train_natively_are_tested_so(federation, tmp_path, monkeypatch):
    looks, look = [], Looking._look
    monkeypatch.setattr(Looking, "_look", lambda self, *given: (looks.append(len(given[1])), look(self, *given)))
    losses = {}
    for native_too in (True, False):
        engine = Inline(federation, Task.of(DROPPING, federation), native=native_too)
        algorithm = fr.method(fedavg(), local=Sgd(batch=8, lr=0.1), fraction=0.1)
        recorder = Recorder(tmp_path / str(native_too), algorithm, engine, federation.test, rounds=1)
        (line,) = recorder.run()
        losses[native_too] = line.metrics["loss"]
        assert sum(looks) == 2 * len(federation.test)  # after the round, and by classes at the end
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)


@pytest.mark.parametrize("local", [Sgd(batch=7, lr=0.1, epochs=2), Sgd(batch=8, momentum=0.9, clip=0.5), Adam(batch=8)])
@pytest.mark.parametrize("model", [SmallCnn(channels=(4, 5)), DROPPING], ids=["small_cnn", "dropout"])
def test_runs_come_out_as_inline_up_to_rounding(federation, model, local):
    one, other = (relayed(federation, model, local, native=native) for native in (False, True))
    assert not torch.equal(one, other)  # else nothing was tried
    assert float((one - other).norm() / one.norm()) < 1e-4


def test_workers_and_pieces_of_random_bits_have_the_same_sha256(federation, monkeypatch):
    local = Sgd(batch=8, lr=0.1)
    inline = relayed(federation, DROPPING, local, native=True)
    assert sha256(relayed(federation, DROPPING, local, kind=Pool, workers=2, native=True)) == sha256(inline)
    assert sha256(relayed(federation, DROPPING, local, kind=Stacked, native=True)) == sha256(inline)
    monkeypatch.setattr(native.dense, "BITS", 1)
    assert sha256(relayed(federation, DROPPING, local, native=True)) == sha256(inline)


def test_images_that_a_transform_makes_train_as_those_that_lie_ready(federation):
    source = federation.source
    changed = replace(source, train=source.train.with_transform(lambda x, rng: x))
    same = Federation(changed, federation.order, federation.starts)
    local = Sgd(batch=8, lr=0.1)
    one, other = (relayed(data, SmallCnn(channels=(4,)), local, native=True) for data in (federation, same))
    assert sha256(one) == sha256(other)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(2, 3, 8, 8), "images of 1 channels of float32"),
        (torch.zeros(2, 1, 3, 8), "images are too small"),
        (torch.zeros(2, 1, 11, 8), "dense layers for 8 numbers"),
    ],
)
def test_images_of_another_shape_are_refused(x, words):
    net = dense(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Conv2d(2, 2, 2), features=8)
    layout = Layout.of(net)
    weights, gradient = torch.empty(layout.size), torch.empty(layout.size)
    layout.bind(net, weights, gradient)
    with pytest.raises(RuntimeError, match=words):
        Dense(dense_layers(net, layout), weights, gradient).descend(
            x, torch.zeros(2, dtype=torch.int64), 2, Rule(lr=0.1)
        )


def test_a_pixel_that_is_no_number_drops_its_client(federation):
    source = federation.source
    x = source.train.x.clone()
    x[federation.client(0).rows[0], 3, 3] = float("nan")
    spoiled = Federation(replace(source, train=replace(source.train, x=x)), federation.order, federation.starts)
    task = Task.of(SmallCnn(channels=(4,)), federation)
    engine = Inline(spoiled, task, native=True)
    (outcome,) = engine.run(Sgd(batch=4), [Chain(Baton(task.init(0)), (0,))], {}, 1)
    assert outcome.dropped
