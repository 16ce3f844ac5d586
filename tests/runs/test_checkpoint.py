"""What clients and servers keep between rounds is part of a checkpoint: stop and resume is exact for every method."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fedrelay import BadInput, config
from fedrelay.algorithms import ALGORITHMS
from fedrelay.runs import checkpoint
from fedrelay.types import Baton, Chain, Drop

TABLES = {
    "rounds": 5,
    "seed": 4,
    "checkpoint": 2,
    "data": {"name": "digits", "clients": 10, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "model": {"name": "mlp", "hidden": [6]},
    "local": {"optimiser": "sgd", "batch": 32, "lr": 0.1, "momentum": 0.5},
    "evaluate": {"every": 5},
    "engine": {"name": "inline"},
}
SETTINGS = {"metafed": {"iters": 4, "preparation": 2}, "dense": {"steps": 2, "batch": 8}}
"""So that metafed has five rounds, and the server of dense little work."""
PAIRS = [
    "fedseq+scaffold",
    "fedseq+feddyn",
    "fedseqinter+feddyn",
    "fedseqinter+scaffold",
    "fedprox+scaffold",
    "fedsam+feddyn",
]


def experiment(name: str, folder: Path, *, resume: bool = False):
    settings = {"name": name} if name == "centralized" else {"name": name, "fraction": 0.5}  # clients come back
    settings |= SETTINGS.get(name, {})
    models = {ALGORITHMS[part].model for part in name.split("+")} - {"mlp"} or {"mlp"}
    tables = {**TABLES, "model": {"name": models.pop(), "hidden": [6]}, "algorithm": settings}
    return config.build(tables).record(folder, resume=resume)


def lines_of(folder: Path) -> list[dict]:
    lines = [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.mark.parametrize("name", [*ALGORITHMS, *PAIRS])
def test_stopping_and_resuming_gives_the_same_bits(name, tmp_path):
    whole = experiment(name, tmp_path / "whole")
    list(whole.run())
    stopped = experiment(name, tmp_path / "stopped")
    rounds = stopped.run()
    for _ in range(3):
        next(rounds)
    rounds.close()  # as Ctrl-C would: a checkpoint is left
    resumed = experiment(name, tmp_path / "stopped", resume=True)
    list(resumed.run())
    assert resumed.summary().params_sha256 == whole.summary().params_sha256
    assert lines_of(tmp_path / "stopped") == lines_of(tmp_path / "whole")


@pytest.mark.parametrize(("name", "key"), [("scaffold", "control"), ("feddyn", "gradient")])
def test_the_checkpoint_holds_what_clients_keep(name, key, tmp_path):
    recorder = experiment(name, tmp_path / "run")
    list(recorder.run())
    _, memories = checkpoint.load(tmp_path / "run" / "checkpoint")
    assert memories
    trainable = recorder.engine.task.layout.trainable
    assert all(memory[key].shape == (trainable,) and memory[key].abs().sum() > 0 for memory in memories.values())


def test_memory_of_another_models_size_is_refused_on_resume(tmp_path):
    recorder = experiment("scaffold", tmp_path / "run")
    list(recorder.run())
    folder = tmp_path / "run" / "checkpoint"
    state, memories = checkpoint.load(folder)
    client = max(memories)
    wrong = {**{key: dict(memory) for key, memory in memories.items()}, client: {"control": torch.zeros(3)}}
    checkpoint.save(folder, state, wrong)
    with pytest.raises(
        BadInput, match=rf"client {client} keeps 'control' with 3 numbers, the configured model trains \d+"
    ):
        list(experiment("scaffold", tmp_path / "run", resume=True).run())


def test_another_model_is_refused_on_resume(tmp_path):
    list(experiment("feddyn", tmp_path / "run").run())
    tables = {**TABLES, "algorithm": {"name": "feddyn"}, "model": {"name": "mlp", "hidden": [7]}}
    with pytest.raises(BadInput, match="another configuration"):
        config.build(tables).record(tmp_path / "run", resume=True)


@pytest.mark.parametrize("record", [Baton(torch.ones(3), 2), Chain(Baton(torch.ones(3)), (1, 2)), Drop(1, 0, "gone")])
def test_records_by_the_names_that_they_had_in_earlier_versions_are_read(record, tmp_path, monkeypatch):
    monkeypatch.setattr(type(record), "__module__", "fedrelay.types")
    monkeypatch.setattr(Baton, "__module__", "fedrelay.types")
    path = tmp_path / "piece.pt"
    torch.save(record, path)
    assert b"fedrelay.types.records" not in path.read_bytes()
    monkeypatch.undo()
    found = checkpoint.read(path, (0, path.stat().st_size))
    assert type(found) is type(record)
