"""The account of privacy against closed forms, tables and other accountants."""

from __future__ import annotations

import math

import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedrelay.visits.accounting import (
    epsilon_of_steps,
    epsilon_of_visits,
    gaussian_delta,
    gaussian_epsilon,
    noise_for_steps,
    noise_for_visits,
    worst_epsilon,
)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 1.0), (1.0, 1.0), (4.0, 2.0), (0.5, 0.3)])
def test_delta_is_the_hockey_stick_divergence_of_two_gaussians(epsilon, mu):
    # ∫ max(p - e^ε q, 0) with p = N(mu, 1), q = N(0, 1): p exceeds e^ε q above x = ε / mu + mu / 2.
    from_here = epsilon / mu + mu / 2
    found, _ = quad(lambda x: norm.pdf(x - mu) - math.exp(epsilon) * norm.pdf(x), from_here, from_here + 40)
    assert gaussian_delta(epsilon, mu) == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize(
    ("noise", "epsilons"),
    [(1, (4.38, 17.9, 91.8)), (5, (0.73, 2.59, 10.0)), (10, (0.34, 1.20, 4.38)), (20, (0.16, 0.56, 1.99))],
)
def test_visits_cost_what_the_table_of_another_accountant_says(noise, epsilons):
    # dp-accounting 0.6, delta = 1e-5, for 1, 10 and 100 visits
    for visits, epsilon in zip((1, 10, 100), epsilons, strict=True):
        assert epsilon_of_visits(noise, visits, 1e-5) == pytest.approx(epsilon, abs=0.0051 if epsilon < 10 else 0.051)


@pytest.mark.parametrize(
    ("noise", "visits", "epsilon"),
    [(1, 1, 2.0), (1, 10, 6.1), (1, 100, 25.9), (2, 1, 0.59), (2, 10, 2.0), (2, 100, 8.1)],
)
def test_steps_cost_what_the_table_of_another_accountant_says(noise, visits, epsilon):
    # dp-accounting 0.6 (privacy loss distributions): rate 0.16, 6 steps a visit, delta = 1e-3; ours is above by 0.01
    near = 0.051 if epsilon > 1 else 0.011
    assert epsilon_of_steps(noise, 0.16, 6 * visits, 1e-3) == pytest.approx(epsilon, abs=near)


@pytest.mark.parametrize(("rate", "steps", "noise", "epsilon"), [(0.01, 1000, 1, 1.83), (0.1, 100, 2, 2.34)])
def test_poisson_sampling_costs_what_the_table_of_another_accountant_says(rate, steps, noise, epsilon):
    assert epsilon_of_steps(noise, rate, steps, 1e-5) == pytest.approx(epsilon, abs=0.02)


def test_steps_on_all_examples_are_visits():
    assert epsilon_of_steps(3.0, 1.0, 7, 1e-5) == epsilon_of_visits(3.0, 7, 1e-5)


def test_no_release_costs_nothing_and_no_noise_promises_nothing():
    assert epsilon_of_visits(1.0, 0, 1e-5) == epsilon_of_steps(1.0, 0.1, 0, 1e-5) == 0
    assert epsilon_of_visits(0.0, 1, 1e-5) == epsilon_of_steps(0.0, 0.1, 1, 1e-5) == math.inf
    assert gaussian_epsilon(1e3, 1e-5) == math.inf


@pytest.mark.parametrize(("epsilon", "visits"), [(0.5, 1), (1.0, 10), (8.0, 100)])
def test_the_noise_for_an_epsilon_gives_it(epsilon, visits):
    assert epsilon_of_visits(noise_for_visits(epsilon, visits, 1e-5), visits, 1e-5) == pytest.approx(epsilon, rel=1e-4)


def test_the_noise_for_an_epsilon_of_steps_gives_it_and_hardly_less_would_not():
    noise = noise_for_steps(2.0, 0.16, 60, 1e-3)
    assert noise == pytest.approx(2.0, rel=0.03)  # the table: 10 visits with noise 2 cost 2.0
    assert epsilon_of_steps(noise, 0.16, 60, 1e-3) <= 2.0 < epsilon_of_steps(0.97 * noise, 0.16, 60, 1e-3)


def test_the_worst_client_is_found_among_all():
    clients = {(0.16, 60), (0.16, 6), (0.08, 60), (0.5, 2)}
    each = [epsilon_of_steps(1.0, *one, 1e-3) for one in clients]
    assert worst_epsilon(1.0, clients, 1e-3) == max(each)
