"""Visits outside the interpreter, several at once in threads: to the bits that each has alone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import Adam, BadInput, Federation, Sgd, Task
from fedrelay.algorithms import fedsam, fedseq, scaffold
from fedrelay.data import Dirichlet, Examples, Iid, Source, digits
from fedrelay.data.augment import Augment
from fedrelay.engines import Inline, Stacked
from fedrelay.kernels.native import Dense, dense, found
from fedrelay.models import CharLstm, Mlp, Own
from fedrelay.system.threads import flushes_denormals
from fedrelay.types import Baton, Chain
from fedrelay.vectors import sha256
from fedrelay.visits.around import Around
from fedrelay.visits.native import NativeLoop

pytestmark = pytest.mark.usefixtures("compiled")

LOCAL = Sgd(batch=8, lr=0.1, epochs=2)
DROPPING = Own(
    nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 10)),
    )
)


def of_digits(transform=None) -> Federation:
    source = digits()
    train, test = (replace(part, x=part.x.reshape(-1, 8, 8, 1)) for part in (source.train, source.test))
    if transform is not None:
        train = train.with_transform(transform)
    return Federation.split(replace(source, train=train, test=test), Dirichlet(alpha=0.5), 20)


def of_text() -> Federation:
    x = torch.randint(0, 12, (150, 7), generator=torch.Generator().manual_seed(5))
    train = Examples(x, (x[:, -1] + 1) % 12)
    return Federation.split(Source("text", train, train, classes=12), Iid(), 10)


def relayed(federation: Federation, model, local=LOCAL, *, kind=Stacked, change=None, **settings) -> torch.Tensor:
    algorithm = fr.method(*([change] if change else []), local=local, fraction=0.3)
    with closing(kind(federation, Task.of(model, federation), native=True, **settings)) as engine:
        *_, state = fr.train(algorithm, engine, rounds=2)
    return state.batons[0].params


@pytest.fixture
def met(monkeypatch) -> Iterator[set[int]]:
    """The threads that have trained. Nobody goes on before two have begun, for half a minute."""
    seen, both = set[int](), threading.Event()

    def watched(function):
        def watching(self, *given):
            seen.add(threading.get_ident())
            if len(seen) > 1:
                both.set()
            both.wait(30)
            assert flushes_denormals()
            assert torch.get_num_threads() == 1
            return function(self, *given)

        return watching

    monkeypatch.setattr(NativeLoop, "trained", watched(NativeLoop.trained))
    monkeypatch.setattr(Dense, "visits", watched(Dense.visits))
    return seen


@pytest.mark.parametrize(
    ("federation", "model", "local", "change"),
    [
        (of_digits, Mlp(hidden=(16,)), LOCAL, None),
        (of_digits, Mlp(hidden=(16,)), Adam(batch=8), None),
        (of_digits, Mlp(hidden=(16,)), LOCAL, scaffold()),
        (of_digits, Mlp(hidden=(16,)), Sgd(batch=8, momentum=0.9, clip=1.0), fedseq(groups=7)),
        (of_digits, DROPPING, LOCAL, None),
        (lambda: of_digits(Augment(mean=(0.0,), std=(1.0,), padding=1)), DROPPING, LOCAL, None),
        (of_text, CharLstm(embedding=3, hidden=10), LOCAL, None),
    ],
    ids=["mlp", "adam", "memories", "chains", "dropout", "augmented", "lstm"],
)
def test_threads_have_the_bits_of_one_visit_after_another(federation, model, local, change, met):
    data = federation()
    threads = sha256(relayed(data, model, local, change=change, threads=2))
    assert len(met) > 1
    assert threads == sha256(relayed(data, model, local, change=change, kind=Inline))


def test_more_threads_than_visits_do_no_harm():
    data = of_digits()
    assert sha256(relayed(data, DROPPING, threads=50)) == sha256(relayed(data, DROPPING, threads=1))


def test_code_of_the_users_runs_in_one_thread(monkeypatch):
    """A transform that fedrelay does not know may not be made for more."""
    seen, trained = set[int](), NativeLoop.trained
    monkeypatch.setattr(NativeLoop, "trained", lambda *given: (seen.add(threading.get_ident()), trained(*given))[1])
    relayed(of_digits(lambda x, rng: x), Mlp(hidden=(8,)), threads=2)
    assert seen == {threading.get_ident()}


def test_as_many_threads_as_cores_unless_you_say(monkeypatch):
    data = of_digits()
    monkeypatch.setenv("FEDRELAY_CORES", "3")
    made = {str(more): Stacked(data, Task.of(DROPPING, data), **more).threads for more in ({}, {"native": True})}
    assert list(made.values()) == [1, 3]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"threads": 2}, "native = true"),
        ({"threads": 2, "native": True, "workers": 2}, "leave workers out"),
        ({"threads": 0, "native": True}, "threads must be at least 1"),
    ],
)
def test_threads_that_would_have_nothing_to_do_are_refused(settings, words):
    data = of_digits()
    with pytest.raises(BadInput, match=words):
        Stacked(data, Task.of(DROPPING, data), **settings)


def test_a_client_that_fails_is_dropped_by_name_and_takes_nobody_with_it():
    data = of_digits()
    y = data.source.train.y.clone()
    y[data.client(1).rows] = 99
    wrong = Federation(replace(data.source, train=replace(data.source.train, y=y)), data.order, data.starts)
    task = Task.of(Mlp(hidden=(8,)), data)
    chains = [Chain(Baton(task.init(0)), (client,)) for client in range(4)]
    found = list(Stacked(wrong, task, native=True, threads=2).run(LOCAL, chains, {}, 1))
    assert [len(outcome.dropped) for outcome in found] == [0, 1, 0, 0]
    assert "there are 10 classes" in found[1].dropped[0].reason
    alone = list(Inline(data, task, native=True).run(LOCAL, chains, {}, 1))
    for number in (0, 2, 3):
        assert sha256(found[number].baton.params) == sha256(alone[number].baton.params)


@pytest.mark.parametrize("change", [lambda model: model.double(), lambda model: model.half()])
def test_a_model_of_other_numbers_is_trained_in_float32(change):
    data = of_digits()
    task = Task.of(Mlp(hidden=(8,)), data)
    chains = [Chain(Baton(change(task.init(0))), (client,)) for client in range(3)]
    ways = Inline(data, task, native=True), Stacked(data, task, native=True, threads=2)
    one, other = ([outcome.baton.params for outcome in way.run(LOCAL, chains, {}, 1)] for way in ways)
    assert [sha256(model) for model in one] == [sha256(model) for model in other]
    assert {model.dtype for model in other} == {torch.float32}


def test_a_model_of_another_size_drops_its_client_and_nothing_else_happens():
    data = of_digits()
    task = Task.of(Mlp(hidden=(8,)), data)
    chains = [Chain(Baton(torch.zeros(100)), (client,)) for client in range(2)]
    for outcome in Stacked(data, task, native=True, threads=2).run(LOCAL, chains, {}, 1):
        assert "size" in outcome.dropped[0].reason


@dataclass(frozen=True)
class Careful(Around):
    """Says that its visits must be made one by one."""

    def stacks(self, task, /):
        return False

    def __call__(self, baton, visit, /):
        CALLED.append(visit.client.id)
        return self.work(baton, visit)


CALLED = list[int]()


def test_work_that_does_not_stack_is_asked_for_every_visit():
    data = of_digits()
    chains = [Chain(Baton(Task.of(DROPPING, data).init(0)), (client,)) for client in range(4)]
    CALLED.clear()
    list(Stacked(data, Task.of(DROPPING, data), native=True, threads=2).run(Careful(LOCAL), chains, {}, 1))
    assert CALLED == [0, 1, 2, 3]


def test_what_is_held_out_is_held_out_once_where_terms_cannot_be_native():
    """A network with dropout does not stack, and steps uphill are not native: visits are made one by one."""
    data = of_digits()
    local = replace(LOCAL, validation=0.3)
    one, other = (relayed(data, DROPPING, local, change=fedsam(), kind=kind) for kind in (Inline, Stacked))
    assert sha256(one) == sha256(other)


def test_a_long_visit_lets_the_interpreter_have_its_turns(monkeypatch):
    """So that Ctrl-C is seen: the library is called for every pass if they take long, to the same bits. Else it is
    called once a round."""
    data, library = of_digits(), found().library
    many = Sgd(batch=8, lr=0.1, epochs=9)
    whole = sha256(relayed(data, Mlp(hidden=(16,)), many, threads=1))
    calls, visits = [], library.dense_visits
    monkeypatch.setattr(library, "dense_visits", lambda *given: (calls.append(1), visits(*given))[1])
    monkeypatch.setattr(dense, "TURN", 60.0)
    assert sha256(relayed(data, Mlp(hidden=(16,)), many, threads=1)) == whole
    assert len(calls) == 2
    monkeypatch.setattr(dense, "TURN", 0.0)
    assert sha256(relayed(data, Mlp(hidden=(16,)), many, threads=1)) == whole
    assert len(calls) == 2 + 2 * (6 * 9 + 1)  # rounds, clients, passes, and to see that all are done


@pytest.mark.parametrize("waiting", [True, False], ids=["that waits", "at work"])
def test_ctrl_c_ends_the_others_soon(waiting, monkeypatch):
    """A thread that is at work goes no further than to the next turn of the interpreter; whether the main one has
    visits of its own meanwhile, or waits for the others."""
    data, library, begun, shared, turns = of_digits(), found().library, threading.Event(), [], []
    make, visits = library.dense_visits, Dense.visits

    def main(self, these):
        if threading.current_thread() is not threading.main_thread():
            shared.append(these)
            return visits(self, these)
        begun.wait(30)
        if not waiting:
            raise KeyboardInterrupt
        return None

    def turn(*given):
        if len(turns) == 3:
            begun.set()
            if waiting:
                time.sleep(0.3)  # the main thread has nothing more to do by now
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        turns.append(given)
        return make(*given)

    monkeypatch.setattr(Dense, "visits", main)
    monkeypatch.setattr(library, "dense_visits", turn)
    monkeypatch.setattr(dense, "TURN", 0.0)
    with pytest.raises(KeyboardInterrupt):
        relayed(data, Mlp(hidden=(16,)), replace(LOCAL, epochs=20_000), threads=2)
    (those,) = shared
    assert sum(visit.done for visit in those._visits) < those._visits[0].examples


CONVOLVING = Own(
    nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 12), nn.Linear(12, 10))
)


@pytest.mark.parametrize(
    ("federation", "model"),
    [(of_digits, Mlp(hidden=(48, 16))), (of_digits, CONVOLVING), (of_text, CharLstm(embedding=3, hidden=10))],
    ids=["dense", "convolutions", "lstm"],
)
def test_clients_of_any_size_share_the_room_of_the_largest(federation, model, monkeypatch):
    """The batch of a client with fewer examples than a batch is smaller, and so is the room that it would need."""
    rows = [np.arange(start, start + size) for start, size in ((0, 3), (10, 90), (100, 40), (149, 1))]
    data = Federation.of(federation().source, rows)
    task, whole, visits = Task.of(model, data), [], Dense.visits
    monkeypatch.setattr(Dense, "visits", lambda *given: (whole.append(1), visits(*given))[1])
    chains = [Chain(Baton(task.init(0)), (client,)) for client in range(4)]
    local = Sgd(batch=64, lr=0.1, epochs=3)
    ways = Inline(data, task, native=True), Stacked(data, task, native=True, threads=2)
    one, other = ([sha256(outcome.baton.params) for outcome in way.run(local, chains, {}, 1)] for way in ways)
    assert one == other
    assert whole
