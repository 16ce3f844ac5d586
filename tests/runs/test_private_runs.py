"""Runs in which parts of the model stay at home: what is tested, written, and gone on from."""

from __future__ import annotations

import pytest
import torch

from fedrelay import BadInput, config, deployed
from fedrelay.runs import checkpoint
from fedrelay.tasks import PRIVATE, Workspaces

TABLES = {
    "rounds": 3,
    "seed": 2,
    "data": {"name": "digits", "clients": 30, "partition": {"name": "dirichlet", "alpha": 0.3}, "client_tests": 0.2},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 16, "lr": 0.1},
    "algorithm": {"name": "fedseq", "max_clients": 3, "fraction": 0.5, "private": "head"},
    "evaluate": {"every": 3},
    "engine": {"name": "inline"},
}


def ran(folder, **changes):
    """The experiment, its recorder and what its rounds did."""
    experiment = config.build({**TABLES, **changes})
    recorder = experiment.record(folder)
    return experiment, recorder, list(recorder.run())


def right(predictor, client, examples, workspaces) -> int:
    """How many answers the client's own model gets right."""
    x, y = examples
    with torch.no_grad():
        return int((predictor.for_client(client).outputs(workspaces)(x).argmax(1) == y).sum())


def predictor_of(experiment, recorder):
    state, _ = checkpoint.load(recorder.path / "checkpoint")
    return deployed(state, experiment.algorithm, experiment.engine)


def test_every_client_is_tested_with_its_own_model_on_its_own_part(tmp_path):
    experiment, recorder, logs = ran(tmp_path / "run")
    predictor, federation = predictor_of(experiment, recorder), experiment.federation
    workspaces, hits, count = Workspaces(experiment.task), 0, 0
    for client in range(30):
        rows = federation.client_test(client).rows
        hits += right(predictor, client, federation.test.take(rows), workspaces) if len(rows) else 0
        count += len(rows)
    assert logs[-1].accuracy == pytest.approx(hits / count)
    assert logs[0].accuracy is None


def test_without_test_parts_some_clients_models_are_tested_on_everything(tmp_path):
    data = {key: value for key, value in TABLES["data"].items() if key != "client_tests"}
    experiment, recorder, logs = ran(tmp_path / "run", data=data)
    predictor, test = predictor_of(experiment, recorder), experiment.federation.test
    clients = sorted(predictor.own)
    some = clients[:: -(-len(clients) // 20)]
    assert 10 <= len(some) <= 20
    workspaces = Workspaces(experiment.task)
    hits = [right(predictor, client, test.take(slice(0, len(test))), workspaces) for client in some]
    assert logs[-1].accuracy == pytest.approx(sum(hits) / len(hits) / len(test))


def test_private_nothing_is_the_plain_method_to_the_bit(tmp_path):
    plain = {key: value for key, value in TABLES["algorithm"].items() if key != "private"}
    models = []
    for name, algorithm in (("plain", plain), ("nothing", {**plain, "private": []})):
        _, recorder, _ = ran(tmp_path / name, algorithm=algorithm)
        models.append(recorder.summary().params_sha256)
    assert models[0] == models[1]


def test_what_clients_keep_is_in_the_fingerprint_of_a_run(tmp_path):
    experiment, recorder, _ = ran(tmp_path / "run")
    before = recorder.summary().params_sha256
    state, memories = checkpoint.load(recorder.path / "checkpoint")
    client = max(memories)
    changed = {**memories, client: {PRIVATE: memories[client][PRIVATE] + 1}}
    checkpoint.save(recorder.path / "checkpoint", state, changed)
    again = experiment.record(tmp_path / "run", resume=True)
    list(again.run())
    assert again.summary().params_sha256 != before


def test_a_part_of_another_model_is_refused_on_resume(tmp_path):
    experiment, recorder, _ = ran(tmp_path / "run")
    state, memories = checkpoint.load(recorder.path / "checkpoint")
    client = max(memories)
    checkpoint.save(recorder.path / "checkpoint", state, {**memories, client: {PRIVATE: torch.zeros(3)}})
    with pytest.raises(BadInput, match=f"client {client} keeps 'private' with 3 numbers"):
        list(experiment.record(tmp_path / "run", resume=True).run())
