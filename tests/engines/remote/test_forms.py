"""What a client sends besides the model must have the form that its work says: nobody ends a merge with it."""

from __future__ import annotations

from dataclasses import replace

import in_process
import numpy as np
import pytest
import torch
import zoo

import fedrelay as fr
from fedrelay import Sgd, adapted
from fedrelay.algorithms import scaffold
from fedrelay.engines.remote import Answered, Event
from fedrelay.engines.remote.forms import check_told
from fedrelay.engines.remote.messages import Done, Request, answer_of
from fedrelay.engines.remote.trees import Malformed, decode
from fedrelay.plans.grouping.traits import Collected, collect, complete
from fedrelay.plans.sampling.target import Census
from fedrelay.runs import start
from fedrelay.types import Report
from fedrelay.visits.traits import ClassHistogram

BAD = 2


class Spoiling(in_process.InProcess):
    """One client sends something else besides the model."""

    spoil: object = None

    def wait(self, seconds: float, /) -> list[Event]:
        if self.events or not self.asked or self.asked[0][0] != BAD:
            return list(super().wait(seconds))
        client, message = self.asked.popleft()
        done = self.visitors[client].answer(Request.of(decode(message)))
        return [Answered(client, replace(done, uplink=self.spoil(done.uplink)).encoded())]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda sent: {"control": torch.cat([sent["control"]] * 50)}, "it should be float32"),
        (lambda sent: {"control": sent["control"].double()}, "'control' as float64"),
        (lambda sent: {"control": "much"}, "'control' as a str"),
        (lambda sent: {}, "did not send 'control'"),
        (lambda sent: {**sent, "steps": 10**400}, "sent 'steps', which is 1000"),
        (lambda sent: {**sent, "more": torch.zeros(1)}, "sent 'more', which nobody asked for"),
    ],
)
def test_a_client_that_sends_another_form_is_skipped_and_named(spoil, reason, tmp_path):
    algorithm = fr.method(scaffold(), local=Sgd(batch=16, lr=0.1), fraction=1.0)
    federation = zoo.federation_for(algorithm)
    engine = in_process.remote(algorithm, federation, zoo.task_for(federation), tmp_path)
    engine.wire.__class__, engine.wire.spoil = Spoiling, spoil
    state = fr.advance(algorithm, engine, start(algorithm, engine))
    assert [drop.client for drop in state.log.drops] == [BAD]
    assert reason in state.log.drops[0].reason


def specimen_and_sent(name: str, folder):
    """What a method says that it sends, and what a client sends in fact."""
    algorithm = zoo.made(name)
    federation = zoo.federation_for(algorithm)
    task = adapted(algorithm, zoo.task_for(federation, name))
    engine = in_process.remote(algorithm, federation, task, folder)
    request = Request("0" * 8 + "-1", "update", 1, 0, 0.0, task.init(1), {}, None, "0" * 8 + "-1-1-0")
    done = engine.wire.visitors[0].answer(request)
    assert isinstance(done, Done), done
    return algorithm.update.specimen(task), done.uplink


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("fednova", "steps", 0),
        ("fednova", "steps", float("nan")),
        ("fednova", "steps", True),
        ("maecho", "projections", {}),
        ("maecho", "owned", torch.zeros(3, dtype=torch.uint8)),
    ],
)
def test_methods_say_the_form_of_what_they_send(name, key, value, tmp_path):
    specimen, sent = specimen_and_sent(name, tmp_path)
    check_told(sent, specimen)
    with pytest.raises(Malformed):
        check_told({**sent, key: value}, specimen)


def test_counts_of_classes_are_not_negative():
    algorithm = zoo.made("fedavg")
    task = zoo.task_for(zoo.federation_for(algorithm))
    counts = torch.ones(task.classes, dtype=torch.int64)
    check_told({"classes": counts}, Census().specimen(task))
    with pytest.raises(Malformed, match="below zero"):
        check_told({"classes": counts - 2}, Census().specimen(task))


def test_a_method_that_says_nothing_may_send_what_it_likes_but_numbers_without_end():
    check_told({"anything": [torch.ones(3), "a word", 5]}, None)
    with pytest.raises(Malformed, match="not finite"):
        check_told({"anything": {"deep": torch.tensor([torch.nan])}}, None)


@pytest.mark.parametrize(
    "told", [None, "text", torch.zeros(2, 2), torch.zeros(0), torch.zeros(2, dtype=torch.complex64)]
)
def test_a_trait_that_is_no_vector_leaves_its_client_undescribed(told):
    found = Collected()
    found.add(0, torch.ones(4))
    found.add(1, told)
    found.add(2, torch.ones(4, dtype=torch.bfloat16))
    found.settle(3)
    assert found.missing == {1: "sent no vector as its trait"}


def collected(*told: torch.Tensor) -> Collected:
    (found,) = collect((Report(client, 1, uplink={"trait": one}) for client, one in enumerate(told)), len(told), most=9)
    return found


def test_one_client_does_not_decide_how_long_the_traits_of_all_are():
    found = collected(torch.ones(7), torch.ones(4), torch.ones(10), 2 * torch.ones(4))
    assert found.missing == {
        0: "sent a trait of 7 numbers, most others 4",
        2: "sent a trait of 10 numbers, and 9 are the most",
    }
    assert found.rows.tolist() == [[0] * 4, [1] * 4, [0] * 4, [2] * 4]
    assert collected(torch.ones(3), torch.ones(4)).missing == {1: "sent a trait of 4 numbers, most others 3"}


def test_a_client_that_has_less_than_nothing_of_a_class_is_undescribed():
    found = collected(torch.tensor([1.0, 2.0]), torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 0.0]))
    traits = complete(ClassHistogram(), found, 2, np.random.default_rng(0))
    assert traits.missing == ((1, "sent a trait with numbers below zero"),)
    assert traits.rows.min() >= 0


def test_metrics_that_no_float_can_hold_are_no_answer():
    done = Done("t", 1.0, "same", 1, {"loss": 10**400}, {}, False, 0.1)
    with pytest.raises(Malformed, match="its metrics are"):
        answer_of(done.encoded())
