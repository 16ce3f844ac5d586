"""What holds for all attacks and all methods: without strength a run is the honest one, to the bit; with some, it is
the same on every engine, and after a resume."""

from __future__ import annotations

import pytest
import torch
import zoo

from fedrelay import Federation, Task, adapted, deployed, train
from fedrelay.algorithms import ALGORITHMS
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline
from fedrelay.models import MODELS
from fedrelay.plans import Neighbours, Position, Spread
from fedrelay.runs.threat import ATTACKS, When, threatened
from fedrelay.visits import Sgd

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


@pytest.fixture(scope="module")
def pools():
    with zoo.shared_pools() as made:
        yield made


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gives_the_same_on_every_engine_also_after_a_resume(name, pools, tmp_path, monkeypatch):
    method, when = SITUATIONS[name]
    honest = zoo.made(method)
    monkeypatch.setattr(zoo, "made", lambda _: threatened(honest, ATTACKS[name](**HARMFUL.get(name, {})), when))
    zoo.check_engines(method, pools, tmp_path)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_changes_the_model(name):
    method, when = SITUATIONS[name]
    honest = zoo.made(method)
    federation = zoo.federation_for(honest)
    engine = Inline(federation, zoo.task_for(federation, method), 1)
    attacked = threatened(honest, ATTACKS[name](**HARMFUL.get(name, {})), when)
    models = [deployed(list(train(one, engine, rounds=4))[-1]).params for one in (honest, attacked)]
    assert not torch.equal(*models)
