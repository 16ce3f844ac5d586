"""The centralised reference is one long training by PyTorch's own optimiser and schedule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, config, train
from fedrelay.algorithms import centralized, fednova
from fedrelay.data import Iid, digits
from fedrelay.engines import Inline, Pool
from fedrelay.models import Logistic
from fedrelay.visits.schedules import Cosine

EPOCHS = 6
LOCAL = Sgd(batch=0, lr=0.5, momentum=0.9, weight_decay=0.01, carry_momentum=True, schedule=Cosine(rounds=EPOCHS))


@pytest.fixture(scope="module")
def pooled() -> Federation:
    return Federation.split(digits(), Iid(), 10).pooled()


def trained(pooled: Federation, local: Sgd, engine=Inline) -> torch.Tensor:
    machine = engine(pooled, Task.of(Logistic(), pooled), seed=3)
    *_, last = train(fr.method(centralized(), local=local), machine, rounds=EPOCHS)
    machine.close()
    return last.batons[0].params


def by_torch(pooled: Federation) -> torch.Tensor:
    """SGD with momentum and CosineAnnealingLR, a step an epoch on all examples."""
    x, y = pooled.client(0).take(torch.arange(pooled.sizes[0]), None)
    task = Task.of(Logistic(), pooled)
    network = task.model(task.shape, task.classes)
    with torch.no_grad():
        for name, value in task.layout.pieces(task.init(3)).items():
            network.get_parameter(name).copy_(value)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=EPOCHS)
    for _ in range(EPOCHS):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
        schedule.step()
    return nn.utils.parameters_to_vector(network.parameters()).detach()


def test_the_reference_with_momentum_and_cosine_is_one_long_training_by_torch(pooled):
    expected = by_torch(pooled)
    torch.testing.assert_close(trained(pooled, LOCAL), expected, rtol=1e-4, atol=1e-5)
    anew = trained(pooled, replace(LOCAL, carry_momentum=False))
    assert float((anew - expected).norm()) > 0.1  # without it every epoch begins from rest


def test_momentum_goes_on_in_processes_too(pooled):
    assert torch.equal(trained(pooled, LOCAL, Pool), trained(pooled, LOCAL))


def test_the_reference_is_resumed_to_the_same_bits(tmp_path):
    tables = {
        "rounds": 6,
        "checkpoint": 2,
        "data": {"name": "digits", "clients": 10},
        "model": {"name": "logistic"},
        "local": {"momentum": 0.9, "carry_momentum": True, "lr": 0.1, "schedule": {"name": "cosine", "rounds": 6}},
        "algorithm": {"name": "centralized"},
        "engine": {"name": "inline"},
    }
    whole = config.build(tables).record(tmp_path / "whole")
    list(whole.run())
    for log in config.build(tables).record(tmp_path / "stopped").run():
        if log.round == 3:
            break
    again = config.build(tables).record(tmp_path / "stopped", resume=True)
    list(again.run())
    assert again.summary().params_sha256 == whole.summary().params_sha256


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"momentum": 0.0}, "carry_momentum needs a momentum to carry"),
        ({"keep": "best", "validation": 0.1}, "does not go with keep"),
    ],
)
def test_what_does_not_go_with_momentum_of_earlier_visits_is_refused(settings, message):
    with pytest.raises(BadInput, match=message):
        Sgd(**{"momentum": 0.9, "carry_momentum": True, **settings})
    with pytest.raises(BadInput, match="leave carry_momentum out"):
        fr.method(fednova(), local=Sgd(momentum=0.9, carry_momentum=True))


def test_a_run_of_before_there_was_carried_momentum_goes_on():
    """What a run made in Python wrote down of its training then is what is written down now."""
    from fedrelay.runs.described import plain

    assert "carry_momentum" not in plain(Sgd(momentum=0.9))
    assert plain(LOCAL)["carry_momentum"] is True


def test_the_papers_reference_is_a_file_that_is_read():
    path = Path(__file__).parents[2] / "experiments" / "centralized_cifar10.toml"
    tables = config.read(path)
    assert tables["rounds"] == tables["local"]["schedule"]["rounds"] == 300
    small = {**tables, "data": {"name": "digits", "clients": 10}, "model": {"name": "logistic"}}
    local = config.build(small).algorithm.update
    assert (local.momentum, local.carry_momentum, local.lr, local.weight_decay) == (0.9, True, 0.01, 4e-4)
    assert [local.schedule(round) for round in (1, 151)] == [1.0, pytest.approx(0.5)]
