"""Laws that hold for algebraic reasons, on quadratic clients with closed forms (no expected number is our own)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrelay import Federation, Sgd, Task, deployed, seeds, train
from fedrelay.algorithms import ALGORITHMS, fedavg, fedcyclic, fedseq
from fedrelay.data import Dirichlet, Natural, digits, optimum, quadratic, quadratic_of
from fedrelay.engines import Inline
from fedrelay.models import Mlp, Quadratic
from fedrelay.types import Algorithm

MATRICES = [np.diag([1.0, 4.0]), np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([[2.0, -0.5], [-0.5, 1.0]])]
CENTRES = [np.array([1.0, 0.0]), np.array([-1.0, 2.0]), np.array([3.0, -2.0])]
SIZES = (10, 20, 30)
FULL_STEPS = Sgd(steps=5, batch=0, lr=0.1)


def engine_on(source, model=None, *, clients=None, partition=None, seed=0) -> Inline:
    federation = Federation.split(source, partition or Natural(), clients, seed)
    return Inline(federation, Task.of(model or Quadratic(), federation), seed)


def models_of(algorithm: Algorithm, engine: Inline, rounds: int) -> list[torch.Tensor]:
    return [deployed(state) for state in train(algorithm, engine, rounds=rounds)]


def local_map(i: int) -> np.ndarray:
    """Five gradient steps of 0.1 map w to M (w - b) + b."""
    return np.linalg.matrix_power(np.eye(2) - 0.1 * MATRICES[i], 5)


@pytest.fixture
def three() -> Inline:
    return engine_on(quadratic_of(MATRICES, CENTRES, SIZES))


def test_fedavg_follows_its_closed_form_for_three_rounds(three):
    # expected values from the papers' formulas, computed in float64 outside this project
    expected = [(1.0334142708, -0.2288867187), (1.3810554452, -0.3183365854), (1.4978642814, -0.3539163972)]
    found = models_of(fedavg(local=FULL_STEPS, fraction=1.0), three, 3)
    np.testing.assert_allclose(torch.stack(found).numpy(), expected, atol=2e-6)


def test_fedavg_ends_at_its_known_biased_point_and_not_at_the_optimum(three):
    p = np.array(SIZES) / sum(SIZES)
    rest = [np.eye(2) - local_map(i) for i in range(3)]
    biased = np.linalg.solve(sum(p[i] * rest[i] for i in range(3)), sum(p[i] * rest[i] @ CENTRES[i] for i in range(3)))
    np.testing.assert_allclose(biased, (1.5567242189, -0.3784838544), atol=1e-9)
    found = models_of(fedavg(local=FULL_STEPS, fraction=1.0), three, 60)[-1].numpy()
    np.testing.assert_allclose(found, biased, atol=1e-5)
    assert np.abs(found - optimum(MATRICES, CENTRES, p)).max() > 0.05


def test_a_chain_is_the_composition_of_the_clients_maps(three):
    w = np.zeros(2)
    found = models_of(fedcyclic(local=FULL_STEPS, fraction=1.0), three, 4)[-1]
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
    alone = models_of(fedavg(local=local, fraction=fraction), one_class_digits(), 4)
    grouped = models_of(fedseq(local=local, fraction=fraction, max_clients=1), one_class_digits(), 4)
    assert all(torch.equal(a, b) for a, b in zip(alone, grouped, strict=True))
    assert not torch.equal(alone[0], alone[1])


@pytest.mark.parametrize("laps", [1, 2])
def test_one_group_of_all_is_fedcyclic_to_the_bit(laps):
    local = Sgd(batch=8, lr=0.05)
    ring = models_of(fedcyclic(local=local, fraction=1.0, laps=laps), one_class_digits(), 3)
    one = models_of(fedseq(local=local, fraction=1.0, max_clients=20, laps=laps), one_class_digits(), 3)
    assert all(torch.equal(a, b) for a, b in zip(ring, one, strict=True))


def test_on_equal_quadratic_clients_parallel_methods_agree_with_one_client_alone():
    engine = engine_on(quadratic(clients=6, dimension=3, spread=0.0, seed=1))
    alone = engine_on(quadratic(clients=1, dimension=3, spread=0.0, seed=1))
    reference = models_of(fedavg(local=FULL_STEPS, fraction=1.0), alone, 12)
    averaged = models_of(fedavg(local=FULL_STEPS, fraction=0.5), engine, 12)
    np.testing.assert_allclose(torch.stack(averaged), torch.stack(reference), atol=1e-6)
    # k clients in sequence make as much way in one round as one client in k rounds
    for algorithm, per_round in [
        (fedseq(local=FULL_STEPS, fraction=1.0, max_clients=3), 3),
        (fedcyclic(local=FULL_STEPS, fraction=1.0), 6),
    ]:
        found = models_of(algorithm, engine, 12 // per_round)
        np.testing.assert_allclose(torch.stack(found), torch.stack(reference)[per_round - 1 :: per_round], atol=1e-6)


NOT_ON_QUADRATICS = ("centralized", "fedgsp", "naivegsp_icg", "fedmmd", "fedfusion")  # they need classes or features

SLOWER = {
    "scaffold": ({"fraction": 1.0}, 40, 1e-5),
    "feddyn": ({"fraction": 1.0, "alpha": 2.0}, 60, 1e-5),
    "fedavgm": ({"momentum": 0.3}, 40, 1e-5),
    "naivegsp": ({"groups": 3}, 40, 1e-5),  # the default is more than there are clients
    "fedadagrad": ({"server_lr": 1.0}, 40, 1e-5),
    "fedadam": ({"server_lr": 0.1}, 100, 0.02),  # steps do not get shorter of themselves
    "fedyogi": ({"server_lr": 0.1}, 100, 0.02),
    "fedsam": ({"rho": 0.01}, 40, 0.01),  # the gradient is taken this far from the optimum
}
"""Settings, rounds and precision of those that need more than the default."""


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in NOT_ON_QUADRATICS])
def test_every_method_ends_at_the_common_optimum_of_equal_clients(name):
    engine = engine_on(quadratic(clients=6, dimension=3, spread=0.0, seed=1))
    settings, rounds, precision = SLOWER.get(name, ({}, 40, 1e-5))
    found = models_of(ALGORITHMS[name](local=FULL_STEPS, **settings), engine, rounds)[-1]
    row = engine.federation.client(0).examples.x[0]
    np.testing.assert_allclose(found, row[:3], atol=precision)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not():
    first = models_of(fedseq(local=Sgd(batch=8)), one_class_digits(3), 2)[-1]
    again = models_of(fedseq(local=Sgd(batch=8)), one_class_digits(3), 2)[-1]
    other = models_of(fedseq(local=Sgd(batch=8)), one_class_digits(4), 2)[-1]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
