"""Clients that are not there when a run begins: they have their place from the start, and take part when they come."""

from __future__ import annotations

import logging
from dataclasses import replace

import in_process
import pytest
import torch
import zoo

import fedrelay as fr
from fedrelay import Sgd
from fedrelay.algorithms import fedavg, fedgsp, fedseq, fedseqinter
from fedrelay.engines import Inline
from fedrelay.engines.remote import Came, Gone, Patience
from fedrelay.plans.sampling import BySimilarity, Target
from fedrelay.runs import checkpoint, start
from fedrelay.runs.rounds import decoded, encode
from fedrelay.visits.traits import ClassHistogram

LATE = (3, 7)
LOCAL = Sgd(batch=16, lr=0.1)
GREEDY = {"traits": ClassHistogram(), "groups": 4}


def method(name: str):
    sampler = {"target": Target(), "similarity": BySimilarity()}.get(name)
    more = {} if sampler is None else {"sampler": sampler}
    made = {"fedseq": fedseq(**GREEDY), "fedgsp": fedgsp(), "fedseqinter": fedseqinter(**GREEDY)}.get(name, fedavg())
    return fr.method(made, local=LOCAL, fraction=1.0 if sampler is None else 0.5, **more)


def world(name: str, folder):
    """An engine whose late clients have not come, and what they are asked."""
    algorithm = method(name)
    federation = zoo.federation_for(algorithm)
    engine = in_process.remote(algorithm, federation, zoo.task_for(federation), folder)
    engine.patience = Patience(beginning=0.5)
    engine.wire.events = [event for event in engine.wire.events if event.client not in LATE]
    return algorithm, federation, engine


def come(engine, *clients: int) -> None:
    engine.wire.events += [Came(client) for client in clients]


def all_groups(state) -> list[int]:
    return sorted(client for group in state.memo["groups"] for client in group)


@pytest.mark.parametrize("name", ["fedavg", "fedseq", "fedgsp", "fedseqinter", "target", "similarity"])
def test_who_joins_late_is_described_and_grouped_with_all_others_from_the_next_round_on(name, tmp_path):
    algorithm, federation, engine = world(name, tmp_path)
    state = start(algorithm, engine)
    early = [client for client in range(len(federation)) if client not in LATE]
    assert all_groups(state) == early
    state = fr.advance(algorithm, engine, state)
    assert (state.log.joined, state.log.drops) == (tuple(early), ())
    come(engine, *LATE)
    state = fr.advance(algorithm, engine, state)
    assert (state.log.joined, state.log.undescribed, state.log.drops) == (LATE, (), ())
    assert all_groups(state) == list(range(len(federation)))
    assert not state.told  # all have come: nothing need be kept of what they told
    state = fr.advance(algorithm, engine, state)
    assert (state.log.joined, state.log.drops) == ((), ())
    if name in ("fedavg", "fedseq", "fedgsp", "fedseqinter"):
        assert set(state.participants) == set(range(len(federation)))


def test_the_groups_after_a_late_joining_are_those_of_a_run_in_which_all_were_there(tmp_path):
    algorithm, federation, engine = world("fedseq", tmp_path)
    state = fr.advance(algorithm, engine, start(algorithm, engine))
    come(engine, *LATE)
    state = fr.advance(algorithm, engine, state)
    expected = start(algorithm, Inline(federation, engine.task, 1))
    assert state.memo["groups"] == expected.memo["groups"]


def test_only_who_joins_late_is_asked_and_what_that_sends_counts_in_its_round(tmp_path):
    algorithm, federation, engine = world("fedseq", tmp_path)
    state = fr.advance(algorithm, engine, start(algorithm, engine))
    histogram = 4 * federation.source.classes  # float32; the model need not be sent for it
    assert state.log.describing == {"messages": 10, "bytes": 10 * histogram}
    come(engine, LATE[0])
    state = fr.advance(algorithm, engine, state)
    assert state.log.describing == {"messages": 1, "bytes": histogram}
    state = fr.advance(algorithm, engine, state)
    assert state.log.describing == {"messages": 0, "bytes": 0}


def test_a_run_with_late_clients_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path):
    """Also if a client that had joined is not there just then: its place and what it told are in the checkpoint."""
    models = []
    for stopped in (False, True):
        algorithm, _, engine = world("fedseq", tmp_path / str(stopped))
        state = fr.advance(algorithm, engine, start(algorithm, engine))
        if stopped:
            checkpoint.save(tmp_path, state, engine.memories()[1])
            loaded = checkpoint.load(tmp_path)
            assert loaded is not None
            state = loaded[0]
            algorithm, _, engine = world("fedseq", tmp_path / "anew")
            engine.wire.events = [event for event in engine.wire.events if event.client != 0]
            engine.remember(state.round, loaded[1])
            come(engine, LATE[0])
            assert not engine.joined()[0]
            come(engine, 0)
        else:
            come(engine, LATE[0])
        state = fr.advance(algorithm, engine, state)
        assert state.log.joined == (LATE[0],)
        come(engine, LATE[1])
        models.append([fr.advance(algorithm, engine, state).batons[0].params, state.batons[0].params])
    assert all(map(torch.equal, *models))


def test_the_line_of_a_round_says_who_joined_and_that_of_a_simulation_does_not(tmp_path):
    algorithm, federation, engine = world("fedavg", tmp_path)
    log = fr.advance(algorithm, engine, start(algorithm, engine)).log
    assert decoded(encode(log), 1) == log
    simulated = Inline(federation, engine.task, 1)
    assert b"joined" not in encode(fr.advance(algorithm, simulated, start(algorithm, simulated)).log)


def test_who_brings_its_own_data_says_how_much_when_it_comes(tmp_path):
    algorithm, _, engine = world("fedavg", tmp_path)
    state = start(algorithm, engine)
    engine.wire.events.append(Came(LATE[0], size=5))
    state = fr.advance(algorithm, engine, replace(state, round=0))
    assert state.joined[LATE[0]] == 5
    assert state.memo["sizes"][state.memo["groups"].index((LATE[0],))] == 5
    assert state.examples == sum(state.joined)


def test_a_round_waits_for_the_stated_share_of_those_who_have_joined_and_says_whom_it_misses(tmp_path, caplog):
    algorithm, _, engine = world("fedavg", tmp_path)
    engine.patience = Patience(beginning=0.5, share=0.8)
    state = fr.advance(algorithm, engine, start(algorithm, engine))
    waits = []

    def wait(seconds):
        """Three of ten are lost; after a while one of them is back."""
        waits.append(seconds)
        if len(waits) == 1:
            return [Gone(client, "its connection was lost") for client in (0, 1, 2)]
        return [Came(0)] if len(waits) == 4 else []

    with caplog.at_level(logging.WARNING, "fedrelay"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.wire, "wait", wait)
        engine.joined()
    assert len(waits) == 4
    said = [record.message for record in caplog.records if "waits" in record.message]
    assert said == [
        "round 2 waits: 7 of 12 clients are there, at least 8 are needed (missing: "
        + ", ".join(engine.called(client) for client in (0, 1, 2, *LATE))
        + ")"
    ]
    assert state.round == 1
