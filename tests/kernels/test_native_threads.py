"""Visits outside the interpreter, several at once in threads: to the bits that each has alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import Adam, BadInput, Federation, Sgd, Task
from fedrelay.algorithms import fedseq, scaffold
from fedrelay.data import Dirichlet, Examples, Iid, Source, digits
from fedrelay.data.augment import Augment
from fedrelay.engines import Inline, Stacked
from fedrelay.models import CharLstm, Mlp, Own
from fedrelay.system.threads import flushes_denormals
from fedrelay.vectors import sha256
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
    seen, both, trained = set[int](), threading.Event(), NativeLoop.trained

    def watched(self, *given) -> torch.Tensor:
        seen.add(threading.get_ident())
        if len(seen) > 1:
            both.set()
        both.wait(30)
        assert flushes_denormals()
        assert torch.get_num_threads() == 1
        return trained(self, *given)

    monkeypatch.setattr(NativeLoop, "trained", watched)
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
