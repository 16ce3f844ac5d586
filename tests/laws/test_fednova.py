"""FedNova on quadratic clients that take unequal numbers of steps, after the equations of its paper (Wang et al. 2020).

A client of 10 · k examples in batches of 10 takes k steps an epoch, each along its whole gradient, because all its
examples are the same. Everything that is expected is computed here, in float64.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from quadratics import CENTRES, FULL_STEPS, MATRICES, OPTIMUM_BY_SIZE, SIZES, engine_on, models_of, three, visit_to

import fedrelay as fr
from fedrelay import Adam, AdamW, BadInput, Sgd, advance, deployed, seeds, start
from fedrelay.algorithms import fedavg, fedcyclic, fednova, fedprox, fedseq, fedseqinter
from fedrelay.algorithms.fednova import CountSteps, NormalisedMean
from fedrelay.data import optimum, quadratic_of
from fedrelay.types import Baton, Chain, Outcome, Report, State

UNEQUAL = Sgd(epochs=2, batch=10, lr=0.1)
STEPS = np.array([2.0, 4.0, 6.0])
SHARES = np.array(SIZES) / sum(SIZES)
EVERYBODY = {"local": UNEQUAL, "fraction": 1.0}


def visited(client: int, x: np.ndarray, *, lr: float = 0.1, momentum: float = 0.0, epochs: int = 2) -> np.ndarray:
    """The client's model: x ← x - lr · v with v ← momentum · v + A (x - b), step by step."""
    velocity = np.zeros_like(x)
    for _ in range(epochs * SIZES[client] // 10):
        velocity = momentum * velocity + MATRICES[client] @ (x - CENTRES[client])
        x = x - lr * velocity
    return x


def nova(x: np.ndarray, ends: list[np.ndarray], shares: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """x + (Σ p_i τ_i) Σ p_i d_i with d_i = (y_i - x) / τ_i."""
    ways = [(end - x) / taken for end, taken in zip(ends, steps, strict=True)]
    return x + (shares @ steps) * sum(p * way for p, way in zip(shares, ways, strict=True))


def rest(factors: np.ndarray, *, lr: float) -> np.ndarray:
    """Where Σ f_i (y_i - x) = 0: since y_i - x = (M_i - 1) (x - b_i) with M_i = (1 - lr A_i)^τ_i, this is linear."""
    moves = [
        f * (np.eye(2) - np.linalg.matrix_power(np.eye(2) - lr * a, int(taken)))
        for f, a, taken in zip(factors, MATRICES, STEPS, strict=True)
    ]
    return np.linalg.solve(sum(moves), sum(move @ b for move, b in zip(moves, CENTRES, strict=True)))


def test_fednova_follows_its_closed_form():
    found, x = models_of(fr.method(fednova(), **EVERYBODY), three(), 4), np.zeros(2)
    for model in found:
        x = nova(x, [visited(client, x) for client in range(3)], SHARES, STEPS)
        np.testing.assert_allclose(model, x, atol=2e-6)


def test_fednova_ends_where_the_mean_way_per_step_vanishes_and_fedavg_elsewhere():
    ours, theirs = rest(SHARES / STEPS, lr=0.1), rest(SHARES, lr=0.1)
    np.testing.assert_allclose(models_of(fr.method(fednova(), **EVERYBODY), three(), 60)[-1], ours, atol=1e-5)
    np.testing.assert_allclose(models_of(fr.method(fedavg(), **EVERYBODY), three(), 60)[-1], theirs, atol=1e-5)
    assert np.abs(ours - theirs).max() > 0.1


def test_with_small_steps_fednova_rests_at_the_optimum_of_everybody_and_fedavg_where_long_work_counts_more():
    """(Theorem 1 of the paper) FedAvg solves for weights p_i τ_i; FedNova for the p_i that were asked for."""
    lr = 0.005
    settings = {"local": replace(UNEQUAL, lr=lr), "fraction": 1.0}
    surrogate = optimum(MATRICES, CENTRES, SHARES * STEPS)
    ours = models_of(fr.method(fednova(), **settings), three(), 500)[-1]
    theirs = models_of(fr.method(fedavg(), **settings), three(), 500)[-1]
    np.testing.assert_allclose(ours, OPTIMUM_BY_SIZE, atol=0.02)
    np.testing.assert_allclose(theirs, surrogate, atol=0.02)
    assert np.abs(surrogate - OPTIMUM_BY_SIZE).max() > 0.2
    # what is left is of the order of the step: half the step, half the distance
    whole, half = (np.abs(rest(SHARES / STEPS, lr=rate) - OPTIMUM_BY_SIZE).max() for rate in (lr, lr / 2))
    assert half == pytest.approx(whole / 2, rel=0.02)
    np.testing.assert_allclose(ours, rest(SHARES / STEPS, lr=lr), atol=1e-4)


def test_with_equal_steps_fednova_is_fedavg():
    settings = {"local": FULL_STEPS, "fraction": 1.0}
    ours, theirs = (models_of(fr.method(change, **settings), three(), 5) for change in (fednova(), fedavg()))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    unequal = (models_of(fr.method(change, **EVERYBODY), three(), 1) for change in (fednova(), fedavg()))
    assert np.abs(next(unequal) - next(unequal)).max() > 0.1


def test_the_client_trains_as_in_fedavg_to_the_bit_and_says_how_many_steps_it_took():
    engine = three()
    for client, steps in enumerate(STEPS):
        visit = visit_to(engine, client)
        plain, _, _ = UNEQUAL(Baton(torch.ones(2)), visit)
        after, memory, report = fr.method(fednova(), **EVERYBODY).update(Baton(torch.ones(2)), visit)
        assert torch.equal(plain.params, after.params)
        assert report.uplink == {"steps": steps}
        assert memory == {}


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_momentum_counts_the_l1_norm_of_how_much_each_gradient_moved(momentum):
    """(Section 3 of the paper) ‖a‖₁ = (τ - ρ (1 - ρ^τ) / (1 - ρ)) / (1 - ρ)."""
    lengths = (STEPS - momentum * (1 - momentum**STEPS) / (1 - momentum)) / (1 - momentum)
    local = replace(UNEQUAL, momentum=momentum, lr=0.05)
    engine, algorithm = three(), fr.method(fednova(), local=local, fraction=1.0)
    for client, length in enumerate(lengths):
        _, _, report = algorithm.update(Baton(torch.zeros(2)), visit_to(engine, client))
        assert report.uplink["steps"] == pytest.approx(length)
    x = np.zeros(2)
    for model in models_of(algorithm, engine, 3):
        ends = [visited(client, x, lr=0.05, momentum=momentum) for client in range(3)]
        x = nova(x, ends, SHARES, lengths)
        np.testing.assert_allclose(model, x, atol=3e-6)


@pytest.mark.parametrize("local", [Adam(), AdamW()])
def test_steps_that_are_no_sums_of_gradients_are_refused(local):
    message = rf"CountSteps\(\) reads gradients off the way a model went, which {type(local).__name__} scales"
    with pytest.raises(BadInput, match=message):
        fr.method(fednova(), local=local)
    with pytest.raises(BadInput, match="use SGD"):
        replace(local, terms=(CountSteps(),))


def test_along_a_chain_the_steps_of_all_its_clients_count():
    algorithm, engine = fr.method(fedseq(max_clients=2), fednova(), **EVERYBODY), three()
    state, x = start(algorithm, engine), np.zeros(2)
    for round in range(1, 5):
        chains = algorithm.plan(state, seeds.rng(engine.seed, "plan", round)).chains
        assert sorted(len(chain.clients) for chain in chains) == [1, 2]
        ends, shares, steps = [], [], []
        for chain in chains:
            end = x
            for client in chain.clients:
                end = visited(client, end)
            ends.append(end)
            shares.append(sum(SHARES[client] for client in chain.clients))
            steps.append(sum(STEPS[client] for client in chain.clients))
        x = nova(x, ends, np.array(shares), np.array(steps))
        state = advance(algorithm, engine, state)
        np.testing.assert_allclose(deployed(state).params, x, atol=3e-6)


def test_where_models_are_merged_now_and_then_the_steps_since_the_last_merge_count():
    algorithm, engine = fr.method(fedseqinter(max_clients=1, period=2), fednova(), **EVERYBODY), three()
    state, x = start(algorithm, engine), np.zeros(2)
    ends, gathered, steps = [x] * 3, np.zeros(3), np.zeros(3)
    for round in range(1, 3):
        for chain in algorithm.plan(state, seeds.rng(engine.seed, "plan", round)).chains:
            (client,) = chain.clients
            ends[chain.slot] = visited(client, ends[chain.slot])
            gathered[chain.slot] += SIZES[client]
            steps[chain.slot] += STEPS[client]
        state = advance(algorithm, engine, state)
    assert len(set(steps)) > 1
    assert len(state.batons) == 1
    x = nova(x, ends, gathered / gathered.sum(), steps)
    np.testing.assert_allclose(deployed(state).params, x, atol=3e-6)


def test_one_chain_is_what_it_would_be_without_fednova():
    ours, theirs = (
        models_of(fr.method(fedcyclic(), change, **EVERYBODY), three(), 3) for change in (fednova(), fedavg())
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_fednova_goes_with_the_spring_of_fedprox():
    """The spring is part of a client's gradient, so it is normalised with it: one round by hand, in one dimension."""
    # μ = 1, η = 0.1. Client 0 (f = ½ (w - 1)², 1 step): 0 -> 0.1. Client 1 (f = 3/2 (w + 1)², 2 steps): 3 -> -0.3, then
    # 2.1 - 0.3 = 1.8 -> -0.48. p = (1/3, 2/3): Σ p τ = 5/3, Σ p d = 0.1 / 3 - 0.48 / 2 · 2/3 = -0.38 / 3.
    engine = engine_on(quadratic_of([[[1.0]], [[3.0]]], [[1.0], [-1.0]], [1, 2]))
    both = fr.method(fedprox(mu=1.0), fednova(), local=Sgd(batch=1, lr=0.1), fraction=1.0)
    assert models_of(both, engine, 1).item() == pytest.approx(5 / 3 * -0.38 / 3)


def test_buffers_are_no_weights_and_only_averaged():
    """A variance that was normalised like a weight could become negative."""

    def outcome(client: int, weight: float, value: float, variance: float) -> Outcome:
        chain = Chain(Baton(torch.tensor([0.0, 1.0])), (client,))
        report = Report(client, 1, uplink={"steps": 1.0 if client else 9.0})
        return Outcome(chain, Baton(torch.tensor([value, variance]), weight), (report,))

    state = State(0, (Baton(torch.tensor([0.0, 1.0])),), {}, {}, {}, trainable=1)
    after = NormalisedMean()(state, [outcome(0, 1.0, 9.0, 1.0), outcome(1, 3.0, 1.0, 0.1)])
    # p = (¼, ¾): Σ p τ = 3, Σ p d = ¼ · 1 + ¾ · 1 = 1; the variance is ¼ · 1 + ¾ · 0.1
    assert after.batons[0].params.tolist() == pytest.approx([3.0, 0.325])
