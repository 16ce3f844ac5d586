"""Every method on every engine, from one seed: the same bits inline and in workers, the same numbers stacked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fedrelay import Federation, Sgd, Task, config, deployed, train
from fedrelay.algorithms import ALGORITHMS
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.models import Fused, Mlp
from fedrelay.run import adapted
from fedrelay.types import Algorithm

PAIRS = (
    "fedseq+scaffold",
    "fedseq+feddyn",
    "fedseqinter+feddyn",
    "fedprox+scaffold",
    "fedsam+feddyn",
    "fedseq+fedfusion",
)
LOCAL = Sgd(batch=16, lr=0.1, momentum=0.5)
ROUNDS = 3


def method(name: str) -> Algorithm:
    recipe = config.methods({"name": name})[name]
    return recipe(local=LOCAL)


def federation_for(algorithm: Algorithm) -> Federation:
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 12, 1)
    return federation.pooled() if algorithm.pooled else federation


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[tuple[int, Task], Pool]]:
    """Workers take long to start: one crew for all methods with the same clients and model."""
    made: dict[tuple[int, Task], Pool] = {}
    yield made
    for pool in made.values():
        pool.close()


@pytest.mark.parametrize("name", [*ALGORITHMS, *PAIRS])
def test_a_method_gives_the_same_on_every_engine(name, pools):
    algorithm = method(name)
    federation = federation_for(algorithm)
    task = adapted(algorithm, Task.of(Mlp(hidden=(8,)), federation))
    assert isinstance(task.model, Fused) is ("fedfusion" in name)

    def models(engine) -> list[torch.Tensor]:
        return [deployed(state) for state in train(algorithm, engine, rounds=ROUNDS)]

    inline = models(Inline(federation, task, 1))
    assert not torch.equal(inline[0], inline[-1])
    for alone, together in zip(inline, models(Stacked(federation, task, 1)), strict=True):
        torch.testing.assert_close(alone, together, atol=2e-4, rtol=1e-3)
    pool = pools.setdefault((len(federation), task), Pool(federation, task, 1, workers=2))
    assert all(torch.equal(a, b) for a, b in zip(inline, models(pool), strict=True))
