from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

import fedrelay as fr
from fedrelay import Federation, RunFailed, Sgd, Task, advance, deployed, start
from fedrelay.algorithms import fedavg, fedseq
from fedrelay.data import Natural, quadratic
from fedrelay.engines import Inline
from fedrelay.errors import Diverged
from fedrelay.models import Quadratic
from fedrelay.system.threads import flushes_denormals, operator_threads
from fedrelay.types import Baton, Chain, Plan, Planned, Report, Work

LOCAL = Sgd(steps=1, batch=0, lr=0.1)


@pytest.fixture
def engine() -> Inline:
    federation = Federation.split(quadratic(clients=6, dimension=2, seed=2), Natural())
    return Inline(federation, Task.of(Quadratic(), federation))


@dataclass(frozen=True)
class Count(Work):
    """Adds one to the model and to the client's memory; misbehaves at the clients it is told to."""

    raising: frozenset[int] = field(default_factory=frozenset)
    spoiling: frozenset[int] = field(default_factory=frozenset)

    def __call__(self, baton, visit):
        client = visit.client.id
        if client in self.raising:
            raise OSError(f"disk of {client} is full")
        params = baton.params + (float("nan") if client in self.spoiling else 1.0)
        memory = {"visits": visit.memory.get("visits", 0) + 1}
        return Baton(params, baton.weight + visit.client.size), memory, Report(client, visit.client.size)


def chain(*clients: int) -> Chain:
    return Chain(Baton(torch.zeros(2)), clients)


def test_work_is_folded_along_the_chain_with_one_report_per_hop(engine):
    (outcome,) = engine.run(Count(), [chain(4, 1, 3)], {}, 1)
    assert outcome.baton.params.tolist() == [3, 3]
    assert outcome.baton.weight == 30
    assert [report.client for report in outcome.reports] == [4, 1, 3]


def test_a_client_that_raises_is_dropped_with_its_reason_and_the_last_good_baton_goes_on(engine):
    (outcome,) = engine.run(Count(raising=frozenset({1})), [chain(4, 1, 3)], {}, 1)
    assert outcome.baton.params.tolist() == [2, 2]
    assert outcome.baton.weight == 20
    assert [(drop.client, drop.hop) for drop in outcome.dropped] == [(1, 1)]
    assert "OSError: disk of 1 is full" in outcome.dropped[0].reason


def test_a_client_that_returns_a_non_finite_model_is_dropped(engine):
    (outcome,) = engine.run(Count(spoiling=frozenset({4, 3})), [chain(4, 1, 3)], {}, 1)
    assert outcome.baton.params.tolist() == [1, 1]
    assert [drop.client for drop in outcome.dropped] == [4, 3]
    assert "non-finite" in outcome.dropped[0].reason


@dataclass(frozen=True)
class SpoilsInPlace(Work):
    """Writes into the model that it got, and gives it back."""

    def __call__(self, baton, visit):
        baton.params.fill_(float("nan"))
        return baton, visit.memory, Report(visit.client.id, visit.client.size)


def test_a_model_that_is_spoiled_in_its_place_is_noticed(engine):
    (outcome,) = engine.run(SpoilsInPlace(), [chain(4)], {}, 1)
    assert "non-finite" in outcome.dropped[0].reason


def test_memories_count_only_once_the_round_is_committed(engine):
    list(engine.run(Count(), [chain(0, 1, 0)], {}, 1))
    assert engine.memories() == (0, {})
    engine.commit(1)
    assert engine.memories() == (1, {0: {"visits": 2}, 1: {"visits": 1}})
    list(engine.run(Count(), [chain(1)], {}, 2))  # an interrupted round leaves nothing behind
    list(engine.run(Count(), [chain(1)], {}, 2))
    engine.commit(2)
    assert engine.memories() == (2, {0: {"visits": 2}, 1: {"visits": 2}})


def test_a_dropped_client_keeps_its_old_memory(engine):
    list(engine.run(Count(), [chain(0, 1)], {}, 1))
    engine.commit(1)
    list(engine.run(Count(spoiling=frozenset({0})), [chain(0, 1)], {}, 2))
    engine.commit(2)
    assert engine.memories()[1] == {0: {"visits": 1}, 1: {"visits": 2}}


def test_a_chain_with_no_good_hop_is_left_out_of_the_merge(engine):
    algorithm = replace(fr.method(fedavg(), local=LOCAL, fraction=1.0), update=Count(raising=frozenset({2, 5})))
    state = advance(algorithm, engine, start(algorithm, engine))
    assert deployed(state).params.tolist() == [1, 1]
    assert state.log.clients == 4
    assert [drop.client for drop in state.log.drops] == sorted([2, 5], key=[d.client for d in state.log.drops].index)


def test_a_run_stops_when_every_chain_fails_naming_clients_and_reasons(engine):
    algorithm = replace(
        fr.method(fedseq(max_clients=2), local=LOCAL, fraction=1.0), update=Count(raising=frozenset(range(6)))
    )
    told = r"round 1: every chain failed.*\(chain 0, client (\d): OSError: disk of \1 is full .*; and 1 more\)"
    with pytest.raises(RunFailed, match=told) as caught:  # six clients, of whom five are named
        advance(algorithm, engine, start(algorithm, engine))
    assert not isinstance(caught.value, Diverged)  # their models were well


def test_a_client_in_two_chains_of_a_round_is_refused(engine):
    @dataclass(frozen=True)
    class Twice(Plan):
        def init(self, survey, sizes, rng):
            return {}

        def __call__(self, state, rng):
            return Planned({}, [Chain(state.batons[0], (0, 1)), Chain(state.batons[0], (2, 1))], groups=2)

    algorithm = replace(fr.method(fedavg(), local=LOCAL), plan=Twice())
    with pytest.raises(RunFailed, match="client 1 into two chains, 0 and 1"):
        advance(algorithm, engine, start(algorithm, engine))


def test_the_number_of_threads_is_put_back(engine):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        list(engine.run(Count(), [chain(0)], {}, 1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_small_numbers_are_zero_inside_and_only_there():
    """Python's arithmetic tells what torch's does."""
    tiny = torch.tensor(1e-30)
    before = flushes_denormals()
    assert before == (float(tiny * 1e-10) == 0)
    with operator_threads(1):
        if torch.set_flush_denormal(True):  # not every processor can
            assert flushes_denormals()
            assert float(tiny * 1e-10) == 0
    assert flushes_denormals() == before == (float(tiny * 1e-10) == 0)
