"""What a model is worth on all clients' own examples, against sums by torch and the statistics of Python."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Federation, Recorder, Task
from fedrelay.algorithms import fedavg
from fedrelay.data import Dirichlet, digits
from fedrelay.data.holdout import with_tests
from fedrelay.engines import Inline
from fedrelay.models import Logistic
from fedrelay.runs.summary import Evaluate
from fedrelay.runs.testing import over_clients
from fedrelay.tasks import OneModel, PerClient, Workspaces


@pytest.fixture(scope="module")
def federation() -> Federation:
    found = Federation.split(digits(), Dirichlet(alpha=0.5), 8)
    return with_tests(found, [np.arange(40 * client, 40 * client + 5 * client) for client in range(8)])


def by_hand(params, store, rows) -> tuple[float, float]:
    """Loss and accuracy of a linear model on these rows."""
    weight, bias = params[:640].view(10, 64), params[640:]
    output = nn.functional.linear(store.x[rows].reshape(len(rows), 64), weight, bias)
    loss = nn.functional.cross_entropy(output.double(), store.y[rows].long())
    return float(loss), float((output.argmax(1) == store.y[rows]).double().mean())


def test_the_global_training_loss_is_the_sum_of_the_clients_losses_by_their_shares(federation):
    task = Task.of(Logistic(), federation)
    params = torch.randn(650, generator=torch.Generator().manual_seed(1)) / 10
    found = over_clients(OneModel(params), federation, Workspaces(task))
    parts = [federation.client(number) for number in range(8)]
    losses, right = zip(*(by_hand(params, part.examples, part.rows) for part in parts), strict=True)
    total = sum(part.size for part in parts)
    assert len({part.size for part in parts}) > 1
    assert found["train_loss"] == pytest.approx(
        sum(part.size / total * loss for part, loss in zip(parts, losses, strict=True)), rel=1e-5
    )
    assert found["train_loss"] == pytest.approx(by_hand(params, parts[0].examples, federation.order)[0], rel=1e-5)
    assert found["train_loss_deviation"] == pytest.approx(statistics.pstdev(losses), rel=1e-5)
    assert found["train_accuracy_deviation"] == pytest.approx(statistics.pstdev(right))
    tested = [federation.client_test(number) for number in range(1, 8)]  # the first one has no test part
    losses, right = zip(*(by_hand(params, part.examples, part.rows) for part in tested), strict=True)
    sizes = [part.size for part in tested]
    assert found["test_accuracy"] == pytest.approx(np.average(right, weights=sizes))
    assert found["test_accuracy_deviation"] == pytest.approx(statistics.pstdev(right))
    assert found["test_loss_deviation"] == pytest.approx(statistics.pstdev(losses), rel=1e-5)
    only = over_clients(OneModel(params), federation, Workspaces(task), tested=False)
    assert set(only) == {name for name in found if name.startswith("train_")}


def test_clients_with_models_of_their_own_are_judged_by_them(federation):
    task = Task.of(Logistic(), federation)
    common, own = (torch.randn(650, generator=torch.Generator().manual_seed(n)) for n in (2, 3))
    found = over_clients(PerClient(common, {5: own}), federation, Workspaces(task), tested=False)
    parts = [federation.client(number) for number in range(8)]
    losses = [by_hand(own if part.id == 5 else common, part.examples, part.rows)[0] for part in parts]
    assert found["train_loss"] == pytest.approx(np.average(losses, weights=federation.sizes), rel=1e-5)


def test_clients_are_evaluated_as_often_as_asked_and_after_the_last_round(federation, tmp_path):
    def logs(folder, rounds, **settings):
        algorithm = fr.method(fedavg(), fraction=0.5)
        engine = Inline(federation, Task.of(Logistic(), federation), seed=1)
        evaluate = Evaluate(every=10, clients_every=2)
        recorder = Recorder(
            folder, algorithm, engine, federation.test, rounds, evaluate=evaluate, federation=federation, **settings
        )
        return list(recorder.run()), recorder.summary()

    once, summary = logs(tmp_path / "once", 5)
    assert [bool(log.over_clients) for log in once] == [False, True, False, True, True]
    assert summary.over_clients == once[-1].over_clients
    logs(tmp_path / "twice", 3)  # round 3 is evaluated only because it is the last
    again, other = logs(tmp_path / "twice", 5, resume=True)
    assert [log.over_clients for log in again] == [log.over_clients for log in once]
    assert other.over_clients == summary.over_clients


def test_clients_that_nobody_knows_cannot_be_evaluated(federation, tmp_path):
    engine = Inline(federation, Task.of(Logistic(), federation))
    with pytest.raises(BadInput, match="give the recorder the federation"):
        Recorder(tmp_path, fr.method(), engine, federation.test, 1, evaluate=Evaluate(clients_every=1))
