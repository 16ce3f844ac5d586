"""Orders of examples that are drawn outside the interpreter; the oracle is NumPy's generator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from needs import lacking

import fedrelay as fr
from fedrelay import Federation, Sgd, Task, seeds
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline
from fedrelay.kernels import native
from fedrelay.kernels.native import dense, passes
from fedrelay.models import Logistic
from fedrelay.vectors import sha256


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    if not native.available():
        lacking(f"the compiled part is not there: {native.found()}")
    if not native.found().draws:
        lacking("NumPy draws otherwise here")


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**64 - 1, seeds.derive(7, "visit", 3, 0, 12)])
@pytest.mark.parametrize(
    ("size", "examples"), [(1, 3), (2, 7), (3, 3), (64, 200), (65, 64), (500, 2500), (70_000, 70_000)]
)
def test_orders_are_those_of_numpy(seed, size, examples):
    rows, draw = torch.arange(size) * 3 + 1, np.random.Generator(np.random.PCG64(seed))
    found = list(passes(seed, rows, examples))
    assert len(found) == -(-examples // size)
    wanted = np.concatenate([rows.numpy()[draw.permutation(size)] for _ in found])
    assert torch.cat(found).tolist() == wanted[:examples].tolist()


def test_rows_that_are_not_side_by_side():
    rows = torch.arange(40)[::2]
    draw = np.random.Generator(np.random.PCG64(5))
    assert next(passes(5, rows, 20)).tolist() == rows.numpy()[draw.permutation(20)].tolist()


def test_another_numpy_is_noticed(monkeypatch):
    class Other(np.random.Generator):
        def permutation(self, count):
            return np.roll(super().permutation(count), 1)

    assert native.library.draws_as_numpy(native.found().library)
    monkeypatch.setattr(np.random, "Generator", Other)
    assert not native.library.draws_as_numpy(native.found().library)


@pytest.mark.parametrize("local", [Sgd(batch=8, lr=0.1, epochs=3), Sgd(batch=8, lr=0.1, steps=11)])
def test_where_only_numpy_draws_a_run_has_the_same_sha256(local, monkeypatch):
    federation = Federation.split(digits(), Dirichlet(alpha=0.5), 20)

    def run() -> str:
        engine = Inline(federation, Task.of(Logistic(), federation), native=True)
        *_, state = fr.train(fr.method(local=local, fraction=0.3), engine, rounds=2)
        return sha256(state.batons[0].params)

    one, found = run(), native.found()
    asked = list[bool]()
    monkeypatch.setattr(dense, "found", lambda: asked.append(True) or replace(found, draws=False))
    assert run() == one
    assert asked
