"""What holds for all attacks and all methods: without strength a run is the honest one, to the bit; with some, it is
the same on every engine, and after a resume."""

from __future__ import annotations

import pytest
import torch
import zoo

from fedrelay import Federation, Task, adapted, deployed, train
from fedrelay.algorithms import ALGORITHMS
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.models import MODELS
from fedrelay.plans import Neighbours, Position, Spread
from fedrelay.runs.threat import ATTACKS, When, threatened
from fedrelay.visits import Sgd
from fedrelay.visits.attacks.attack import SPIED, without

METHODS = [name for name, row in ALGORITHMS.items() if not row.recipe().pooled]


@pytest.fixture(scope="module")
def few():
    """Clients of a few images each."""
    whole = Federation.split(digits(), Dirichlet(alpha=100.0), 60, 1)
    return Federation.of(whole.source, [whole.client(number).rows.numpy()[:12] for number in range(6)])


def run(algorithm, engine, rounds):
    """All batons, what clients keep, and who attacks."""
    *_, state = train(algorithm, engine, rounds=rounds)
    kept = [memory[key] for _, memory in sorted(engine.memories()[1].items()) for key in sorted(memory)]
    return [*(baton.params for baton in state.batons), *kept], state.attackers


@pytest.mark.parametrize("name", METHODS)
def test_an_attack_without_strength_is_the_honest_run_to_the_bit(name, few):
    row = ALGORITHMS[name]
    algorithm = zoo.made(name, Sgd(batch=6, lr=0.1))
    engine = Inline(few, adapted(algorithm, Task.of(MODELS[row.model](hidden=(4,)), few)), 1)
    rounds = 1 if name == "dense" else 2  # after the first only its server works
    honest, nobody = run(algorithm, engine, rounds)
    assert nobody == ()
    for attack in ATTACKS.values():
        found, attackers = run(threatened(algorithm, attack(strength=0.0), When(Spread(0.5))), engine, rounds)
        assert zoo.same_bits(honest, found), attack
        assert len(attackers) == 3


HARMFUL = {"alie": {"z": 2.0}, "noise": {"deviation": 0.01}}
SITUATIONS = {
    "labels": ("fedseq", When(Spread(0.3))),
    "backdoor": ("fedseqinter", When(Spread(0.3))),
    "noise": ("fedseq", When(Neighbours(count=2))),
    "sign_flip": ("fedasyncseq", When(Position(-1))),
    "scaled": ("fedcyclic", When(Position(0))),
    "replacement": ("fedavg", When(Spread(0.3), first_round=2)),
    "lazy": ("scaffold", When(Spread(0.3))),
    "alie": ("fedseq", When(Spread(0.5))),
    "ipm": ("fedseqinter", When(Position(-1, chains=1))),
    "min_max": ("dfedavgm", When(Spread(0.3))),
    "mimic": ("fedavg", When(Spread(0.3), last_round=2)),
}


PASSIVE = {"recovery": {"epochs": 1, "width": 1, "images": 2, "every": 1, "discriminators": ("received", "own")}}
"""They send what they have trained."""


def test_every_attack_is_tried():
    assert {*SITUATIONS, *PASSIVE} == set(ATTACKS)


@pytest.fixture(scope="module")
def pools():
    with zoo.shared_pools() as made:
        yield made


@pytest.mark.parametrize("name", SITUATIONS)
def test_an_attack_gives_the_same_on_every_engine_also_after_a_resume(name, pools, tmp_path, monkeypatch):
    method, when = SITUATIONS[name]
    honest = zoo.made(method)
    monkeypatch.setattr(zoo, "made", lambda _: threatened(honest, ATTACKS[name](**HARMFUL.get(name, {})), when))
    zoo.check_engines(method, pools, tmp_path)


@pytest.mark.parametrize("name", SITUATIONS)
def test_an_attack_changes_the_model(name):
    method, when = SITUATIONS[name]
    honest = zoo.made(method)
    federation = zoo.federation_for(honest)
    engine = Inline(federation, zoo.task_for(federation, method), 1)
    attacked = threatened(honest, ATTACKS[name](**HARMFUL.get(name, {})), when)
    models = [deployed(list(train(one, engine, rounds=4))[-1]).params for one in (honest, attacked)]
    assert not torch.equal(*models)


@pytest.mark.parametrize("name", PASSIVE)
@pytest.mark.parametrize("method", ["fedseq", "scaffold", "fedbn", "fedelmy", "moon"])
def test_a_passive_attack_leaves_the_run_as_it_is_to_the_bit(name, method, few):
    algorithm = zoo.made(method, Sgd(batch=6, lr=0.1))
    model = MODELS[ALGORITHMS[method].model](hidden=(4,))
    engine = Inline(few, adapted(algorithm, Task.of(model, few)), 1)
    honest, _ = run(algorithm, engine, 2)
    *_, state = train(threatened(algorithm, ATTACKS[name](**PASSIVE[name]), When(Spread(0.5))), engine, rounds=2)
    memories = [without(memory) for _, memory in sorted(engine.memories()[1].items())]
    kept = [memory[key] for memory in memories for key in sorted(memory)]
    assert zoo.same_bits(honest, [*(baton.params for baton in state.batons), *kept])
    attackers = {hit.client for hit in state.log.attacked}
    assert attackers
    assert all(SPIED in engine.memories()[1][client] for client in attackers)


@pytest.mark.parametrize("name", PASSIVE)
def test_a_passive_attack_finds_out_the_same_on_every_engine_also_after_a_resume(name, pools, tmp_path):
    honest = zoo.made("fedseq")
    algorithm = threatened(honest, ATTACKS[name](**PASSIVE[name]), When(Spread(0.2)))
    federation = zoo.federation_for(algorithm)
    task = zoo.task_for(federation, "fedseq")
    pool = pools.setdefault((len(federation), task), Pool(federation, task, 1, workers=2))
    found = {}
    for kind, engine in {
        "inline": Inline(federation, task, 1),
        "stacked": Stacked(federation, task, 1),
        "pool": pool,
    }.items():
        plain = zoo.models(train(honest, engine, rounds=zoo.ROUNDS))
        states, spied = zoo.trained(algorithm, engine)
        assert zoo.same_bits(plain, zoo.models(states))
        _, again = zoo.resumed(algorithm, engine, tmp_path / kind)
        found[kind] = leaves(spied)
        assert found[kind]
        assert zoo.same_bits(found[kind], leaves(again))
    assert zoo.same_bits(found["inline"], found["pool"])


def leaves(tree):
    """All tensors in nested data."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    parts = [tree[key] for key in sorted(tree)] if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return [leaf for part in parts for leaf in leaves(part)]
