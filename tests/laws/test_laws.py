"""Laws that hold for algebraic reasons, on quadratic clients with closed forms (no expected number is our own)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from quadratics import CENTRES, FULL_STEPS, MATRICES, SIZES

import fedrelay as fr
from fedrelay import Federation, Sgd, Task, deployed, seeds, train
from fedrelay.algorithms import fedavg, fedcyclic, fedseq
from fedrelay.data import Dirichlet, Natural, digits, optimum, quadratic, quadratic_of
from fedrelay.engines import Inline
from fedrelay.models import Mlp, Quadratic
from fedrelay.types import Algorithm


def engine_on(source, model=None, *, clients=None, partition=None, seed=0) -> Inline:
    federation = Federation.split(source, partition or Natural(), clients, seed)
    return Inline(federation, Task.of(model or Quadratic(), federation), seed)


def models_of(algorithm: Algorithm, engine: Inline, rounds: int) -> list[torch.Tensor]:
    return [deployed(state).params for state in train(algorithm, engine, rounds=rounds)]


def local_map(i: int) -> np.ndarray:
    """Five gradient steps of 0.1 map w to M (w - b) + b."""
    return np.linalg.matrix_power(np.eye(2) - 0.1 * MATRICES[i], 5)


@pytest.fixture
def three() -> Inline:
    return engine_on(quadratic_of(MATRICES, CENTRES, SIZES))


def test_fedavg_follows_its_closed_form_for_three_rounds(three):
    # expected values from the papers' formulas, computed in float64 outside this project
    expected = [(1.0334142708, -0.2288867187), (1.3810554452, -0.3183365854), (1.4978642814, -0.3539163972)]
    found = models_of(fr.method(fedavg(), local=FULL_STEPS, fraction=1.0), three, 3)
    np.testing.assert_allclose(torch.stack(found).numpy(), expected, atol=2e-6)


def test_fedavg_ends_at_its_known_biased_point_and_not_at_the_optimum(three):
    p = np.array(SIZES) / sum(SIZES)
    rest = [np.eye(2) - local_map(i) for i in range(3)]
    biased = np.linalg.solve(sum(p[i] * rest[i] for i in range(3)), sum(p[i] * rest[i] @ CENTRES[i] for i in range(3)))
    np.testing.assert_allclose(biased, (1.5567242189, -0.3784838544), atol=1e-9)
    found = models_of(fr.method(fedavg(), local=FULL_STEPS, fraction=1.0), three, 60)[-1].numpy()
    np.testing.assert_allclose(found, biased, atol=1e-5)
    assert np.abs(found - optimum(MATRICES, CENTRES, p)).max() > 0.05


def test_a_chain_is_the_composition_of_the_clients_maps(three):
    w = np.zeros(2)
    found = models_of(fr.method(fedcyclic(), local=FULL_STEPS, fraction=1.0), three, 4)[-1]
    # the order of every round is random, so the test replays the orders that the plan drew
    for round in range(1, 5):
        _, order = seeds.rng(0, "plan", round).spawn(2)
        for i in order.permutation([0, 1, 2]):
            w = local_map(i) @ (w - CENTRES[i]) + CENTRES[i]
    np.testing.assert_allclose(found.numpy(), w, atol=1e-5)


def one_class_digits(seed: int = 3) -> Inline:
    return engine_on(digits(), Mlp(hidden=(16,)), clients=20, partition=Dirichlet(alpha=0.0), seed=seed)


@pytest.mark.parametrize("fraction", [0.3, 1.0])
def test_groups_of_one_are_fedavg_to_the_bit(fraction):
    local = Sgd(batch=8, lr=0.1, momentum=0.5)
    alone = models_of(fr.method(fedavg(), local=local, fraction=fraction), one_class_digits(), 4)
    grouped = models_of(fr.method(fedseq(max_clients=1), local=local, fraction=fraction), one_class_digits(), 4)
    assert all(torch.equal(a, b) for a, b in zip(alone, grouped, strict=True))
    assert not torch.equal(alone[0], alone[1])


@pytest.mark.parametrize("laps", [1, 2])
def test_one_group_of_all_is_fedcyclic_to_the_bit(laps):
    local = Sgd(batch=8, lr=0.05)
    ring = models_of(fr.method(fedcyclic(laps=laps), local=local, fraction=1.0), one_class_digits(), 3)
    one = models_of(fr.method(fedseq(max_clients=20, laps=laps), local=local, fraction=1.0), one_class_digits(), 3)
    assert all(torch.equal(a, b) for a, b in zip(ring, one, strict=True))


def test_on_equal_quadratic_clients_parallel_methods_agree_with_one_client_alone():
    engine = engine_on(quadratic(clients=6, dimension=3, spread=0.0, seed=1))
    alone = engine_on(quadratic(clients=1, dimension=3, spread=0.0, seed=1))
    reference = models_of(fr.method(fedavg(), local=FULL_STEPS, fraction=1.0), alone, 12)
    averaged = models_of(fr.method(fedavg(), local=FULL_STEPS, fraction=0.5), engine, 12)
    np.testing.assert_allclose(torch.stack(averaged), torch.stack(reference), atol=1e-6)
    # k clients in sequence make as much way in one round as one client in k rounds
    for algorithm, per_round in [
        (fr.method(fedseq(max_clients=3), local=FULL_STEPS, fraction=1.0), 3),
        (fr.method(fedcyclic(), local=FULL_STEPS, fraction=1.0), 6),
    ]:
        found = models_of(algorithm, engine, 12 // per_round)
        np.testing.assert_allclose(torch.stack(found), torch.stack(reference)[per_round - 1 :: per_round], atol=1e-6)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not():
    first = models_of(fr.method(fedseq(), local=Sgd(batch=8)), one_class_digits(3), 2)[-1]
    again = models_of(fr.method(fedseq(), local=Sgd(batch=8)), one_class_digits(3), 2)[-1]
    other = models_of(fr.method(fedseq(), local=Sgd(batch=8)), one_class_digits(4), 2)[-1]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
