"""What must hold for every method in the table, whichever it is: each check takes names, such as "fedseq+feddyn"."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, adapted, deployed, train
from fedrelay.algorithms import ALGORITHMS, Method
from fedrelay.data import Dirichlet, Natural, digits, quadratic
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.models import MODELS, Own, Quadratic
from fedrelay.runs import checkpoint
from fedrelay.types import Algorithm, Engine, State

LOCAL = Sgd(batch=16, lr=0.1, momentum=0.5)
PLAIN = Sgd(batch=16, lr=0.1)
FULL_STEPS = Sgd(steps=5, batch=0, lr=0.1)
ROUNDS = 3

Pools = dict[tuple[int, Task], Pool]


@contextmanager
def shared_pools() -> Iterator[Pools]:
    """Workers take long to start: one pool for all methods with the same clients and model."""
    made: Pools = {}
    try:
        yield made
    finally:
        for pool in made.values():
            pool.close()


def rows_of(name: str) -> list[Method]:
    return [ALGORITHMS[part] for part in name.split("+")]


def made(name: str, local: Sgd = LOCAL) -> Algorithm:
    """The method (or several, joined), with what their rows set for few clients."""
    # Half of all take part, so that clients come back and what they keep matters.
    changes = [row.recipe(**row.settings) for row in rows_of(name)]
    for row in rows_of(name):
        local = replace(local, **row.local)
    return fr.method(*changes, local=local, fraction=0.5)


def federation_for(algorithm: Algorithm) -> Federation:
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 12, 1)
    return federation.pooled() if algorithm.pooled else federation


def task_for(federation: Federation, name: str = "fedavg") -> Task:
    """With a model that has what the method needs."""
    wanted = {row.model for row in rows_of(name)} - {"mlp"} or {"mlp"}
    return Task.of(MODELS[wanted.pop()](hidden=(8,)), federation)


# --- the same on every engine, also after a stop ----------------------------------------------------------------------


def check_engines(name: str, pools: Pools, folder: Path) -> None:
    """The same bits inline and in workers, the same numbers stacked, and on each of them the same bits after a stop and
    a resume from a checkpoint."""
    algorithm = made(name)
    federation = federation_for(algorithm)
    task = adapted(algorithm, task_for(federation, name))
    pool = pools.setdefault((len(federation), task), Pool(federation, task, 1, workers=2))
    engines = {"inline": Inline(federation, task, 1), "stacked": Stacked(federation, task, 1), "pool": pool}
    found = {}
    for kind, engine in engines.items():
        states, kept = trained(algorithm, engine)
        found[kind] = [*models(states), *kept]
        assert not torch.equal(found[kind][0], found[kind][ROUNDS - 1])
        assert bool(kept) is bool(algorithm.update.keeps)
        last, kept_then = resumed(algorithm, engine, folder / kind)
        assert same_bits([*models(states[-1:]), *kept], [*models(last), *kept_then])
    assert same_bits(found["inline"], found["pool"])
    for alone, together in zip(found["inline"], found["stacked"], strict=True):
        torch.testing.assert_close(alone, together, atol=5e-4, rtol=1e-3)


def trained(algorithm: Algorithm, engine: Engine, state: State | None = None) -> tuple[list[State], list[torch.Tensor]]:
    """The states after every round, and what clients keep in the end."""
    states = list(train(algorithm, engine, rounds=ROUNDS, state=state))
    kept = sorted(engine.memories()[1].items())
    return states, [memory[key] for _, memory in kept for key in sorted(memory)]


def resumed(algorithm: Algorithm, engine: Engine, folder: Path) -> tuple[list[State], list[torch.Tensor]]:
    """The same after a stop in the middle: all that is left is a checkpoint."""
    *_, state = train(algorithm, engine, rounds=ROUNDS - 1)
    folder.mkdir(parents=True)
    checkpoint.save(folder, state, engine.memories()[1])
    engine.remember(0, {})
    loaded = checkpoint.load(folder)
    assert loaded is not None
    state, memories = loaded
    engine.remember(state.round, memories)
    return trained(algorithm, engine, state)


def models(states: Iterable[State]) -> list[torch.Tensor]:
    return [deployed(state).params for state in states]


def same_bits(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


# --- what the row says ------------------------------------------------------------------------------------------------


def check_is_fedavg(name: str, local: Sgd) -> None:
    """With the settings that its row gives, the method is FedAvg: to the bit where models are merged by the mean, else
    up to the rounding of its own merge. With its own settings it is not."""
    row = ALGORITHMS[name]
    assert row.is_fedavg is not None
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 12, 1)
    engine = Inline(federation, task_for(federation), 1)

    def run(*changes: fr.Change) -> list[torch.Tensor]:
        return models(train(fr.method(*changes, local=local, fraction=0.5), engine, rounds=ROUNDS))

    plain, same = run(), run(row.recipe(**row.is_fedavg))
    if row.recipe(**row.is_fedavg).merge is None:
        assert same_bits(plain, same)
    for one, other in zip(plain, same, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    if row.recipe(**row.settings) != row.recipe(**row.is_fedavg):
        assert not same_bits(plain, run(row.recipe(**row.settings)))


class Bare(nn.Module):
    """A network whose features cannot be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1))


def check_row(name: str) -> None:
    """What the row says of models is so, and the method is a value that can be sent."""
    row, algorithm = ALGORITHMS[name], made(name)
    federation = federation_for(algorithm)
    task = task_for(federation, name)
    wider = adapted(algorithm, task)
    assert (wider != task) is row.adds_to_model
    assert adapted(algorithm, wider) == wider
    bare = Task.of(Own(Bare()), federation)
    if row.needs_features:
        with pytest.raises(BadInput, match="needs a model with features, and Bare has no body and head"):
            adapted(algorithm, bare)
    elif row.model == "mlp_norm":
        with pytest.raises(BadInput, match="it needs a model with BatchNorm"):
            adapted(algorithm, bare)
    else:
        assert (adapted(algorithm, bare) != bare) is row.adds_to_model
    assert pickle.loads(pickle.dumps(algorithm)) == algorithm


def check_rest(name: str) -> None:
    """Equal quadratic clients have one optimum, so a method that can train on them at all ends there; one that cannot
    says what they lack."""
    row = ALGORITHMS[name]
    federation = Federation.split(quadratic(clients=6, dimension=3, spread=0.0, seed=1), Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation))
    change = row.recipe(**{**row.settings, **row.rest.settings})
    algorithm = fr.method(change, local=replace(FULL_STEPS, **row.local), fraction=row.rest.fraction)
    lacks = {"feature": row.needs_features, "class": row.needs_classes, "BatchNorm": row.model == "mlp_norm"}
    lacking = [word for word, needed in lacks.items() if needed]
    if lacking:
        with pytest.raises(BadInput, match=lacking[0]):
            list(train(algorithm, engine, rounds=1))
        return
    found = models(train(algorithm, engine, rounds=row.rest.rounds))[-1]
    centre = federation.client(0).examples.x[0][:3]
    np.testing.assert_allclose(found, centre, atol=row.rest.precision)
