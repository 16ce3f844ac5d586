"""The training loop, with plain gradient descent for a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedrelay import BadInput, Federation, Sgd, Task
from fedrelay.data import Iid, digits
from fedrelay.models import Mlp, Own
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Visit
from fedrelay.visits import Sharpness, batches
from fedrelay.visits.schedules import Cosine, Exponential, Step


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(digits(), Iid(), 10)


@pytest.fixture(scope="module")
def task(federation) -> Task:
    return Task.of(Mlp(hidden=(12,)), federation)


def visit_of(federation, task, round=1, hop=0) -> Visit:
    return Visit(federation.client(3), task, {}, {}, round, hop, seed=7, workspaces=Workspaces(task))


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
        {"lr": 0.5, "weight_decay": 0.1, "clip": 0.3},
    ],
)
def test_full_batch_steps_are_those_of_torch_optim(federation, task, settings):
    """The oracle is PyTorch's own optimiser on an ordinary, unbound network."""
    client = federation.client(3)
    start = task.init(5)
    baton, _, report = Sgd(steps=6, batch=0, **settings)(Baton(start), visit_of(federation, task))
    network = Mlp(hidden=(12,))(task.shape, task.classes)
    with torch.no_grad():
        for name, value in task.layout.pieces(start).items():
            network.get_parameter(name).copy_(value)
    clip = settings.pop("clip", None)
    optimiser = torch.optim.SGD(network.parameters(), **settings)
    x, y = client.take(torch.arange(client.size), None)
    for _ in range(6):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        if clip:
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimiser.step()
    for name, value in task.layout.pieces(baton.params).items():
        torch.testing.assert_close(value, network.get_parameter(name).detach(), atol=2e-6, rtol=1e-5)
    assert report.examples == 6 * client.size
    assert baton.weight == client.size


def test_the_received_baton_is_not_changed(federation, task):
    start = task.init(5)
    kept = start.clone()
    visit = visit_of(federation, task)
    baton, _, _ = Sgd(lr=0.5)(Baton(start), visit)
    assert torch.equal(start, kept)
    assert not torch.equal(baton.params, kept)
    Sgd(lr=0.5)(Baton(task.init(6)), visit)
    assert not torch.equal(visit.workspaces.main.params, baton.params)


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"epochs": 2, "batch": 4}, [4, 4, 2, 4, 4, 2]),
        ({"steps": 4, "batch": 4}, [4, 4, 2, 4]),
        ({"steps": 2, "batch": 0}, [10, 10]),
        ({"epochs": 1, "batch": 64}, [10]),
    ],
)
def test_batches_pass_over_every_example_once_an_epoch(federation, task, settings, sizes):
    visit = replace(visit_of(federation, task), client=replace(federation.client(3), rows=torch.arange(10)))
    row = Sgd(**settings).row(visit)
    assert row.steps == len(sizes)
    found = list(row.positions())
    assert [len(batch) for batch in found] == sizes
    if "epochs" in settings:
        for epoch in np.split(torch.cat(found).numpy(), settings["epochs"]):
            assert sorted(epoch) == list(range(10))


@pytest.mark.parametrize("chunk", [1, 2000, 10**9])
def test_batches_are_the_same_however_many_are_gathered_at_once(federation, task, monkeypatch, chunk):
    visit, local = visit_of(federation, task), Sgd(epochs=3, batch=7)
    expected = [federation.client(3).take(positions, None) for positions in local.row(visit).positions()]
    monkeypatch.setattr(batches, "CHUNK", chunk)
    passes = [list(one) for one in batches.alone(local.row(visit))]
    assert len(passes) == 3
    found = [batch for one in passes for batch in one]
    assert len(found) == len(expected)
    for (x, y, count), (inputs, targets) in zip(found, expected, strict=True):
        assert torch.equal(x, inputs)
        assert torch.equal(y, targets)
        assert count == len(targets)


def test_batches_differ_from_round_to_round_and_from_hop_to_hop(federation, task):
    start = Baton(task.init(5))
    found = [Sgd(batch=8)(start, visit_of(federation, task, *at))[0].params for at in [(1, 0), (1, 0), (2, 0), (1, 1)]]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[3])


def test_the_schedule_multiplies_the_learning_rate(federation, task):
    start = Baton(task.init(5))
    slow = Sgd(batch=0, lr=0.4, schedule=Step(every=2, factor=0.5))(start, visit_of(federation, task, round=3))
    plain = Sgd(batch=0, lr=0.2)(start, visit_of(federation, task, round=3))
    torch.testing.assert_close(slow[0].params, plain[0].params)


def test_schedules_follow_their_formulas():
    assert [Exponential(0.5)(r) for r in (1, 2, 4)] == [1, 0.5, 0.125]
    assert [Step(2, 0.1)(r) for r in (1, 2, 3, 5)] == pytest.approx([1, 1, 0.1, 0.01])
    assert [Cosine(4, 0.2)(r) for r in (1, 3, 5, 99)] == pytest.approx([1, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": -1.0}, "lr must be at least 0, not -1"),
        ({"lr": float("nan")}, "lr must be at least 0"),
        ({"momentum": 1.0}, "momentum must be below 1"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"batch": -1}, "batch must be at least 0"),
        ({"clip": 0.0}, "clip must be above 0"),
    ],
)
def test_settings_out_of_range_are_refused_with_the_range(settings, message):
    with pytest.raises(BadInput, match=message):
        Sgd(**settings)


def test_the_statistics_of_the_step_uphill_do_not_count(federation):
    """Running statistics after one step are those of its batch at the received weights, with SAM or without."""
    task = Task.of(Own(nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 10))), federation)
    start = Baton(task.init(5))
    plain, _, _ = Sgd(steps=1, lr=0.1)(start, visit_of(federation, task))
    uphill, _, _ = Sgd(steps=1, lr=0.1, terms=(Sharpness(0.5),))(start, visit_of(federation, task))
    weights = task.layout.trainable
    assert len(start.params) > weights
    assert not torch.equal(uphill.params[:weights], plain.params[:weights])
    assert not torch.equal(uphill.params[weights:], start.params[weights:])
    assert torch.equal(uphill.params[weights:], plain.params[weights:])
