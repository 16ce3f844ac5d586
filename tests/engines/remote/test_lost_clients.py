"""Clients that die, hang, answer nonsense or come back: their chain goes on from the last good baton."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import in_process
import pytest
import torch
import zoo

import fedrelay as fr
from fedrelay import Sgd
from fedrelay.engines import Inline
from fedrelay.engines.remote import Answered, Broken, Came, Event, Gone, Patience, relaying
from fedrelay.engines.remote import engine as engine_module
from fedrelay.engines.remote.engine import Deadlines
from fedrelay.engines.remote.messages import Done, Failed, Request
from fedrelay.engines.remote.trees import LENGTH, decode, encode
from fedrelay.types import Baton, Chain, Visit, Work

BAD = 2
CHAINS = ((0, 1, BAD, 3), (4, 5))


@dataclass(frozen=True)
class RaisesAt(Work):
    """Another work, which fails at one client."""

    work: Work
    client: int

    def __call__(self, baton: Baton, visit: Visit, /):
        if visit.client.id == self.client:
            raise ValueError("lost")
        return self.work(baton, visit)


class Faulty(in_process.InProcess):
    """One client has a fault, the first time it is asked."""

    fault: Callable[[Request, Callable[[], Done | Failed]], list[Event]] | None = None

    def wait(self, seconds: float, /):
        if self.fault is not None and not self.events and self.asked and self.asked[0][0] == BAD:
            _, message = self.asked.popleft()
            fault, self.fault = self.fault, None
            request = Request.of(decode(message))
            return fault(request, lambda: self.visitors[BAD].answer(request))
        return super().wait(seconds)


class Clock:
    """Time that passes only where a test says so: a busy machine is no fault of a client."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    for module in (engine_module, relaying):
        monkeypatch.setattr(module, "time", CLOCK)


@pytest.fixture(scope="module")
def world():
    algorithm = fr.method(local=Sgd(batch=16, lr=0.1), fraction=1.0)
    federation = zoo.federation_for(algorithm)
    return algorithm, federation, zoo.task_for(federation)


def chains_from(task) -> list[Chain]:
    return [Chain(Baton(task.init(1)), clients) for clients in CHAINS]


def run_with(world, folder, fault, patience):
    algorithm, federation, task = world
    engine = in_process.remote(algorithm, federation, task, folder)
    engine.patience, engine.wire.__class__, engine.wire.fault = patience, Faulty, fault
    engine.deadlines._patience = patience
    return engine, list(engine.run(algorithm.update, chains_from(task), {}, 1))


def dies(request, answer):
    return [Gone(BAD, "its connection was lost")]


def hangs(request, answer):
    CLOCK.now += 7.0
    return []


def raises(request, answer):
    return [Answered(BAD, Failed(request.ticket, "the disk is full").encoded())]


def another_shape(request, answer):
    return [Answered(BAD, replace(answer(), params=torch.zeros(3)).encoded())]


def not_finite(request, answer):
    done = answer()
    done.params[0] = torch.nan
    return [Answered(BAD, done.encoded())]


def exploded(request, answer):
    done = answer()
    return [Answered(BAD, replace(done, params=done.params * 1e9).encoded())]


def tells_nonsense(request, answer):
    return [Answered(BAD, replace(answer(), uplink={"x": torch.tensor([torch.inf])}).encoded())]


def no_message(request, answer):
    return [Answered(BAD, b"\x80\x04nonsense")]


def another_message(request, answer):
    return [Answered(BAD, encode({"is": "done", "ticket": request.ticket, "examples": "many"}))]


def no_tree(request, answer):
    return [Answered(BAD, in_head('{"tree": {"map": [[1]]}, "tensors": []}'))]


def without_weight(request, answer):
    return [Answered(BAD, replace(answer(), weight=math.nan).encoded())]


def less_than_nothing(request, answer):
    return [Answered(BAD, replace(answer(), weight=-1e6).encoded())]


def for_ever(request, answer):
    return [Answered(BAD, replace(answer(), seconds=10**400).encoded())]


def in_head(text: str) -> bytes:
    """A message of this head alone."""
    return len(text).to_bytes(LENGTH, "little") + text.encode()


def too_long(request, answer):
    return [Broken(BAD, "sent 3 bytes at once, and 2 are the most")]


FAULTS = {
    dies: "its connection was lost",
    hangs: "has not answered within 5 seconds",
    raises: "the disk is full",
    another_shape: "sent a model of 3 numbers, and it should have",
    not_finite: "returned a non-finite model",
    exploded: "its model exploded",
    tells_nonsense: "sent 'x', which is not finite",
    no_message: "sent an answer that cannot be read",
    another_message: "sent an answer that cannot be read: 'examples' is a str",
    no_tree: "sent an answer that cannot be read: its tree cannot be read",
    without_weight: "'weight' is nan, and not from 0 to",
    less_than_nothing: "'weight' is -1000000.0, and not from 0 to",
    for_ever: "'seconds' is 1000",
    too_long: "sent 3 bytes at once",
}


@pytest.mark.parametrize(("fault", "reason"), FAULTS.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_a_client_with_a_fault_is_skipped_and_its_chain_goes_on_from_the_last_good_baton(
    fault, reason, world, tmp_path
):
    algorithm, federation, task = world
    patience = Patience(deadline=5.0, grace=0.0)
    _, found = run_with(world, tmp_path, fault, patience)
    lost = RaisesAt(algorithm.update, BAD)
    expected = list(Inline(federation, task, 1).run(lost, chains_from(task), {}, 1))
    assert [(drop.client, drop.hop) for outcome in found for drop in outcome.dropped] == [(BAD, 2)]
    assert reason in found[0].dropped[0].reason
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.baton.params, other.baton.params)
        assert one.baton.weight == other.baton.weight
        assert [report.client for report in one.reports] == [report.client for report in other.reports]


def test_a_client_that_was_late_is_not_listened_to_and_is_used_again_when_it_has_answered(world, tmp_path):
    algorithm, _, task = world
    kept = []

    def late(request, answer):
        kept.append(Answered(BAD, answer().encoded()))
        return hangs(request, answer)

    engine, _ = run_with(world, tmp_path, late, Patience(deadline=5.0, grace=0.0))
    assert BAD in engine.late
    engine.patience = engine.deadlines._patience = Patience()
    outcomes = list(engine.run(algorithm.update, chains_from(task), {}, 2))
    assert outcomes[0].dropped[0].reason == "is still at a visit that it has not answered in time"
    engine.wire.events += kept
    outcomes = list(engine.run(algorithm.update, chains_from(task), {}, 2))
    assert [len(outcome.dropped) for outcome in outcomes] == [0, 0]
    expected = list(Inline(world[1], task, 1).run(algorithm.update, chains_from(task), {}, 2))
    assert torch.equal(outcomes[0].baton.params, expected[0].baton.params)


@pytest.mark.parametrize("bad", [Broken(BAD, "sent too much"), Answered(BAD, b"nonsense")])
def test_a_late_client_whose_answer_cannot_be_used_is_used_again_all_the_same(bad, world, tmp_path):
    algorithm, _, task = world
    engine, _ = run_with(world, tmp_path, hangs, Patience(deadline=5.0, grace=0.0))
    assert BAD in engine.late
    engine.patience = engine.deadlines._patience = Patience()
    engine.wire.events.append(bad)
    outcomes = list(engine.run(algorithm.update, chains_from(task), {}, 2))
    assert [len(outcome.dropped) for outcome in outcomes] == [0, 0]


@pytest.mark.parametrize("answered", [True, False])
def test_a_client_that_comes_back_in_time_is_not_lost(answered, world, tmp_path):
    """A new process is asked again; one that was only cut off sends its answer."""

    def comes_back(request, answer):
        gone = [Gone(BAD, "its connection was lost")]
        if answered:
            return [*gone, Came(BAD, request.ticket), Answered(BAD, answer().encoded())]
        return [*gone, Came(BAD)]

    algorithm, federation, task = world
    _, found = run_with(world, tmp_path, comes_back, Patience())
    expected = list(Inline(federation, task, 1).run(algorithm.update, chains_from(task), {}, 1))
    assert [len(outcome.dropped) for outcome in found] == [0, 0]
    assert torch.equal(found[0].baton.params, expected[0].baton.params)


def test_a_client_that_is_lost_again_and_again_at_one_visit_is_given_up(world, tmp_path):
    class Crashing(Faulty):
        def send(self, client, message, /):
            if client == BAD:
                self.events += [Gone(BAD, "its connection was lost"), Came(BAD)]
            else:
                super().send(client, message)

    algorithm, federation, task = world
    engine = in_process.remote(algorithm, federation, task, tmp_path)
    engine.wire.__class__ = Crashing
    found = list(engine.run(algorithm.update, chains_from(task), {}, 1))
    assert found[0].dropped[0].reason == "was lost 3 times at this visit"


def test_a_client_that_has_lost_its_memory_is_dropped_once_and_begins_anew(tmp_path):
    algorithm = zoo.made("scaffold")
    federation = zoo.federation_for(algorithm)
    task = zoo.task_for(federation)
    engine = in_process.remote(algorithm, federation, task, tmp_path)
    *_, state = fr.train(algorithm, engine, rounds=1)
    client, tree = next(iter(engine.memories()[1].items()))
    (tmp_path / f"client-{client}" / tree["version"]).unlink()
    chains = [Chain(state.batons[0], (client,))]
    (outcome,) = engine.run(algorithm.update, chains, state.shared, 2)
    assert "does not have what it kept" in outcome.dropped[0].reason
    engine.commit(2)
    (outcome,) = engine.run(algorithm.update, chains, state.shared, 3)
    assert outcome.reports


def test_deadlines_follow_what_a_client_has_needed():
    deadlines = Deadlines(Patience(deadline=100, factor=4, least=2))
    assert deadlines.of(0, "update") == 100
    deadlines.note(0, "update", 3.0)
    assert deadlines.of(0, "update") == 12
    assert deadlines.of(0, "plan.traits") == 100
    deadlines.note(0, "update", 12.0)  # it was given up after that: the next time it has more
    assert deadlines.of(0, "update") == 48
    for _ in range(5):
        deadlines.note(0, "update", 0.1)
    assert deadlines.of(0, "update") == 2


def test_a_client_that_was_quick_before_is_given_up_sooner(world, tmp_path):
    """It needed 3 seconds, so the next visit has four times that, and not the hour of the first."""
    algorithm, _, task = world

    def slow(request, answer):
        CLOCK.now += 3.0
        return [Answered(BAD, answer().encoded())]

    def waits(request, answer):
        CLOCK.now += 11.0
        engine.wire.fault = gone
        return []

    def gone(request, answer):
        raise AssertionError("nobody asks it again")

    engine, first = run_with(world, tmp_path, slow, Patience(deadline=3600.0, factor=4.0, least=1.0))
    assert not first[0].dropped
    engine.wire.fault = waits
    rest = engine.wire.wait

    def later(seconds):
        """What remains of its time goes by."""
        CLOCK.now += 1.5 if engine.wire.fault is gone else 0.0
        return rest(seconds)

    engine.wire.wait = later
    outcomes = list(engine.run(algorithm.update, chains_from(task), {}, 2))
    assert [drop.reason for drop in outcomes[0].dropped] == ["has not answered within 12 seconds"]


def test_what_a_client_has_already_is_not_sent_again(world, tmp_path):
    algorithm, federation, task = world
    engine = in_process.remote(algorithm, federation, task, tmp_path)
    shared = {"large": torch.zeros(100_000)}
    baton = Baton(task.init(1))
    (outcome,) = engine.run(algorithm.update, [Chain(baton, (0,))], shared, 1)
    first, engine.wire.sent = engine.wire.sent, 0
    assert first > 400_000 + 4 * len(baton.params)
    list(engine.run(algorithm.update, [Chain(outcome.baton, (0,))], shared, 2))
    assert engine.wire.sent < 2000
