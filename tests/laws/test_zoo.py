"""Every method on every engine, from one seed: the same bits inline and in workers, the same numbers stacked, and on
each of them the same bits after a stop and a resume from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from fedrelay import Federation, Sgd, Task, config, deployed, train
from fedrelay.algorithms import ALGORITHMS
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.models import Fused, Mlp
from fedrelay.runs import checkpoint
from fedrelay.runs.loop import adapted
from fedrelay.types import Algorithm, Engine, State

PAIRS = (
    "fedseq+fedprox",
    "fedseq+scaffold",
    "fedseq+feddyn",
    "fedseqinter+fedprox",
    "fedseqinter+scaffold",
    "fedseqinter+feddyn",
    "fedprox+scaffold",
    "fedsam+feddyn",
    "fedseq+fedfusion",
)
LOCAL = Sgd(batch=16, lr=0.1, momentum=0.5)
ROUNDS = 3


def method(name: str) -> Algorithm:
    recipe = config.methods({"name": name})[name]
    # Half of all take part, so that clients come back and what they keep matters.
    return recipe(local=LOCAL) if name == "centralized" else recipe(local=LOCAL, fraction=0.5)


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


def trained(algorithm: Algorithm, engine: Engine, state: State | None = None) -> tuple[list[State], list[torch.Tensor]]:
    """The states after every round, and what clients keep in the end."""
    states = list(train(algorithm, engine, rounds=ROUNDS, state=state))
    kept = sorted(engine.memories()[1].items())
    return states, [memory[key] for _, memory in kept for key in sorted(memory)]


def resumed(algorithm: Algorithm, engine: Engine, folder: Path) -> tuple[list[State], list[torch.Tensor]]:
    """The same after a stop in the middle: all that is left is a checkpoint."""
    *_, state = train(algorithm, engine, rounds=ROUNDS - 1)
    checkpoint.save(folder, state, engine.memories()[1])
    engine.remember(0, {})
    loaded = checkpoint.load(folder)
    assert loaded is not None
    state, memories = loaded
    engine.remember(state.round, memories)
    return trained(algorithm, engine, state)


def models(states: Iterable[State]) -> list[torch.Tensor]:
    return [deployed(state) for state in states]


def same_bits(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


@pytest.mark.parametrize("name", [*ALGORITHMS, *PAIRS])
def test_a_method_gives_the_same_on_every_engine_also_after_a_resume(name, pools, tmp_path):
    algorithm = method(name)
    federation = federation_for(algorithm)
    task = adapted(algorithm, Task.of(Mlp(hidden=(8,)), federation))
    assert isinstance(task.model, Fused) is ("fedfusion" in name)
    pool = pools.setdefault((len(federation), task), Pool(federation, task, 1, workers=2))
    engines = {"inline": Inline(federation, task, 1), "stacked": Stacked(federation, task, 1), "pool": pool}
    found = {}
    for kind, engine in engines.items():
        states, kept = trained(algorithm, engine)
        found[kind] = [*models(states), *kept]
        assert not torch.equal(found[kind][0], found[kind][ROUNDS - 1])
        assert bool(kept) is bool(algorithm.update.keeps)
        last, kept_then = resumed(algorithm, engine, tmp_path / kind)
        assert same_bits([*models(states[-1:]), *kept], [*models(last), *kept_then])
    assert same_bits(found["inline"], found["pool"])
    for alone, together in zip(found["inline"], found["stacked"], strict=True):
        torch.testing.assert_close(alone, together, atol=5e-4, rtol=1e-3)
