"""What is defined in a notebook, or typed into Python, works on every engine; what cannot be sent is named."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay.engines import Auto, Inline, Pool
from fedrelay.types import Work

SCRIPT = """
import torch
from torch import nn
import fedrelay as fr

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 8), nn.Linear(8, 10)
        self.act = lambda x: x.relu()  # pickle alone refuses it

    def forward(self, x):
        return self.second(self.act(self.first(x.flatten(1))))

torch.manual_seed(0)
federation = fr.Federation.split(fr.data.digits(), fr.data.Iid(), 4, 0)
task = fr.Task.of(fr.models.Own(Net()), federation)
algorithm = fr.method(local=fr.Sgd(steps=2, lr=0.1))

def trained(engine):
    *_, last = fr.train(algorithm, engine, rounds=2)
    engine.close()
    return fr.deployed(last).vectors[0]

expected = trained(fr.engines.Inline(federation, task))
"""
CHECKS = """
assert torch.equal(trained(fr.engines.Pool(federation, task, workers=2)), expected)
assert torch.allclose(trained(fr.engines.Stacked(federation, task, workers=2)), expected, atol=1e-4)
assert torch.allclose(trained(fr.engines.Auto(federation, task)), expected, atol=1e-4)
print("all engines agree")
"""


def told(arguments: list[str], script: str) -> str:
    there = {**os.environ, "PYTHONPATH": str(Path(fr.__file__).parents[1]), "FEDRELAY_CORES": "2"}
    done = subprocess.run(
        [sys.executable, *arguments], input=script, env=there, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_network_typed_into_python_works_on_every_engine():
    assert "all engines agree" in told(["-"], SCRIPT + CHECKS)


HOST = """
import code, sys
shell = code.InteractiveInterpreter(vars(sys.modules["__main__"]))
for cell in {cells!r}:
    shell.runsource(cell, "<cell>", "exec")
"""


def test_a_network_of_a_notebooks_cell_works_on_every_engine():
    """Cells are run one by one in the namespace of a __main__ that no file has, as IPython does it."""
    assert "all engines agree" in told(["-"], HOST.format(cells=[SCRIPT, CHECKS]))


@dataclass(frozen=True)
class Locked(Work):
    """Holds what no other process can have."""

    lock: object = field(default_factory=threading.Lock)

    def __call__(self, baton, visit, /):
        return baton, visit.memory, fr.types.Report(visit.client.id, visit.client.size)


def two_clients():
    federation = fr.Federation.split(fr.data.digits(), fr.data.Iid(), 2, 0)
    return federation, fr.Task.of(fr.models.Logistic(), federation)


def test_work_that_cannot_be_sent_is_refused_by_the_pool_with_the_cause():
    with Pool(*two_clients(), workers=2) as engine, pytest.raises(fr.BadInput) as caught:
        list(fr.train(fr.method(local=Locked()), engine, rounds=1))
    assert "Locked cannot be sent to a worker process (cannot pickle '_thread.lock' object)" in str(caught.value)
    assert "inline" in str(caught.value)


def test_a_model_that_cannot_be_sent_is_named():
    federation, _ = two_clients()
    task = fr.Task.of(OpenModel(), federation)
    with Pool(federation, task, workers=2) as engine, pytest.raises(fr.BadInput, match="the model OpenModel cannot be"):
        list(fr.train(fr.method(), engine, rounds=1))


def test_auto_does_without_workers_and_says_why(monkeypatch, caplog):
    monkeypatch.setenv("FEDRELAY_CORES", "2")
    federation, _ = two_clients()
    task = fr.Task.of(OpenModel(), federation)
    engine = Auto(federation, task)
    with caplog.at_level(logging.WARNING, "fedrelay"):
        *_, last = fr.train(fr.method(local=fr.Sgd(steps=1)), engine, rounds=2)
    assert "workers are not used: the model OpenModel cannot be sent to a worker process" in caplog.text
    assert engine.settings["name"] in ("inline", "stacked")
    assert engine.settings.get("workers", 1) == 1
    assert last.round == 2


class OpenModel:
    """Its recipe holds a lock."""

    loss = "cross_entropy"

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, shape, classes, /):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def test_workers_send_the_same_bits_for_a_class_that_no_module_has():
    class Local(Work):
        def __call__(self, baton, visit, /):
            after = fr.types.Baton(baton.params + 1, baton.weight + visit.client.size)
            return after, visit.memory, fr.types.Report(visit.client.id, visit.client.size)

    federation, task = two_clients()
    with Pool(federation, task, workers=2) as engine:
        (there,) = fr.train(fr.method(local=Local()), engine, rounds=1)
    (here,) = fr.train(fr.method(local=Local()), Inline(federation, task), rounds=1)
    assert torch.equal(there.batons[0].params, here.batons[0].params)
