"""Chains that advance together are equal to the same chains one by one, up to rounding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

import fedrelay as fr
from fedrelay import Adam, AdamW, BadInput, Federation, Sgd, Task, deployed, train
from fedrelay.algorithms import fedavg, feddyn, fedprox, fedsam, fedseq, scaffold
from fedrelay.data import Augment, Dirichlet, Natural, Normalise, digits, quadratic, synthetic
from fedrelay.engines import Inline, Stacked
from fedrelay.engines.pool.dispatch import Stacks
from fedrelay.errors import SAID
from fedrelay.models import FemnistCnn, Logistic, Mlp, Quadratic, SmallCnn
from fedrelay.types import Baton, Chain, Report, Work

SEED = 5
LOCAL = Sgd(batch=7, epochs=2, lr=0.1)


@pytest.fixture(autouse=True)
def really_stacked(caplog):
    """Visits made one by one would be equal all the more."""
    SAID.clear()
    yield
    assert not [record for record in caplog.get_records("call") if "one by one" in record.message]


@pytest.fixture(scope="module")
def ragged() -> Federation:
    """Sizes from a handful to hundreds."""
    return Federation.split(digits(), Dirichlet(alpha=0.1, deal="classes"), 14, SEED)


def engines(federation, model, **settings) -> tuple[Inline, Stacked]:
    task = Task.of(model, federation)
    return Inline(federation, task, SEED), Stacked(federation, task, SEED, **settings)


def assert_same(algorithm, federation, model, rounds=2, **settings) -> None:
    one_by_one, stacked = engines(federation, model, **settings)
    expected, found = (list(train(algorithm, engine, rounds=rounds)) for engine in (one_by_one, stacked))
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(deployed(b).params, deployed(a).params, rtol=1e-4, atol=1e-5)
        assert b.log.train_loss == pytest.approx(a.log.train_loss, rel=1e-4)
        done = [(log.clients, log.chains, log.drops, log.examples) for log in (a.log, b.log)]
        assert done[0] == done[1]
    assert not torch.allclose(deployed(expected[-1]).params, one_by_one.task.init(SEED), rtol=1e-2)
    kept, also = one_by_one.memories()[1], stacked.memories()[1]
    assert sorted(kept) == sorted(also)
    for client in kept:
        for name, value in kept[client].items():
            torch.testing.assert_close(also[client][name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "local",
    [
        LOCAL,
        replace(LOCAL, momentum=0.9, weight_decay=0.01, lr=0.02),
        replace(LOCAL, clip=0.5),
        replace(LOCAL, steps=9),
        replace(LOCAL, batch=0),
        replace(LOCAL, batch=1000),
        Adam(batch=7, epochs=2, lr=0.01),
        AdamW(batch=7, epochs=2, lr=0.01, clip=0.5),
        replace(LOCAL, validation=0.2),
    ],
    ids=["plain", "momentum", "clip", "steps", "full", "large", "adam", "adamw", "validation"],
)
def test_every_setting_of_the_training_stacks(ragged, local):
    assert_same(fr.method(fedavg(), local=local, fraction=1.0), ragged, Mlp(hidden=(12,)), rows=32)


@pytest.mark.parametrize("method", [fedprox, fedsam, scaffold, feddyn])
def test_methods_that_pull_at_the_gradient_stack(ragged, method):
    assert_same(fr.method(method(), local=LOCAL, fraction=0.7), ragged, Logistic(), rows=32)


@pytest.mark.parametrize("model", [Logistic(), Mlp(hidden=(8, 8)), SmallCnn(channels=(4, 3))])
@pytest.mark.parametrize("rows", [2, 5])
def test_chains_of_unequal_length_stack(ragged, model, rows):
    algorithm = fr.method(fedseq(max_clients=4, laps=2), local=replace(LOCAL, epochs=1, batch=20), fraction=1.0)
    assert_same(algorithm, ragged, model, rounds=1, rows=rows)


@pytest.mark.parametrize("transform", [Augment((0.5,), (0.3,), padding=1), Normalise((0.5,), (0.3,))])
def test_augmentation_is_drawn_as_it_would_be_one_by_one(transform):
    source = synthetic(examples=150, shape=(1, 6, 6), classes=3, test_examples=4)
    source = replace(source, train=replace(source.train, transform=transform))
    federation = Federation.split(source, Dirichlet(alpha=0.5), 6, SEED)
    assert_same(fr.method(fedavg(), local=LOCAL, fraction=1.0), federation, SmallCnn(channels=(3,)), rows=8)


def test_a_client_that_diverges_is_dropped_and_spoils_nobody_else(ragged):
    x = ragged.source.train.x.clone()
    x[ragged.client(3).rows] *= 1e30
    source = replace(ragged.source, train=replace(ragged.source.train, x=x))
    federation = replace(ragged, source=source)
    algorithm = fr.method(fedseq(max_clients=3), local=LOCAL, fraction=1.0)
    with pytest.warns(fr.DroppedClients):
        assert_same(algorithm, federation, Mlp(hidden=(8,)), rounds=1, rows=8)
    _, stacked = engines(federation, Mlp(hidden=(8,)), rows=8)
    with pytest.warns(fr.DroppedClients):
        (state,) = train(algorithm, stacked, rounds=1)
    assert [drop.client for drop in state.log.drops] == [3]


def test_when_going_together_fails_the_visits_are_made_one_by_one_and_the_culprit_is_dropped(ragged):
    one_by_one, stacked = engines(ragged, Mlp(hidden=(8,)), rows=8)
    work = Fragile(LOCAL)
    chains = [Chain(Baton(stacked.task.init(0)), clients) for clients in [(0, 1), (2, 3), (4,)]]
    found, expected = (list(engine.run(work, chains, {}, 1)) for engine in (stacked, one_by_one))
    assert [[drop.client for drop in outcome.dropped] for outcome in found] == [[], [2], []]
    assert found[1].dropped == expected[1].dropped
    assert all(torch.allclose(a.baton.params, b.baton.params, atol=1e-5) for a, b in zip(found, expected, strict=True))


@dataclass(frozen=True)
class Fragile(Work):
    """Sgd, but client 2 raises."""

    local: Sgd

    def __call__(self, baton, visit):
        if visit.client.id == 2:
            raise OSError("no disk")
        return self.local(baton, visit)

    def stacks(self, task):
        return self.local.stacks(task)

    def together(self, batons, visits):
        if any(visit.client.id == 2 for visit in visits):
            raise OSError("no disk")
        return self.local.together(batons, visits)


@dataclass(frozen=True)
class Plain(Work):
    """Any other Work."""

    def __call__(self, baton, visit):
        return Baton(baton.params + visit.client.id, baton.weight + 1), visit.memory, Report(visit.client.id, 1)


@pytest.mark.parametrize(
    ("model", "source", "work"),
    [
        (Quadratic(), quadratic(clients=4), LOCAL),
        (Mlp(), digits(), Plain()),
        (FemnistCnn(), digits(), replace(LOCAL, steps=2)),
    ],
)
def test_what_cannot_be_stacked_runs_as_inline_to_the_bit_and_says_so_once(model, source, work, caplog):
    federation = Federation.split(source, Natural() if source.owners is not None else Dirichlet(1.0), 4, SEED)
    one_by_one, stacked = engines(federation, model)
    algorithm = replace(fr.method(fedavg(), fraction=1.0), update=work)
    expected, found = (list(train(algorithm, engine, rounds=2)) for engine in (one_by_one, stacked))
    assert torch.equal(deployed(found[-1]).params, deployed(expected[-1]).params)
    assert caplog.text.count("cannot be stacked: it runs chain by chain") == 1


def test_a_round_before_the_first_is_the_same_bits_as_inline(ragged):
    """Probes: so that an engine which is chosen later changes nothing that came before."""
    one_by_one, stacked = engines(ragged, Mlp(hidden=(8,)))
    chains = [Chain(Baton(stacked.task.init(0)), (client,)) for client in range(5)]
    found, expected = (list(engine.run(LOCAL, chains, {}, 0)) for engine in (stacked, one_by_one))
    assert all(torch.equal(a.baton.params, b.baton.params) for a, b in zip(found, expected, strict=True))


def test_stacks_given_out_to_workers_are_the_same_bits_as_in_this_process(ragged):
    task = Task.of(Mlp(hidden=(12,)), ragged)
    algorithm = fr.method(scaffold(), local=LOCAL, fraction=1.0)
    here = Stacked(ragged, task, SEED, rows=4)
    expected = [deployed(state).params for state in train(algorithm, here, rounds=2)]
    with Stacked(ragged, task, SEED, rows=4, workers=2) as there:
        found = [deployed(state).params for state in train(algorithm, there, rounds=2)]
        assert len(there._pool.pool.workers) == 2
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_stacks_are_of_like_length_and_equal_number():
    lengths = [1, 4, 2, 4, 1, 3, 2]
    chains = [Chain(Baton(torch.zeros(1)), tuple(range(length))) for length in lengths]
    stacks = Stacks(chains, [1] * 4, rows=3).all
    assert [len(stack) for stack in stacks] == [2, 2, 3]
    assert [lengths[number] for stack in stacks for number in stack] == sorted(lengths, reverse=True)


def test_rows_follow_from_the_size_of_the_model(ragged):
    small, large = (Stacked(ragged, Task.of(model, ragged)) for model in (Logistic(), Mlp(hidden=(3000,))))
    assert small.rows == 32
    assert large.rows == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"rows": 1}, "rows must be at least 2, not 1"), ({"workers": 0}, "workers must be at least 1, not 0")],
)
def test_settings_out_of_range_are_refused(ragged, settings, message):
    with pytest.raises(BadInput, match=message):
        Stacked(ragged, Task.of(Logistic(), ragged), **settings)
