"""Training outside the interpreter; the oracles are PyTorch's autograd and optimisers, and arithmetic by hand."""

from __future__ import annotations

import copy
import math
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fedrelay as fr
from fedrelay import Adam, BadInput, Federation, Sgd, Task
from fedrelay.algorithms import feddyn, fedprox, fedseq, scaffold
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.errors import SAID
from fedrelay.kernels import native
from fedrelay.kernels.native import Dense, Rule, dense_layers
from fedrelay.models import Logistic, Mlp, Own
from fedrelay.types import Baton, Chain
from fedrelay.vectors import Layout, sha256
from fedrelay.visits.optimisers import AdamW

STEPS = {
    "plain": ({}, lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": (
        {"momentum": 0.9, "weight_decay": 0.01},
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    ),
    "adam": ({"kind": 1, "weight_decay": 0.01}, lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.01)),
    "adamw": ({"kind": 2, "weight_decay": 0.01}, lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01)),
}


pytestmark = pytest.mark.usefixtures("compiled")


def network(*sizes: int, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(1)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def rule(**settings) -> tuple[Rule, list[torch.Tensor]]:
    """A rule for vectors of 4,000 numbers at most, with what it points to."""
    kept = [torch.zeros(4000), torch.zeros(4000)]
    made = Rule(lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8, **settings)
    if made.kind or made.momentum:
        made.velocity, made.square = kept[0].data_ptr(), kept[1].data_ptr()
    return made, kept


@pytest.mark.parametrize("sizes", [(12, 5), (12, 8, 5), (12, 9, 7, 5)])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_steps_are_those_of_autograd_and_torch_optim(sizes, name, clip):
    settings, optimiser = STEPS[name]
    net = network(*sizes, bias=len(sizes) != 3)
    layout, other = Layout.of(net), copy.deepcopy(net)
    weights, gradient = torch.empty(layout.size), torch.empty(layout.size)
    layout.bind(net, weights, gradient)
    x, y = torch.randn(17, 3, 4), torch.randint(0, 5, (17,))
    made, _kept = rule(clip=clip, **settings)
    total = Dense(dense_layers(net, layout), weights, gradient).descend(x, y, 5, made)
    steps, expected = optimiser(other.parameters()), 0.0
    for part, targets in zip(x.split(5), y.split(5), strict=True):
        steps.zero_grad()
        loss = F.cross_entropy(other(part), targets)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(other.parameters(), clip)
        steps.step()
        expected += float(loss.detach()) * len(targets)
    assert total == pytest.approx(expected, rel=1e-5)
    for mine, theirs in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-5)


def test_one_step_of_logistic_regression_by_hand():
    net = network(2, 2)
    layout = Layout.of(net)
    weights, gradient = torch.empty(layout.size), torch.empty(layout.size)
    layout.bind(net, weights, gradient)
    weights.zero_()
    x, y = torch.tensor([[3.0, -1.0]]), torch.tensor([1])
    total = Dense(dense_layers(net, layout), weights, gradient).descend(x, y, 4, rule()[0])
    assert total == pytest.approx(math.log(2))  # both classes are as likely
    # The logits' gradient is (1/2, -1/2), the rate 0.1.
    assert weights.tolist() == pytest.approx([-0.15, 0.05, 0.15, -0.05, -0.05, 0.05])


def test_a_spring_and_a_shift_act_on_the_gradient():
    net = network(2, 2, bias=False)
    layout = Layout.of(net)
    weights, gradient = torch.empty(layout.size), torch.empty(layout.size)
    layout.bind(net, weights, gradient)
    weights.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    anchor, shift = torch.zeros(4), torch.tensor([0.0, 0.0, 0.0, 10.0])
    pulled = rule(strength=0.5, anchor=anchor.data_ptr(), shift=shift.data_ptr())[0]
    Dense(dense_layers(net, layout), weights, gradient).descend(torch.zeros(1, 2), torch.tensor([0]), 1, pulled)
    assert weights.tolist() == pytest.approx([0.95, 1.9, 2.85, 2.8])  # w - 0.1 (w / 2 + shift): inputs are zero


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(digits(), Dirichlet(alpha=0.5), 20)


def relayed(federation: Federation, model, local, *, kind=Inline, change=None, rounds=2, **settings) -> torch.Tensor:
    algorithm = fr.method(*([change] if change else []), local=local, fraction=0.3)
    with closing(kind(federation, Task.of(model, federation), **settings)) as engine:
        *_, state = fr.train(algorithm, engine, rounds=rounds)
    return state.batons[0].params


@pytest.mark.parametrize(
    "change", [None, fedprox(mu=0.5), feddyn(alpha=0.1), scaffold()], ids=["", "prox", "dyn", "scaffold"]
)
@pytest.mark.parametrize("model", [Mlp(hidden=(16,)), Logistic()], ids=["mlp", "logistic"])
def test_methods_come_out_as_inline_up_to_rounding(federation, model, change):
    local = Sgd(batch=7, lr=0.1, epochs=2)
    one, other = (relayed(federation, model, local, change=change, native=native) for native in (False, True))
    assert not torch.equal(one, other)  # else nothing was tried
    assert float((one - other).norm() / one.norm()) < 1e-5


@pytest.mark.parametrize(
    "local",
    [
        *(Adam(batch=8), AdamW(batch=8), Sgd(batch=8, momentum=0.9, carry_momentum=True)),
        Adam(batch=8, beta2=0.99999999),  # which is 1 in float32
    ],
)
def test_optimisers_come_out_as_inline_up_to_rounding(federation, local):
    one, other = (relayed(federation, Mlp(hidden=(16,)), local, native=native) for native in (False, True))
    assert not torch.equal(one, other)
    assert float((one - other).norm() / one.norm()) < 1e-4


def test_workers_have_the_same_sha256(federation):
    local = Sgd(batch=8, lr=0.1)
    inline = relayed(federation, Mlp(hidden=(16,)), local, native=True)
    assert sha256(relayed(federation, Mlp(hidden=(16,)), local, kind=Pool, workers=2, native=True)) == sha256(inline)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("change", "local"),
    [
        (None, Sgd(batch=8, lr=0.1, epochs=2)),
        (None, Adam(steps=7, batch=8, validation=0.2)),
        (scaffold(), Sgd(batch=8, lr=0.1)),
        (fedseq(groups=7), Sgd(batch=8, lr=0.1, momentum=0.9, clip=1.0)),
    ],
    ids=["", "adam", "memories", "chains"],
)
def test_stacks_have_the_same_sha256_as_visits_one_by_one(federation, change, local, workers, caplog):
    SAID.clear()
    inline = relayed(federation, Mlp(hidden=(16,)), local, change=change, native=True)
    how = {"kind": Stacked, "rows": 4, "workers": workers, "native": True}
    assert sha256(relayed(federation, Mlp(hidden=(16,)), local, change=change, **how)) == sha256(inline)
    assert "one by one" not in caplog.text


def test_what_cannot_be_native_is_stacked_as_ever(federation):
    model, local = Own(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))), Sgd(batch=8, lr=0.1)
    one, other = (relayed(federation, model, local, kind=Stacked, native=native) for native in (False, True))
    assert sha256(one) == sha256(other)


def test_a_client_that_fails_does_not_take_its_stack_with_it(federation):
    """The first client's targets are no classes; the others come out as without it."""
    source, first = federation.source, federation.client(0).rows
    y = source.train.y.clone()
    y[first] = 99
    wrong = Federation(replace(source, train=replace(source.train, y=y)), federation.order, federation.starts)
    task = Task.of(Mlp(hidden=(8,)), federation)
    chains = [Chain(Baton(task.init(0)), (client,)) for client in range(3)]
    lost, *others = Stacked(wrong, task, native=True).run(Sgd(batch=8), chains, {}, 1)
    assert "there are 10 classes" in lost.dropped[0].reason
    _, *alone = Inline(federation, task, native=True).run(Sgd(batch=8), chains, {}, 1)
    assert [sha256(other.baton.params) for other in others] == [sha256(one.baton.params) for one in alone]


def test_where_data_lies_does_not_change_sha256(federation):
    """Rows that are taken as they lie, and rows that a transform makes first."""
    source = federation.source
    changed = replace(source, train=source.train.with_transform(Same()))
    same = Federation(changed, federation.order, federation.starts)
    local = Sgd(batch=8, lr=0.1)
    one, other = (relayed(data, Mlp(hidden=(16,)), local, native=True) for data in (federation, same))
    assert sha256(one) == sha256(other)


class Same:
    """A transform that changes nothing."""

    draws = False

    def __call__(self, x: torch.Tensor, rng: np.random.Generator | None) -> torch.Tensor:
        return x


@pytest.mark.parametrize(
    ("model", "local"),
    [
        (Own(nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(18, 10))), Sgd(batch=8, lr=0.1)),
        (Own(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))), Sgd(batch=8, lr=0.1)),
        (Mlp(hidden=(8,)), Sgd(batch=8, lr=0.1, terms=(fr.visits.Sharpness(),))),
    ],
    ids=["a stride", "another layer", "a term that runs the model"],
)
def test_what_it_cannot_do_runs_as_ever(federation, model, local):
    one, other = (relayed(federation, model, local, native=native, rounds=1) for native in (False, True))
    assert sha256(one) == sha256(other)


def test_a_target_that_is_no_class_drops_its_client():
    images = fr.data.Examples(torch.rand(4, 6), torch.tensor([0, 1, 7, 1]))
    net = network(6, 2)
    layout = Layout.of(net)
    weights, gradient = torch.empty(layout.size), torch.empty(layout.size)
    layout.bind(net, weights, gradient)
    before = weights.clone()
    with pytest.raises(IndexError, match="targets from 0 to 7, but there are 2 classes"):
        Dense(dense_layers(net, layout), weights, gradient).descend(images.x, images.y, 2, rule()[0])
    assert torch.equal(weights, before)


@pytest.mark.parametrize("count", [1, 2, 7, 33])
@pytest.mark.parametrize("span", [1e-6, 1.0, 20.0, 87.0, 103.0, 130.0, 1e30, math.inf])
def test_the_loss_and_its_gradient_are_precise_for_logits_of_any_size(count, span):
    """The input is zero, so the bias is what the logits are, and its gradient what becomes of them."""
    net = network(1, count)
    layout = Layout.of(net)
    weights, gradient = torch.empty(layout.size), torch.empty(layout.size)
    layout.bind(net, weights, gradient)
    logits = torch.cat([torch.zeros(1), -span * torch.rand(count - 1)])
    weights[count:] = logits
    target = count // 2
    made, kept = rule(momentum=0.9)
    total = Dense(dense_layers(net, layout), weights, gradient).descend(
        torch.zeros(1, 1), torch.tensor([target]), 1, made
    )
    wanted = torch.softmax(logits.double(), 0)
    own = F.one_hot(torch.tensor(target), count)
    assert torch.allclose(kept[0][count : 2 * count].double() + own, wanted, rtol=3e-7, atol=6e-8)
    others = own == 0
    assert torch.allclose(kept[0][count : 2 * count][others].double(), wanted[others], rtol=3e-7, atol=1e-37)
    assert total == pytest.approx(float(torch.logsumexp(logits.double(), 0) - logits[target]), rel=1e-6, abs=1e-7)


def test_logits_that_are_no_numbers_show():
    net = network(1, 5)
    layout = Layout.of(net)
    weights, gradient = torch.empty(layout.size), torch.empty(layout.size)
    layout.bind(net, weights, gradient)
    weights[7] = math.nan
    made, kept = rule(momentum=0.9)
    dense = Dense(dense_layers(net, layout), weights, gradient)
    assert math.isnan(dense.descend(torch.zeros(1, 1), torch.tensor([0]), 1, made))
    assert kept[0][5:10].isnan().all()


def test_a_model_that_explodes_is_dropped(federation):
    task = Task.of(Mlp(hidden=(8,)), federation)
    chain = Chain(Baton(task.init(0)), (0,))
    (outcome,) = Inline(federation, task, native=True).run(Sgd(lr=1e30, batch=4, epochs=3), [chain], {}, 1)
    assert "non-finite" in outcome.dropped[0].reason or "exploded" in outcome.dropped[0].reason


def test_without_the_library_it_is_refused_with_what_to_do(federation, monkeypatch):
    monkeypatch.setattr(native.library, "found", lambda: "fedrelay was installed without a C compiler")
    for kind in (Inline, Pool, Stacked):
        with pytest.raises(BadInput, match=r"native = true needs the compiled part of fedrelay.*install a C compiler"):
            kind(federation, Task.of(Logistic(), federation), native=True)


def test_the_blas_of_scipy_does_as_well(monkeypatch):
    monkeypatch.setattr(native.library, "of_torch", lambda: None)
    native.found.cache_clear()
    try:
        assert native.found().blas == "SciPy's BLAS"
        test_steps_are_those_of_autograd_and_torch_optim((12, 9, 7, 5), "momentum", 0.2)
    finally:
        native.found.cache_clear()


def test_labels_of_another_type_train_as_ever(federation):
    source = federation.source
    train = replace(source.train, y=source.train.y.to(torch.uint8))
    small = Federation(replace(source, train=train), federation.order, federation.starts)
    local = Sgd(batch=8, lr=0.1)
    one, other = (relayed(data, Mlp(hidden=(16,)), local, native=True) for data in (federation, small))
    assert sha256(one) == sha256(other)


def test_inputs_that_are_no_float32_drop_their_client(federation):
    source = federation.source
    wrong = replace(source, train=source.train.with_transform(Doubled()))
    task = Task.of(Mlp(hidden=(8,)), federation)
    chain = Chain(Baton(task.init(0)), (0,))
    engine = Inline(Federation(wrong, federation.order, federation.starts), task, native=True)
    (outcome,) = engine.run(Sgd(batch=4), [chain], {}, 1)
    assert "numbers of float32 and a class each are needed" in outcome.dropped[0].reason


class Doubled:
    """A transform that gives more digits than a model has."""

    draws = False

    def __call__(self, x: torch.Tensor, rng: np.random.Generator | None) -> torch.Tensor:
        return x.double()
