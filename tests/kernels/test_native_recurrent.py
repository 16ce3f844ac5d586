"""LSTM layers outside the interpreter; the oracles are autograd in float64, and the optimisers of PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fedrelay as fr
from fedrelay import Adam, Federation, Sgd, Task
from fedrelay.data import Examples, Iid, Source
from fedrelay.engines import Inline, Pool
from fedrelay.kernels.native import Dense, Rule, dense_layers
from fedrelay.models import CharLstm, Own, WordLstm
from fedrelay.models.lstm import Reader
from fedrelay.models.network import Network
from fedrelay.types import Baton, Chain
from fedrelay.vectors import Layout, sha256

pytestmark = pytest.mark.usefixtures("compiled")


def reading(embedding: int = 3, hidden: int = 5, tokens: int = 6, **settings) -> Reader:
    lstm = nn.LSTM(embedding, hidden, batch_first=True, **settings)
    return Reader(tokens, embedding, lstm, every_step=False)


def behind(reader: Reader, *layers: nn.Module, features: int = 5, classes: int = 6) -> nn.Sequential:
    return nn.Sequential(reader, *layers, nn.Linear(features, classes))


NETWORKS = {
    "that of LEAF's Shakespeare": (lambda: CharLstm()((80,), 80), (10, 80), 80),
    "one step, one layer of one unit": (lambda: behind(reading(1, 1), features=1), (1, 1), 6),
    "units that fill registers, many examples": (lambda: behind(reading(16, 32), features=32), (31, 7), 6),
    "three layers without biases": (lambda: behind(reading(num_layers=3, bias=False)), (13, 9), 6),
    "other layers behind": (
        lambda: behind(reading(num_layers=2), nn.Linear(5, 7), nn.ReLU(), features=7),
        (4, 11),
        6,
    ),
    "many words, of which few are there": (lambda: WordLstm(20, 37, every_step=False)((5,), 300), (6, 5), 300),
    "so many examples that steps are gathered one by one": (lambda: behind(reading(4, 18), features=18), (300, 3), 6),
}


def bound(net: nn.Module) -> tuple[Dense, torch.Tensor, torch.Tensor]:
    layout = Layout.of(net)
    weights, gradient = torch.zeros(layout.size), torch.full((layout.size,), 7.0)
    layout.bind(net, weights, gradient)
    return Dense(dense_layers(net, layout), weights, gradient), weights, gradient


def texts(shape: tuple[int, int], tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, tokens, shape), torch.randint(0, tokens, shape[:1])


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd_within_a_millionth(name, lanes):
    torch.manual_seed(2)
    make, shape, tokens = NETWORKS[name]
    net = make()
    exact = copy.deepcopy(net).double()
    dense, weights, _ = bound(net)
    velocity = torch.zeros_like(weights)
    x, y = texts(shape, tokens)
    rule = Rule(lr=0.1, momentum=0.9, velocity=velocity.data_ptr())  # then gradients are written down
    total = dense.descend(x, y, len(y), rule)
    loss = F.cross_entropy(exact(x), y)
    loss.backward()
    assert total == pytest.approx(float(loss.detach()) * len(y), rel=1e-6)
    for mine, theirs in zip(net.parameters(), exact.parameters(), strict=True):
        assert float((mine.grad - theirs.grad).norm()) <= 1e-6 * float(theirs.grad.norm())


def test_gates_are_precise_near_zero_and_at_their_ends(lanes):
    """The one unit's bias goes through all that a gate may get; what it says is seen in the loss."""
    torch.manual_seed(2)
    net = behind(reading(1, 1), features=1)
    exact = copy.deepcopy(net).double()
    dense, weights, _ = bound(net)
    before = weights.clone()
    for scale in (1e-6, 1e-3, 0.1, 1.0, 5.0, 20.0, 80.0, 1000.0):
        weights.copy_(before)
        lstm = net[0].lstm
        with torch.no_grad():
            lstm.bias_ih_l0.copy_(torch.tensor([scale, -scale, scale, -scale / 20]))
            net[1].weight.copy_(torch.arange(6.0).view(6, 1) / scale)
        exact.load_state_dict({key: value.double() for key, value in net.state_dict().items()})
        x, y = torch.tensor([[1, 2, 0, 1]]), torch.tensor([5])
        wanted = float(F.cross_entropy(exact(x), y).detach())
        assert dense.descend(x, y, 1, Rule(lr=0.0)) == pytest.approx(wanted, rel=1e-6), scale


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", ["body.embedding.weight", "body.lstm.weight_hh_l0", "body.lstm.bias_ih_l1"])
def test_what_is_no_number_shows(place, value, lanes):
    net = CharLstm(embedding=3, hidden=5)((4,), 6)
    dense, weights, _ = bound(net)
    with torch.no_grad():
        net.get_parameter(place).view(-1)[0] = value
    x, y = torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    for _ in range(2):
        dense.descend(x, y, 2, Rule(lr=0.1))
    assert not weights.isfinite().all()


STEPS: dict[str, tuple[dict[str, float], Callable[..., torch.optim.Optimizer]]] = {
    "plain": ({}, lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": (
        {"momentum": 0.9, "weight_decay": 0.01},
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    ),
    "adam": ({"kind": 1}, lambda p: torch.optim.Adam(p, lr=0.1)),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_steps_are_those_of_autograd_and_torch_optim(name, clip):
    torch.manual_seed(3)
    settings, optimiser = STEPS[name]
    net = CharLstm(embedding=4, hidden=9)((8,), 12)
    other = copy.deepcopy(net).double()
    dense, weights, _ = bound(net)
    before = weights.clone()
    kept = [torch.zeros_like(weights) for _ in range(2)]
    rule = Rule(lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8, clip=clip, **settings)
    if settings:
        rule.velocity, rule.square = (part.data_ptr() for part in kept)
    x, y = texts((17, 8), 12)
    total = dense.descend(x, y, 5, rule)
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
    wanted = nn.utils.parameters_to_vector(other.parameters()).detach()
    assert float((weights - wanted).norm() / (wanted - before).norm()) < 1e-4


def hooked(reader: Reader) -> Reader:
    reader.lstm.register_forward_hook(lambda *given: None)
    return reader


def frozen(reader: Reader) -> Reader:
    reader.embedding.weight.requires_grad_(False)
    return reader


def padded(reader: Reader, **settings) -> Reader:
    reader.embedding = nn.Embedding(6, 3, **settings)
    return reader


def every_step(reader: Reader) -> Reader:
    reader.every_step = True
    return reader


OTHERS = {
    "both directions": (lambda: reading(bidirectional=True), 10),
    "dropout between layers": (lambda: reading(num_layers=2, dropout=0.1), 5),
    "a projection": (lambda: reading(proj_size=4), 4),
    "every step": (lambda: every_step(reading()), 5),
    "padding": (lambda: padded(reading(), padding_idx=0), 5),
    "rows cut short": (lambda: padded(reading(), max_norm=1.0), 5),
    "rows by frequency": (lambda: padded(reading(), scale_grad_by_freq=True), 5),
    "a hook": (lambda: hooked(reading()), 5),
    "a table that stays": (lambda: frozen(reading()), 5),
    "more layers than there is room for": (lambda: reading(num_layers=9), 5),
    "rows instead of batches first": (lambda: Reader(6, 3, nn.LSTM(3, 5), every_step=False), 5),
    "dense layers of another size": (reading, 4),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_are_not_taken(name):
    make, features = OTHERS[name]
    net = behind(make(), features=features)
    assert dense_layers(net, Layout.of(net)) is None


def test_a_table_that_two_readers_share_is_not_taken():
    one, other = reading(), reading()
    other.embedding = one.embedding
    for net in (nn.Sequential(one, other, nn.Linear(5, 6)), Network(nn.Sequential(one, one), nn.Linear(5, 6))):
        assert dense_layers(net, Layout.of(net)) is None


TOKENS = 12


def text_federation(dtype: torch.dtype = torch.int64) -> Federation:
    torch.manual_seed(5)
    x = torch.randint(0, TOKENS, (150, 7))
    train = Examples(x.to(dtype), (x[:, -1] + 1) % TOKENS)
    return Federation.split(Source("text", train, train, classes=TOKENS), Iid(), 10)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return text_federation()


SMALL = CharLstm(embedding=3, hidden=10)


def relayed(federation: Federation, local, *, model=SMALL, kind=Inline, **settings) -> torch.Tensor:
    with closing(kind(federation, Task.of(model, federation), **settings)) as engine:
        *_, state = fr.train(fr.method(local=local, fraction=0.3), engine, rounds=2)
    return state.batons[0].params


@pytest.mark.parametrize("local", [Sgd(batch=4, lr=0.5, epochs=2), Sgd(batch=8, momentum=0.9, clip=0.5), Adam(batch=8)])
def test_runs_come_out_as_inline_up_to_rounding(federation, local):
    one, other = (relayed(federation, local, native=native) for native in (False, True))
    assert not torch.equal(one, other)  # else nothing was tried
    assert float((one - other).norm() / one.norm()) < 1e-5


def test_dropout_behind_is_drawn_from_the_visits_seed(federation):
    layers = nn.Dropout(0.5), nn.Linear(5, 5), nn.Dropout(0.5)
    model = Own(behind(reading(tokens=TOKENS), *layers, classes=TOKENS))
    one, again = (relayed(federation, Sgd(batch=4, lr=0.5), model=model, native=True) for _ in range(2))
    assert sha256(one) == sha256(again)
    assert not torch.equal(one, relayed(federation, Sgd(batch=4, lr=0.5), model=model))


def test_workers_have_the_same_sha256(federation):
    local = Sgd(batch=4, lr=0.5)
    inline = relayed(federation, local, native=True)
    assert sha256(relayed(federation, local, kind=Pool, workers=2, native=True)) == sha256(inline)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_tokens_stored_in_fewer_bits_train_as_ever(federation, dtype):
    one, other = (relayed(data, Sgd(batch=4, lr=0.5), native=True) for data in (federation, text_federation(dtype)))
    assert sha256(one) == sha256(other)


def test_every_step_runs_as_ever(federation):
    source = federation.source
    x = source.train.x
    train = Examples(x, x.roll(-1, 1))
    each = Federation(replace(source, train=train, test=train), federation.order, federation.starts)
    model = replace(SMALL, every_step=True)
    one, other = (relayed(each, Sgd(batch=4, lr=0.5), model=model, native=native) for native in (False, True))
    assert sha256(one) == sha256(other)


@pytest.mark.parametrize("token", [-1, 6, 2**40])
def test_a_token_that_is_not_in_the_table_is_refused(token):
    dense, weights, _ = bound(behind(reading()))
    before = weights.clone()
    x, y = texts((6, 4), 6)
    x[4, 2] = token
    with pytest.raises(IndexError, match=r"tokens from .* to .*, but there are 6 rows in the table"):
        dense.descend(x, y, 2, Rule(lr=0.1))
    with pytest.raises(IndexError, match="tokens from"):
        dense.descend(x, y, 2, Rule(lr=0.1), torch.tensor([0, 4]))
    assert torch.equal(weights, before)
    dense.descend(x, y, 2, Rule(lr=0.1), torch.tensor([0, 5]))  # nobody asks for the wrong one
    assert not torch.equal(weights, before)


def test_a_client_with_such_a_token_is_dropped(federation):
    source = federation.source
    x = source.train.x.clone()
    x[federation.client(0).rows[0], 3] = TOKENS
    spoiled = Federation(replace(source, train=replace(source.train, x=x)), federation.order, federation.starts)
    task = Task.of(SMALL, federation)
    chains = [Chain(Baton(task.init(0)), (client,)) for client in range(2)]
    lost, other = Inline(spoiled, task, native=True).run(Sgd(batch=4), chains, {}, 1)
    assert "there are 12 rows in the table" in lost.dropped[0].reason
    assert not other.dropped


@pytest.mark.parametrize(
    "x", [torch.zeros(2, 3), torch.zeros(2, 0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)]
)
def test_inputs_that_are_no_sequences_of_tokens_are_refused(x):
    dense, *_ = bound(behind(reading()))
    with pytest.raises(RuntimeError, match="sequences of tokens and a class each are needed"):
        dense.descend(x, torch.zeros(2, dtype=torch.int64), 2, Rule(lr=0.1))


def test_sequences_may_have_another_length_the_next_time():
    torch.manual_seed(4)
    net = behind(reading())
    exact = copy.deepcopy(net).double()
    dense, *_ = bound(net)
    for length in (3, 9, 2):
        x, y = texts((4, length), 6)
        wanted = float(F.cross_entropy(exact(x), y).detach()) * 4
        assert dense.descend(x, y, 4, Rule(lr=0.0)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(("one", "other"), [("weight_hh_l1", "weight_hh_l0"), ("bias_hh_l0", "bias_ih_l0")])
def test_weights_that_an_lstm_uses_twice_are_left_to_autograd(one, other):
    reader = reading(num_layers=2)
    setattr(reader.lstm, one, getattr(reader.lstm, other))
    net = behind(reader)
    assert dense_layers(net, Layout.of(net)) is None


def test_auto_may_choose_it(federation):
    assert Task.of(SMALL, federation).native
    assert not Task.of(SMALL, federation).stacks
