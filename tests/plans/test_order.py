"""In which order one chain goes through its clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import quadratics

import fedrelay as fr
from fedrelay import BadInput, Federation, Task
from fedrelay.algorithms import sequential
from fedrelay.data import digits
from fedrelay.engines import Inline
from fedrelay.models import Mlp


def orders(order, engine, rounds: int = 1) -> list[tuple[int, ...]]:
    method = fr.method(sequential(order=order), local=quadratics.FULL_STEPS)
    state, seed = fr.start(method, engine), engine.seed
    return [method.plan(state, fr.seeds.rng(seed, "plan", round)).chains[0].clients for round in range(1, rounds + 1)]


def domains(owners=("photo", "sketch", "photo", "sketch", "photo")) -> Inline:
    """Clients of named domains."""
    known, base = list(dict.fromkeys(owners)), digits()
    owner = np.zeros(len(base.train), np.int64)
    taken = np.array_split(np.arange(400), len(owners))
    for rows, name in zip(taken, owners, strict=True):
        owner[rows] = known.index(name)
    source = replace(base, owners=owner, owner_names=tuple(known))
    federation = Federation.of(source, taken)
    return Inline(federation, Task.of(Mlp(hidden=(4,)), federation), 1)


def test_clients_come_in_the_order_that_is_asked_for():
    engine = quadratics.three()
    assert orders("given", engine) == [(0, 1, 2)]
    assert orders("by_size", engine) == [(2, 1, 0)]
    assert orders((1, 2, 0), engine) == [(1, 2, 0)]
    assert len(set(orders("random", engine, 12))) > 1


def test_domains_come_in_turn_or_as_they_are_listed():
    assert orders("by_domain", domains()) == [(0, 1, 2, 3, 4)]
    assert orders("by_domain", domains(("photo", "photo", "photo", "sketch", "art"))) == [(0, 3, 4, 1, 2)]
    assert orders(("sketch", "photo"), domains()) == [(1, 3, 0, 2, 4)]
    assert orders(("art", "photo", "sketch"), domains(("photo", "sketch", "art"))) == [(2, 0, 1)]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("by_domain", "needs clients whose examples come from one named owner each"),
        (("photo",), "names 'photo', and there is no such client"),
        ((0, 1), "every one of the 3 clients once: client 2 is missing"),
        ((0, 1, 2, 2), "every one of the 3 clients once: some are there twice"),
        ("by_name", "order must be random, given, by_size, by_domain or a list of clients"),
    ],
)
def test_orders_that_cannot_be_are_refused(order, message):
    with pytest.raises(BadInput, match=message):
        orders(order, quadratics.three())
