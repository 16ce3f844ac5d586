"""Clients that hold up a round: none does so for ever, a round without anybody waits, and failures quote nothing."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace

import in_process
import pytest
import torch
import zoo

import fedrelay as fr
from fedrelay import RunFailed, Sgd, start
from fedrelay.engines import Inline
from fedrelay.engines.remote import Answered, Came, Event, Gone, Patience, relaying
from fedrelay.engines.remote import engine as engine_module
from fedrelay.engines.remote.messages import Failed, Request
from fedrelay.engines.remote.trees import decode
from fedrelay.plans.once import Once
from fedrelay.plans.sampling.target import Census
from fedrelay.types import Baton, Chain, Visit, Work

BAD = 2


class Clock:
    """Time that passes only where a test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    made = Clock()
    for module in (engine_module, relaying):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture(scope="module")
def world():
    algorithm = fr.method(local=Sgd(batch=16, lr=0.1), fraction=1.0)
    federation = zoo.federation_for(algorithm)
    return algorithm, federation, zoo.task_for(federation)


def engine_with(world, folder, wire: type[in_process.InProcess], patience: Patience):
    algorithm, federation, task = world
    engine = in_process.remote(algorithm, federation, task, folder)
    engine.patience, engine.wire.__class__ = patience, wire
    engine.deadlines._patience = patience
    return engine


def run(world, engine, *chains: tuple[int, ...]):
    algorithm, _, task = world
    return list(engine.run(algorithm.update, [Chain(Baton(task.init(1)), clients) for clients in chains], {}, 1))


@pytest.mark.parametrize("at_once", [True, False])
def test_a_client_that_is_cut_off_again_and_again_has_no_more_time_than_others(at_once, world, tmp_path, clock):
    """It is at the visit all the while, and says so whenever it is back; its hour is over after an hour."""

    class Reconnecting(in_process.InProcess):
        def wait(self, seconds: float, /) -> list[Event]:
            if self.events or not self.asked or self.asked[0][0] != BAD:
                return list(super().wait(seconds))
            clock.now += 400.0
            assert clock.now < 9000, "it holds its chain for ever"
            ticket = Request.of(decode(self.asked[0][1])).ticket
            cycle = [Came(BAD, ticket), Gone(BAD, "its connection was lost")]
            return cycle if at_once else [*reversed(cycle)]

    engine = engine_with(world, tmp_path, Reconnecting, Patience(deadline=3600.0, grace=600.0))
    engine.wire.visitors[BAD].answer = None
    (found,) = run(world, engine, (1, BAD))
    assert [(drop.client, drop.reason) for drop in found.dropped] == [(BAD, "has not answered within 3.6e+03 seconds")]
    assert [report.client for report in found.reports] == [1]
    assert clock.now == 4000.0


def test_a_round_whose_clients_are_all_lost_waits_and_says_so(world, tmp_path, clock, caplog):
    """Others are there, but the round has not drawn them; when one of its own is back, it goes on with that one."""

    class Away(in_process.InProcess):
        waits = 0

        def send(self, client: int, message: bytes | bytearray, /) -> None:
            if self.waits:
                super().send(client, message)
            else:
                self.events.append(Gone(client, "its connection was lost"))

        def wait(self, seconds: float, /) -> list[Event]:
            clock.now += 1.0
            if self.events or self.asked:
                return list(super().wait(seconds))
            self.waits += 1
            return [Came(BAD)] if self.waits == 5 else []

    engine = engine_with(world, tmp_path, Away, Patience(grace=0.0, share=0.1))
    with caplog.at_level(logging.WARNING, "fedrelay"):
        found = run(world, engine, (0, BAD), (4,))
    said = [record.message for record in caplog.records if "waits" in record.message]
    reasons = "; ".join(f"{engine.called(client)} its connection was lost" for client in (0, 4, BAD))
    assert said == [f"round 1 waits: all clients that it has drawn are lost, until one of them is back ({reasons})"]
    assert [[report.client for report in outcome.reports] for outcome in found] == [[BAD], []]
    algorithm, federation, task = world
    (expected,) = Inline(federation, task, 1).run(algorithm.update, [Chain(Baton(task.init(1)), (BAD,))], {}, 1)
    assert found[0].baton.weight == expected.baton.weight
    assert torch.isfinite(found[0].baton.params).all()
    assert [drop.client for outcome in found for drop in outcome.dropped] == [0, 4]


class Failing(in_process.InProcess):
    """Everybody who is asked answers with an error, as long as `ill` says."""

    ill = True

    def wait(self, seconds: float, /) -> list[Event]:
        if self.events or not self.asked or not self.ill:
            return list(super().wait(seconds))
        client, message = self.asked.popleft()
        return [Answered(client, Failed(Request.of(decode(message)).ticket, "the disk is full").encoded())]


def test_a_round_whose_clients_all_answer_badly_ends_as_it_would_anywhere(world, tmp_path):
    engine = engine_with(world, tmp_path, Failing, Patience(grace=0.0))
    found = run(world, engine, (0, BAD), (4,))
    assert [drop.reason for outcome in found for drop in outcome.dropped] == ["the disk is full"] * 3
    assert not any(outcome.reports for outcome in found)


@pytest.mark.parametrize("others", [True, False])
def test_a_client_that_is_there_and_hangs_holds_no_round_for_ever(others, world, tmp_path, clock):
    class Hanging(in_process.InProcess):
        def wait(self, seconds: float, /) -> list[Event]:
            clock.now += 1.0
            assert clock.now < 200, "it waits for ever"
            events, self.events = self.events, []
            return events

    engine = engine_with(world, tmp_path, Hanging, Patience(deadline=50.0, grace=5.0, share=0.0, beginning=0.0))
    if not others:
        engine.wire.events = [Came(BAD)]
    (first,) = run(world, engine, (BAD,))
    assert [drop.reason for drop in first.dropped] == ["has not answered within 50 seconds"]
    began = clock.now
    (second,) = run(world, engine, (BAD,))
    assert [drop.reason for drop in second.dropped] == ["is still at a visit that it has not answered in time"]
    assert clock.now - began == pytest.approx(5 if others else 50, abs=2)
    assert len(engine.wire.asked) == 1
    assert all(engine.why_stop(round) is None for round in range(1, 30)) == others  # others may be drawn the next time
    engine.wire.events = [Came(BAD)]
    engine.wire.__class__ = in_process.InProcess
    engine.wire.asked.clear()
    assert run(world, engine, (BAD,))[0].reports


def test_a_client_that_comes_and_goes_holds_no_round_for_ever(world, tmp_path, clock):
    class Flapping(in_process.InProcess):
        waits = 0

        def wait(self, seconds: float, /) -> list[Event]:
            clock.now += 1.0
            self.waits += 1
            assert self.waits < 200, "it waits for ever"
            if self.waits == 1:
                return list(super().wait(seconds))
            return [Gone(BAD, "its connection was lost")] if self.asked and not self.asked.clear() else [Came(BAD)]

    engine = engine_with(world, tmp_path, Flapping, Patience(grace=0.0, share=0.1))
    (found,) = run(world, engine, (BAD,))
    assert [drop.reason for drop in found.dropped] == ["its connection was lost"]
    assert not found.reports


def test_a_round_from_which_nothing_comes_keeps_the_model_and_ten_in_a_row_end_the_run(world, tmp_path, caplog):
    algorithm = world[0]
    engine = engine_with(world, tmp_path, Failing, Patience(grace=0.0))
    engine.wire.ill = False
    before = state = fr.advance(algorithm, engine, start(algorithm, engine))
    engine.wire.ill = True
    for _ in range(9):
        state = fr.advance(algorithm, engine, state)
    assert torch.equal(state.batons[0].params, before.batons[0].params)
    assert (state.log.clients, {drop.reason for drop in state.log.drops}) == (0, {"the disk is full"})
    assert "round 10 came to nothing, and the run goes on with the model that it has" in caplog.text
    engine.wire.ill = False
    state = fr.advance(algorithm, engine, state)
    assert not torch.equal(state.batons[0].params, before.batons[0].params)
    engine.wire.ill = True
    for _ in range(9):
        state = fr.advance(algorithm, engine, state)
    with pytest.raises(RunFailed, match=r"round 21: every chain failed.*the disk is full.*10 rounds in a row"):
        fr.advance(algorithm, engine, state)


def test_where_nothing_has_ever_come_back_three_rounds_are_enough(world, tmp_path):
    engine = engine_with(world, tmp_path, Failing, Patience(grace=0.0))
    state = start(world[0], engine)
    for _ in range(2):
        state = fr.advance(world[0], engine, state)
    with pytest.raises(RunFailed, match=r"round 3: every chain failed.*the disk is full.*3 rounds in a row"):
        fr.advance(world[0], engine, state)


def test_a_method_that_asks_its_clients_once_does_not_go_on_without_them(world, tmp_path):
    engine = engine_with(world, tmp_path, Failing, Patience(grace=0.0))
    algorithm = replace(world[0], plan=Once(world[0].plan))
    with pytest.raises(RunFailed, match="round 1: every chain failed"):
        fr.advance(algorithm, engine, start(algorithm, engine))


def described(engine, world, *clients: int):
    """What comes of a survey of these clients, before the first round or, of newcomers, between two."""
    _, _, task = world
    chains = [Chain(Baton(task.init(1)), (client,)) for client in clients]
    return list(engine.run(Census(), chains, {}, 0))


def test_a_survey_that_nobody_answers_in_time_waits_and_asks_again(world, tmp_path, clock, caplog):
    """A round without anybody is followed by another; without what clients tell before the first, there is none."""

    class Slow(in_process.InProcess):
        def wait(self, seconds: float, /) -> list[Event]:
            clock.now += 1.0
            return list(super().wait(seconds)) if self.events or clock.now > 100 else []

    engine = engine_with(world, tmp_path, Slow, Patience(deadline=50.0, share=1.0))
    found = described(engine, world, 0, BAD)
    assert [[report.client for report in outcome.reports] for outcome in found] == [[0], [BAD]]
    said = [record.message for record in caplog.records if "waits" in record.message]
    reasons = "; ".join(f"{engine.called(client)} has not answered within 50 seconds" for client in (0, BAD))
    assert said == [
        f"the run waits before round 1: no client has described itself, until 2 can be asked again ({reasons})"
    ]


def test_a_survey_that_all_answer_badly_ends_at_once(world, tmp_path):
    engine = engine_with(world, tmp_path, Failing, Patience())
    assert [outcome.dropped[0].reason for outcome in described(engine, world, 0, BAD)] == ["the disk is full"] * 2


def test_who_joins_late_and_leaves_before_it_is_described_is_not_waited_for(world, tmp_path, clock):
    class Leaving(in_process.InProcess):
        leaves = False

        def send(self, client: int, message: bytes | bytearray, /) -> None:
            if self.leaves:
                self.events.append(Gone(client, "its connection was lost"))
            else:
                super().send(client, message)

        def wait(self, seconds: float, /) -> list[Event]:
            clock.now += 1.0
            assert clock.now < 100, "all wait for one"
            return list(super().wait(seconds))

    engine = engine_with(world, tmp_path, Leaving, Patience(grace=5.0))
    assert all(outcome.reports for outcome in described(engine, world, 0, 1))
    engine.wire.leaves = True
    (found,) = described(engine, world, BAD)
    assert [drop.reason for drop in found.dropped] == ["its connection was lost"]


class Deserted(in_process.InProcess):
    """From some moment on nobody is there any more; `clock` goes on."""

    since, clock = 10**9, Clock()

    def wait(self, seconds: float, /) -> list[Event]:
        self.clock.now += 1.0
        assert self.clock.now < 2000, "it waits for ever"
        if self.asked and len(self.answered) >= self.since:
            gone = [Gone(number, "its connection was lost") for number in range(len(self.visitors))]
            self.asked.clear()
            return gone
        found = list(super().wait(seconds))
        self.answered += [one for one in found if isinstance(one, Answered)]
        return found


def test_a_run_stops_when_nobody_has_come_for_as_long_as_it_waits_and_resumes_to_the_same_bits(world, tmp_path, clock):
    algorithm, federation, task = world
    engine = engine_with(world, tmp_path / "one", Deserted, Patience(grace=0.0, wait=300.0))
    engine.wire.clock, engine.wire.answered, engine.wire.since = clock, [], 2 * len(federation)
    recorder = fr.Recorder(tmp_path / "run", algorithm, engine, federation.test, rounds=4, checkpoint_every=100)
    with pytest.raises(RunFailed) as stopped:
        list(recorder.run())
    assert re.search(
        "round 3: the run has waited for 300 seconds, and all clients that it needs are lost", str(stopped.value)
    )
    assert f"{engine.called(0)} its connection was lost" in str(stopped.value)
    assert "see to them, then --resume goes on" in str(stopped.value)
    assert 300 <= clock.now < 330 + 2 * len(federation)
    again = in_process.remote(algorithm, federation, task, tmp_path / "two")
    recorder = fr.Recorder(tmp_path / "run", algorithm, again, federation.test, rounds=4, resume=True)
    assert recorder.done() == 2
    assert len(list(recorder.run())) == 4
    simulated = fr.Recorder(tmp_path / "simulated", algorithm, Inline(federation, task, 1), federation.test, rounds=4)
    list(simulated.run())
    assert recorder.summary().params_sha256 == simulated.summary().params_sha256


def test_a_round_below_the_stated_share_waits_no_longer_than_the_run_does(world, tmp_path, clock):
    """Before the run has begun nothing is lost by waiting, so that has no end."""

    class Few(in_process.InProcess):
        def wait(self, seconds: float, /) -> list[Event]:
            clock.now += 100.0
            return [Came(0)] if clock.now > 5000 else []

    engine = engine_with(world, tmp_path, Few, Patience(wait=1000.0, beginning=0.01))
    engine.joined()
    assert clock.now > 5000
    engine.memory.restore({}, 7)
    engine.patience = Patience(wait=1000.0)
    with pytest.raises(RunFailed, match=r"round 8: the run has waited for 1000 seconds, and 1 of 12 clients are there"):
        engine.joined()
    assert 6000 <= clock.now < 6500


class PatientsOfWard7(Exception):
    """An error of the client's own code, whose very name says something."""


@dataclass(frozen=True)
class Raises(Work):
    """A work that fails, and says why in words that are nobody else's business."""

    error: type[Exception]

    def __call__(self, baton: Baton, visit: Visit, /):
        raise self.error("/srv/ward-7/patients.csv: 'Ada Byron' is no number")


@pytest.mark.parametrize(
    ("error", "kind"), [(ValueError, "ValueError"), (PatientsOfWard7, "an error of its own")], ids=["known", "own"]
)
def test_of_a_visit_that_fails_only_the_kind_leaves_the_client(error, kind, world, tmp_path, caplog):
    _, federation, task = world
    engine = in_process.remote(world[0], federation, task, tmp_path)
    visitor = engine.wire.visitors[0]
    visitor.works = {"update": Raises(error)}
    request = Request("0" * 8 + "-1", "update", 1, 0, 0.0, task.init(1), {}, None, "0" * 8 + "-1-1-0")
    sent = bytes(visitor.answer(request).encoded())
    assert decode(sent)["reason"] == f"failed at its work ({kind}); its own log says more"
    for word in (b"/", b"ward", b"Ward", b"Ada", __file__.encode()):
        assert word not in sent
    assert "/srv/ward-7/patients.csv: 'Ada Byron' is no number" in caplog.text
    assert "line " in caplog.text
