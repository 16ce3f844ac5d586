"""The guard against divergence: exploding models are named, kept out of the merge, and told about."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, replace

import pytest
import torch
from rich.console import Console

import fedrelay as fr
from fedrelay import Federation, Sgd, Task, advance, config, deployed, start, train
from fedrelay.algorithms import fedavg, fedseq
from fedrelay.data import Natural, quadratic
from fedrelay.engines import Inline
from fedrelay.engines.guard import spoiled
from fedrelay.errors import Diverged
from fedrelay.merges import Momentum
from fedrelay.models import Quadratic
from fedrelay.report.progress import follow
from fedrelay.types import Baton, Chain, Report, Work


@pytest.fixture
def engine() -> Inline:
    federation = Federation.split(quadratic(clients=6, dimension=2, seed=2), Natural())
    return Inline(federation, Task.of(Quadratic(), federation))


@dataclass(frozen=True)
class Grow(Work):
    """Multiplies the model at some clients, adds one at the others."""

    at: frozenset[int]
    factor: float
    guard: float | None = 1e4

    def __call__(self, baton, visit):
        client = visit.client.id
        params = baton.params * self.factor if client in self.at else baton.params + 1
        return Baton(params, baton.weight + visit.client.size), visit.memory, Report(client, visit.client.size)


def run(engine, work, start=2.0):
    (outcome,) = engine.run(work, [Chain(Baton(torch.full((2,), start)), (4, 1, 3))], {}, 1)
    return outcome


def test_a_model_that_exploded_is_dropped_and_the_last_good_one_goes_on(engine):
    outcome = run(engine, Grow(frozenset({1}), 1e6))
    assert outcome.baton.params.tolist() == [4, 4]
    (drop,) = outcome.dropped
    assert (drop.client, drop.hop) == (1, 1)
    # √(3² + 3²) = 4.24, a million times that is 4.24e+06
    assert "the norm went from 4.24 to 4.24e+06, beyond guard = 10000 times" in drop.reason
    assert "a smaller [local] lr, or [local] clip, may help" in drop.reason


def test_the_guard_is_set_by_the_work_and_can_be_taken_away(engine):
    assert run(engine, Grow(frozenset({1}), 30.0)).dropped == ()
    assert len(run(engine, Grow(frozenset({1}), 50.0, guard=10.0)).dropped) == 1
    assert run(engine, Grow(frozenset({1}), 1e6, guard=None)).dropped == ()


def test_what_grows_a_little_at_every_visit_is_noticed_too(engine):
    """Fifty times a visit is below any guard on one visit; from (1, 1): 50, then 2500 for every weight."""
    (drop,) = run(engine, Grow(frozenset({4, 1}), 50.0), start=1.0).dropped
    assert drop.client == 1
    # √(50² + 50²) = 70.7, fifty times that is 3536
    assert "the norm went from 70.7 to 3.54e+03, which is 2.5e+03 for every weight (a smaller [local] lr" in drop.reason
    assert run(engine, Grow(frozenset({4, 1}), 50.0, guard=1e6), start=1.0).dropped == ()  # up to 10,000 each then


def test_who_makes_a_received_explosion_shorter_is_not_to_blame(engine):
    assert run(engine, Grow(frozenset({4, 1, 3}), 0.5), start=1e5).dropped == ()


def test_running_statistics_may_be_of_any_length():
    work, received = Grow(frozenset(), 1.0), torch.tensor([1.0, 1.0, 0.0])
    returned = torch.tensor([1.0, 2.0, 1e6])
    assert spoiled(work, received, returned, trainable=2) is None
    assert spoiled(work, received, returned, trainable=3) is not None
    assert spoiled(work, received, torch.tensor([1.0, 2.0, float("nan")]), trainable=2).startswith("returned a non-")


@pytest.mark.parametrize("guard", [1e4, 1e30, 1e160, 1e300])
def test_a_guard_may_be_as_large_as_you_like(guard):
    work, ones = Grow(frozenset(), 1.0, guard=guard), torch.ones(2)
    assert spoiled(work, ones, ones * 2) is None
    for broken in (float("inf"), float("nan")):
        assert spoiled(work, ones, ones * broken).startswith("returned a non-finite")


def test_a_learning_rate_beyond_stability_is_noticed_within_two_rounds(engine):
    """Steps of 2.5 on curvatures of at least 1 multiply the distance from the optimum by 1.5 or more each."""
    algorithm = fr.method(fedavg(), local=Sgd(steps=10, batch=0, lr=2.5), fraction=1.0)
    with pytest.raises(Diverged, match=r"round [12]: every chain failed.*chain 0, client \d: its model exploded"):
        list(train(algorithm, engine, rounds=3))


def test_a_model_may_grow_from_nothing(engine):
    assert run(engine, Grow(frozenset(), 0.0), start=0.0).dropped == ()


def test_only_the_exploded_chain_is_left_out_of_the_merge_and_named_in_the_record(engine):
    algorithm = replace(
        fr.method(fedseq(max_clients=1), local=Sgd(), fraction=1.0), update=Grow(frozenset({2}), float("1e30"))
    )
    first = start(algorithm, engine)
    state = advance(algorithm, engine, replace(first, batons=(Baton(torch.ones(2)),)))
    assert deployed(state).params.tolist() == [2, 2]
    (drop,) = state.log.drops
    assert state.log.round == 1
    assert drop.client == 2
    assert 0 <= drop.chain < 6


def test_a_real_learning_rate_that_is_far_too_large_is_noticed(engine):
    """Steps of 2000 on curvatures of at least 1 multiply the distance by at least 1999 each."""
    algorithm = fr.method(fedavg(), local=Sgd(steps=3, batch=0, lr=2000.0), fraction=1.0)
    with pytest.raises(Diverged, match=r"round 1: every chain failed.*its model exploded.*lr"):
        advance(algorithm, engine, start(algorithm, engine))


def test_a_merge_that_diverges_stops_the_run_with_its_round(engine):
    algorithm = replace(fr.method(fedavg(), local=Sgd(steps=1, batch=0, lr=0.1), fraction=1.0), merge=Momentum(lr=1e39))
    with pytest.raises(Diverged, match="round 1: the merge made a non-finite model; a smaller server step"):
        advance(algorithm, engine, start(algorithm, engine))


def test_the_display_names_round_chain_and_client_and_gives_the_advice(tmp_path):
    tables = {
        "rounds": 2,
        "data": {"name": "quadratic", "clients": 3, "spread": 1.0},
        "model": {"name": "quadratic"},
        "local": {"steps": 3, "batch": 0, "lr": 0.1, "guard": 1.01},
        "algorithm": {"name": "fedavg", "fraction": 1.0},
        "engine": {"name": "inline"},
    }
    experiment = config.build(tables)
    text = io.StringIO()
    follow(experiment.record(tmp_path / "run"), Console(file=text, width=300))
    told = text.getvalue()
    assert re.search(r"round \d, chain \d: client \d was dropped: its model exploded: .* may help\)", told)
