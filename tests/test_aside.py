"""The other process: the same results, whatever happens to it."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from fedrelay import BadInput, Federation, Sgd, Task, start, train
from fedrelay.algorithms import fedgsp
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline
from fedrelay.models import Mlp
from fedrelay.plans import Fixed, Limits, Traits, regroup
from fedrelay.plans.aside import _other, aside
from fedrelay.plans.distances import Euclidean
from fedrelay.plans.icg import Icg


def whoever() -> int:
    return os.getpid()


whoever.__module__ = "__main__"  # as in a user's own script
__import__("__main__").whoever = whoever
TRAITS = Traits(np.random.default_rng(0).dirichlet(np.full(5, 0.1), 60), 5)


def test_groups_made_in_the_other_process_are_those_made_here():
    def ask(grouper):
        return grouper(TRAITS, [1] * 60, Euclidean(), Limits(groups=6), np.random.default_rng(4))

    there = aside(Icg(), TRAITS, [1] * 60, Euclidean(), Limits(groups=6), np.random.default_rng(4))
    assert there == ask(Icg())


def test_it_is_another_process_and_the_same_one_every_time():
    there = aside(os.getpid)
    assert there != os.getpid()
    assert aside(os.getpid) == there


def test_a_mistake_there_is_raised_here_as_itself():
    with pytest.raises(BadInput, match="groups = 99 but there are 60 clients"):
        aside(Icg(), TRAITS, [1] * 60, Euclidean(), Limits(groups=99), np.random.default_rng(4))


def test_what_cannot_be_sent_is_computed_here_and_the_other_process_goes_on():
    there = aside(os.getpid)
    assert aside(lambda: os.getpid()) == os.getpid()
    assert aside(whoever) == os.getpid()  # there is no such module there
    assert aside(os.getpid) == there


def test_when_it_dies_nothing_is_lost():
    first = aside(os.getpid)
    _other().process.kill()
    assert aside(abs, -3) == 3
    assert aside(os.getpid) not in (first, os.getpid())


def test_what_is_printed_there_does_not_get_between_the_answers():
    there = aside(os.getpid)
    assert aside(print, "hello") is None
    assert aside(os.getpid) == there


def test_this_process_goes_on_meanwhile():
    """A second of sleep there holds no lock here; what is asked meanwhile waits its turn."""
    from fedrelay.plans.beside import beside

    aside(abs, 1)  # it has started
    began = time.perf_counter()
    future = beside(aside, time.sleep, 1.0)
    assert time.perf_counter() - began < 0.5
    assert aside(abs, -2) == 2
    assert time.perf_counter() - began >= 0.9
    future.result()


def test_many_clients_are_regrouped_there_to_the_same_groups(monkeypatch):
    def groups():
        federation = Federation.split(digits(), Dirichlet(alpha=0.0), 20, 3)
        engine = Inline(federation, Task.of(Mlp(hidden=(4,)), federation), 3)
        algorithm = fedgsp(local=Sgd(steps=1), growth=Fixed(4))
        state = start(algorithm, engine)
        return [after.memo["groups"] for after in train(algorithm, engine, rounds=3, state=state)]

    here = groups()
    monkeypatch.setattr(regroup, "MANY", 1)
    assert groups() == here
    assert len(set(here)) == 3
