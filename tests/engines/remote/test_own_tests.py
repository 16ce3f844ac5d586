"""Clients that test the model on examples of their own, where the server has none to test on."""

from __future__ import annotations

import logging
from dataclasses import replace

import in_process
import pytest
import torch
import zoo

import fedrelay as fr
from fedrelay import Sgd
from fedrelay.algorithms import fedavg, fedov, fedper
from fedrelay.data.holdout import own_test_part
from fedrelay.engines.remote import Gone, Patience
from fedrelay.remote.works import TEST, works_of
from fedrelay.runs.folder import load
from fedrelay.runs.own_tests import OwnTests
from fedrelay.runs.record import Recorder
from fedrelay.runs.results import read_clients
from fedrelay.tasks import Workspaces, evaluate
from fedrelay.types import Baton
from fedrelay.visits.private import with_part

SHARE = 0.25
LOCAL = Sgd(batch=16, lr=0.1)


def world(change, folder):
    """An engine whose clients hold a quarter of their examples out, and a recorder without a test set."""
    algorithm = fr.method(change, local=LOCAL, fraction=1.0)
    federation = zoo.federation_for(algorithm)
    task = fr.adapted(algorithm, zoo.task_for(federation))
    engine = in_process.remote(algorithm, federation, task, folder / "clients")
    for visitor in engine.wire.visitors:
        visitor.data = own_test_part(visitor.data, SHARE, seed=1)
    engine.sizes = tuple(visitor.data.size for visitor in engine.wire.visitors)
    test = works_of(algorithm)[TEST]
    return engine, Recorder(folder / "run", algorithm, engine, None, rounds=2, own_test=test)


def held_out(engine) -> torch.Tensor:
    return torch.cat([visitor.data.held_out for visitor in engine.wire.visitors])


def test_a_client_trains_on_what_it_has_not_held_out_and_holds_the_same_out_again():
    client = zoo.federation_for(fr.method()).client(3)
    parted = own_test_part(client, SHARE, seed=1)
    assert len(parted.held_out) == round(SHARE * client.size)
    assert sorted([*parted.rows.tolist(), *parted.held_out.tolist()]) == sorted(client.rows.tolist())
    assert torch.equal(parted.held_out, own_test_part(client, SHARE, seed=1).held_out)
    assert not torch.equal(parted.held_out, own_test_part(client, SHARE, seed=2).held_out)


def test_what_clients_tell_adds_up_to_the_figures_on_all_that_they_have_held_out(tmp_path):
    engine, recorder = world(fedavg(), tmp_path)
    logs = list(recorder.run())
    assert not logs[0].metrics  # [evaluate] every = 5: only the last of two rounds is tested
    model = torch.load(tmp_path / "run" / "model.pt")
    vector = torch.cat([model[entry.name].reshape(-1) for entry in engine.task.layout.entries])
    examples = engine.wire.visitors[0].data.examples.picked(held_out(engine))
    expected = evaluate(vector, examples, Workspaces(engine.task))
    assert logs[-1].metrics == pytest.approx(expected)
    own = [
        evaluate(vector, visitor.data.examples.picked(visitor.data.held_out), Workspaces(engine.task))["accuracy"]
        for visitor in engine.wire.visitors
    ]
    assert logs[-1].over_clients["test_accuracy_deviation"] == pytest.approx(
        torch.tensor(own).double().std(correction=0)
    )
    found, summary = read_clients(tmp_path / "run"), load(tmp_path / "run").summary
    assert found is not None
    assert summary is not None
    assert [client.metrics["accuracy"] for client in found.clients] == pytest.approx(own)
    assert [client.tested for client in found.clients] == [len(v.data.held_out) for v in engine.wire.visitors]
    assert [client.examples for client in found.clients] == list(engine.sizes)
    assert summary.final_accuracy == pytest.approx(expected["accuracy"])
    assert summary.clients["worst"] == pytest.approx(min(own))
    assert summary.tested == "the model, on what clients have held out of training"


def test_a_client_tests_the_model_with_its_own_parts_and_changes_nothing_by_it(tmp_path):
    engine, recorder = world(fedper(), tmp_path)
    list(recorder.run())
    before = engine.memories()[1]
    found = read_clients(tmp_path / "run")
    assert found is not None
    visitor = engine.wire.visitors[2]
    memory = visitor.memory.get(before[2]["version"])
    model = torch.load(tmp_path / "run" / "model.pt")
    vector = torch.cat([model[entry.name].reshape(-1) for entry in engine.task.layout.entries])
    update = recorder.algorithm.update
    own = with_part(Baton(vector), update.at_home(engine.task), memory["private"]).params
    examples = visitor.data.examples.picked(visitor.data.held_out)
    assert found.clients[2].metrics == pytest.approx(evaluate(own, examples, Workspaces(engine.task)))


def test_a_client_that_is_lost_is_left_out_of_the_test_and_named(tmp_path, caplog):
    engine, recorder = world(fedavg(), tmp_path)
    *_, state = fr.train(recorder.algorithm, engine, rounds=1)
    engine.wire.events.append(Gone(4, "its connection was lost"))
    engine.patience = Patience(grace=0.0)
    with caplog.at_level(logging.WARNING, "fedrelay"):
        found = OwnTests(recorder.own_test, engine)(fr.deployed(state, recorder.algorithm, engine), state)
    assert [client.client for client in found.clients] == [number for number in range(12) if number != 4]
    assert f"round 1 is not tested by {engine.called(4)}" in caplog.text


def test_a_method_whose_result_is_several_models_is_not_tested_by_clients(tmp_path, caplog):
    _, recorder = world(fedov(), tmp_path)
    with caplog.at_level(logging.WARNING, "fedrelay"):
        (log,) = replace(recorder, rounds=1).run()
    assert not log.metrics
    assert "clients can test one model, and this method has 12 models that vote" in caplog.text
