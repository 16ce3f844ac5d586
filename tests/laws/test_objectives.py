"""Objectives and stateful methods on quadratic clients, where everything is known in closed form or by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from quadratics import (
    FEDAVG_ENDS_AT,
    FULL_STEPS,
    OPTIMUM,
    OPTIMUM_BY_SIZE,
    engine_on,
    models_of,
    three,
    two,
    visit_to,
)
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Change, Federation, Sgd, Task, advance, start
from fedrelay.algorithms import fedavg, feddyn, fedprox, fedsam, fedseq, fedseqinter, scaffold
from fedrelay.algorithms.feddyn import Dynamic
from fedrelay.algorithms.scaffold import Control
from fedrelay.data import Dirichlet, digits, quadratic
from fedrelay.engines import Inline
from fedrelay.merges import PlainMean
from fedrelay.models import Mlp, Own
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Visit
from fedrelay.visits import Force, Proximal, Sharpness
from fedrelay.visits.optimisers import plain_steps
from fedrelay.visits.terms import joined

ALL = {"local": FULL_STEPS, "fraction": 1.0}
TWO_STEPS = Sgd(steps=2, batch=0, lr=0.1)


def equal_fedavg(**settings):
    """FedAvg in which every client counts the same, which is what SCAFFOLD and FedDyn solve for."""
    return fr.method(fedavg(), **settings, merge=PlainMean())


# --- FedProx


def test_fedprox_follows_its_closed_form():
    # μ = 0.5, weights by size; expected values from the formulas, computed in float64 outside this project
    found = models_of(fr.method(fedprox(mu=0.5), **ALL), three(), 2)
    np.testing.assert_allclose(found, [(0.9390503125, -0.2080108333), (1.3115893882, -0.3014117654)], atol=2e-6)


def test_fedprox_without_a_pull_is_fedavg_to_the_bit():
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 20, 3)
    engine = Inline(federation, Task.of(Mlp(hidden=(16,)), federation), 3)
    local = Sgd(batch=8, lr=0.1, momentum=0.5)
    plain = models_of(fr.method(fedavg(), local=local, fraction=0.3), engine, 3)
    assert np.array_equal(plain, models_of(fr.method(fedprox(mu=0.0), local=local, fraction=0.3), engine, 3))
    assert not np.array_equal(plain, models_of(fr.method(fedprox(mu=0.1), local=local, fraction=0.3), engine, 3))


def test_in_a_chain_the_proximal_term_holds_to_the_previous_clients_model():
    # One step of 0.1 with μ = 1 from w = 0: nothing pulls at the first step of a visit, so a chain of single steps is
    # the same with and without μ. With two steps the second one of client 0 is 0.1 - 0.1 (-0.9 + 0.1) = 0.18, and
    # client 1, which received 0.18, makes 3 · 1.18 = 3.54 -> -0.174, then 3 · 0.826 - 0.174 - 0.18 = 2.124 -> -0.3864.
    engine = two()
    visit = visit_to(engine, 0)
    local = replace(TWO_STEPS, terms=(Proximal(1.0),))
    first, _, _ = local(Baton(torch.zeros(1)), visit)
    assert first.params.item() == pytest.approx(0.18)
    second, _, _ = local(first, replace(visit, client=engine.federation.client(1), hop=1))
    assert second.params.item() == pytest.approx(-0.3864)


# --- SCAFFOLD


def test_two_rounds_of_scaffold_by_hand():
    # η = 0.1, K = 2 steps, from 0; client 0 has the gradient w - 1, client 1 has 3 (w + 1).
    # Round 1, all variates 0. Client 0: 0 -> 0.1 -> 0.19, so c_0 = (0 - 0.19) / (2 · 0.1) = -0.95, the mean of its
    # gradients -1 and -0.9. Client 1: 0 -> -0.3 -> -0.51, so c_1 = 2.55, the mean of 3 and 2.1.
    # x = (0.19 - 0.51) / 2 = -0.16, c = (-0.95 + 2.55) / 2 = 0.8.
    # Round 2. Client 0 steps along -1.16 + 0.95 + 0.8 = 0.59 to -0.219, then along -1.219 + 1.75 = 0.531 to -0.2721;
    # c_0 = -0.95 - 0.8 + (-0.16 + 0.2721) / 0.2 = -1.1895, the mean of -1.16 and -1.219.
    # Client 1 steps along 2.52 - 2.55 + 0.8 = 0.77 to -0.237, then along 2.289 - 1.75 = 0.539 to -0.2909;
    # c_1 = 2.55 - 0.8 + (-0.16 + 0.2909) / 0.2 = 2.4045. x = -0.2815, c = 0.6075.
    engine, method = two(), fr.method(scaffold(), local=TWO_STEPS, fraction=1.0)
    state = advance(method, engine, start(method, engine))
    assert state.batons[0].params.item() == pytest.approx(-0.16)
    assert state.shared["control"].item() == pytest.approx(0.8)
    assert [engine.memories()[1][client]["control"].item() for client in (0, 1)] == pytest.approx([-0.95, 2.55])
    state = advance(method, engine, state)
    assert state.batons[0].params.item() == pytest.approx(-0.2815)
    assert state.shared["control"].item() == pytest.approx(0.6075)
    assert [engine.memories()[1][client]["control"].item() for client in (0, 1)] == pytest.approx([-1.1895, 2.4045])


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("II", [(0.7286672917, -0.0316744792), (1.0506065113, -0.0798209459), (1.1609537407, -0.1207540553)]),
        ("I", [(0.7286672917, -0.0316744792), (1.0808140714, -0.0914130344), (1.1677941371, -0.1335585201)]),
    ],
)
def test_scaffold_follows_its_closed_form_and_ends_at_the_optimum(option, expected):
    # expected values from the formulas, computed in float64 outside this project
    found = models_of(fr.method(scaffold(option=option), **ALL), three(), 80)
    np.testing.assert_allclose(found[:3], expected, atol=2e-6)
    np.testing.assert_allclose(found[-1], OPTIMUM, atol=1e-5)


def test_fedavg_ends_elsewhere():
    found = models_of(equal_fedavg(**ALL), three(), 40)[-1]
    np.testing.assert_allclose(found, FEDAVG_ENDS_AT, atol=1e-5)
    assert np.abs(found - OPTIMUM).max() > 0.08


def test_the_first_round_of_scaffold_is_fedavgs_to_the_bit():
    assert np.array_equal(
        models_of(fr.method(scaffold(), **ALL), three(), 1), models_of(equal_fedavg(**ALL), three(), 1)
    )


def test_a_server_step_of_two_goes_twice_as_far_in_the_first_round():
    once, twice = (models_of(fr.method(scaffold(server_lr=step), **ALL), three(), 1) for step in (1.0, 2.0))
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-6)


def test_option_one_takes_the_gradient_of_all_examples_at_the_received_model_without_dropout():
    # Softmax regression: the gradient of a row of weights is mean (p - [y is its class]) x, of its bias without the x.
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 10, 3).pooled()
    client = federation.client(0)
    assert client.size > 1024  # more than one batch of the pass
    task = Task.of(Own(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))), federation)
    received = torch.linspace(-0.1, 0.1, 650)
    visit = Visit(client, task, {}, {"control": torch.zeros(650)}, 1, 0, 0, Workspaces(task))
    _, memory, _ = Sgd(lr=0.1, terms=(Control("I"),))(Baton(received), visit)
    x, y = (part.numpy().astype(np.float64) for part in client.take(torch.arange(client.size), None))
    x, weights, bias = x.reshape(len(x), 64), received[:640].numpy().reshape(10, 64), received[640:].numpy()
    p = np.exp(x @ weights.T + bias)
    wrong = p / p.sum(1, keepdims=True) - (y[:, None] == np.arange(10))
    expected = np.concatenate([(wrong.T @ x / len(x)).ravel(), wrong.mean(0)])
    np.testing.assert_allclose(memory["control"], expected, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_scaffold_is_right_with_momentum_too(momentum):
    """(x - y) / (K η) would be the mean gradient times up to 1 / (1 - momentum): libraries that divide so diverge."""
    local = Sgd(steps=5, batch=0, lr=0.05, momentum=momentum)
    np.testing.assert_allclose(
        models_of(fr.method(scaffold(), local=local, fraction=1.0), three(), 60)[-1], OPTIMUM, atol=1e-3
    )


def test_plain_steps_add_up_the_weights_of_the_gradients():
    # Three steps at momentum ½: the first gradient moves the model by 1 + ½ + ¼, the second by 1 + ½, the third by 1.
    assert plain_steps(3, 0.5) == pytest.approx(1.75 + 1.5 + 1)
    assert plain_steps(7, 0.0) == 7


def test_the_first_control_variate_is_a_mean_of_gradients_with_momentum():
    # Client 0, momentum ½, η = 0.1, K = 2: gradients -1 at 0 and -0.9 at 0.1; velocity -1, then -1.4; y = 0.24.
    # The first gradient counts 1.5, the second 1: (-1.5 - 0.9) / 2.5 = -0.96 = -0.24 / (0.1 · 2.5).
    engine, method = two(), fr.method(scaffold(), local=replace(TWO_STEPS, momentum=0.5), fraction=1.0)
    advance(method, engine, start(method, engine))
    assert engine.memories()[1][0]["control"].item() == pytest.approx(-0.96)


@pytest.mark.parametrize("method", [scaffold, feddyn])
@pytest.mark.parametrize("grouped", [False, True])
def test_what_the_server_tracks_stays_the_mean_of_what_clients_keep(method, grouped):
    """Also when few take part, and along chains: c = mean c_i, h = mean g_i."""
    engine = engine_on(quadratic(clients=12, dimension=3, seed=5))
    algorithm = fr.method(method(), local=FULL_STEPS, fraction=0.25)
    if grouped:
        algorithm = fr.method(fedseq(max_clients=3), method(), local=FULL_STEPS, fraction=0.5)
    state = start(algorithm, engine)
    for _ in range(6):
        state = advance(algorithm, engine, state)
        key = algorithm.update.keeps[0]
        kept = [memory[key] for memory in engine.memories()[1].values()]
        tracked = state.shared["control"] if method is scaffold else state.server["h"]
        torch.testing.assert_close(tracked, torch.stack(kept).sum(0) / 12, atol=1e-5, rtol=1e-5)
    assert len(kept) < 12 or grouped


@pytest.mark.parametrize("method", [scaffold, feddyn])
def test_after_several_rounds_without_a_merge_the_server_has_counted_every_visit(method):
    """Groups hand models on for three rounds, so that clients are visited more than once between two merges."""
    engine = engine_on(quadratic(clients=12, dimension=3, seed=5))
    algorithm = fr.method(fedseqinter(max_clients=3, period=3), method(), local=FULL_STEPS, fraction=0.5)
    state = start(algorithm, engine)
    for round in range(1, 10):
        state = advance(algorithm, engine, state)
        vectors = [value for outcome in state.server["slots"].values() for r in outcome.reports for value in r.uplink]
        assert len(vectors) <= len(state.server["slots"])  # their sum alone is kept, however many were sent
        if round % 3 == 0:
            kept = [memory[algorithm.update.keeps[0]] for memory in engine.memories()[1].values()]
            tracked = state.shared["control"] if method is scaffold else state.server["merge"]["h"]
            torch.testing.assert_close(tracked, torch.stack(kept).sum(0) / 12, atol=1e-5, rtol=1e-5)


# --- FedDyn


def test_two_rounds_of_feddyn_by_hand():
    # α = 1, η = 0.1, K = 2 steps, from θ = 0; the gradient is L' - g + α (y - θ).
    # Round 1. Client 0: -1 -> 0.1, then -0.9 + 0.1 = -0.8 -> 0.18; g_0 = 0 - 0.18. Client 1: 3 -> -0.3, then
    # 2.1 - 0.3 = 1.8 -> -0.48; g_1 = 0.48. h = -½ (0.18 - 0.48) = 0.15, θ = -0.15 - 0.15 = -0.3.
    # Round 2. Client 0: -1.3 + 0.18 = -1.12 -> -0.188, then -1.188 + 0.18 + 0.112 = -0.896 -> -0.0984;
    # g_0 = -0.18 - 0.2016 = -0.3816. Client 1: 2.1 - 0.48 = 1.62 -> -0.462, then 1.614 - 0.48 - 0.162 = 0.972
    # -> -0.5592; g_1 = 0.48 + 0.2592 = 0.7392. h = 0.15 - ½ (0.2016 - 0.2592) = 0.1788, θ = -0.3288 - 0.1788 = -0.5076.
    engine, method = two(), fr.method(feddyn(alpha=1.0), local=TWO_STEPS, fraction=1.0)
    state = advance(method, engine, start(method, engine))
    assert state.batons[0].params.item() == pytest.approx(-0.3)
    assert [engine.memories()[1][client]["gradient"].item() for client in (0, 1)] == pytest.approx([-0.18, 0.48])
    state = advance(method, engine, state)
    assert state.batons[0].params.item() == pytest.approx(-0.5076)
    assert state.server["h"].item() == pytest.approx(0.1788)
    assert [engine.memories()[1][client]["gradient"].item() for client in (0, 1)] == pytest.approx([-0.3816, 0.7392])


def test_feddyn_follows_its_closed_form_and_ends_at_the_optimum():
    # expected values from the formulas, computed in float64 outside this project
    found = models_of(fr.method(feddyn(alpha=0.5), **ALL), three(), 100)
    expected = [(1.3242033333, -0.0580445833), (1.6308059035, -0.1036660601), (1.4724470373, -0.1242034365)]
    np.testing.assert_allclose(found[:3], expected, atol=4e-6)
    np.testing.assert_allclose(found[-1], OPTIMUM, atol=2e-5)


def test_as_alpha_vanishes_the_clients_of_feddyn_train_as_fedavgs():
    """The server's step does not: it tends to the mean plus all mean changes, θ - h/α = mean(y) + Σ mean(y - θ)."""
    engine = three()
    plain = models_of(equal_fedavg(**ALL), engine, 1)[0]
    found = models_of(fr.method(feddyn(alpha=1e-4), **ALL), engine, 1)[0]
    np.testing.assert_allclose(found, 2 * plain, atol=2e-4)  # from θ = 0: mean(y) + mean(y - 0)
    far = models_of(fr.method(feddyn(alpha=0.5), **ALL), engine, 1)[0]
    assert np.abs(far - 2 * plain).max() > 0.05


def test_without_its_linear_term_feddyn_keeps_nothing_and_misses_the_optimum():
    engine, method = three(), fr.method(feddyn(alpha=0.5, linear=False), **ALL)
    found = models_of(method, engine, 60)[-1]
    assert engine.memories()[1] == {}
    assert np.abs(found - OPTIMUM).max() > 0.01


# --- chains


@pytest.mark.parametrize("change", [scaffold(), feddyn(alpha=2.0)], ids=["scaffold", "feddyn"])
@pytest.mark.parametrize("max_clients", [2, 3])
def test_along_chains_scaffold_and_feddyn_reach_the_optimum_too(change, max_clients):
    both = fr.method(fedseq(max_clients=max_clients), change, **ALL)
    np.testing.assert_allclose(models_of(both, three(), 80)[-1], OPTIMUM, atol=1e-3)
    alone = models_of(fr.method(fedseq(max_clients=max_clients), **ALL), three(), 25)[-1]
    assert np.abs(alone - OPTIMUM).max() > 0.05
    assert np.abs(alone - OPTIMUM_BY_SIZE).max() > 0.05


# --- SAM


def test_a_step_of_sam_by_hand():
    # f = ½ (w - 1)', from 0 with ρ = 0.5: the gradient -1 points to -0.5 uphill, where it is -1.5; one step of 0.1
    # leads to 0.15. In two dimensions the step uphill is ρ g / ‖g‖: for A = diag(1, 4), b = (1, 0), w = (0, 1) the
    # gradient is (-1, 4), ‖g‖ = √17; uphill is (-0.5/√17, 1 + 2/√17), with gradient (-1 - 0.5/√17, 4 + 8/√17).
    engine = two()
    once = Sgd(steps=1, batch=0, lr=0.1, terms=(Sharpness(0.5),))
    assert once(Baton(torch.zeros(1)), visit_to(engine))[0].params.item() == pytest.approx(0.15)
    found, _, report = once(Baton(torch.tensor([0.0, 1.0])), visit_to(three()))
    expected = [0.1 + 0.05 / 17**0.5, 1 - 0.4 - 0.8 / 17**0.5]
    assert found.params.tolist() == pytest.approx(expected, abs=1e-6)
    assert report.metrics["loss"] == pytest.approx(0.5 * (1 + 4))  # at the weights themselves, not uphill


def test_fedsam_of_radius_zero_is_fedavg_to_the_bit():
    assert np.array_equal(
        models_of(fr.method(fedsam(rho=0.0), **ALL), three(), 3), models_of(fr.method(fedavg(), **ALL), three(), 3)
    )
    assert not np.array_equal(
        models_of(fr.method(fedsam(rho=0.1), **ALL), three(), 3), models_of(fr.method(fedavg(), **ALL), three(), 3)
    )


# --- forces


def test_forces_add_up():
    weights, gradient = torch.tensor([1.0, 2.0]), torch.zeros(2)
    one = Force(2.0, torch.tensor([0.0, 1.0]), torch.tensor([5.0, 5.0]))
    other = Force(3.0, torch.tensor([1.0, -1.0]), torch.tensor([0.0, 1.0]))
    (one + other).act(gradient, weights)
    # 2 (w - a) + 3 (w - b) + shifts = (2 + 0 + 5, 2 + 9 + 6)
    assert gradient.tolist() == pytest.approx([7, 17])
    alone = torch.zeros(2)
    (Force(shift=torch.ones(2)) + Force(2.0, torch.zeros(2))).act(alone, weights)
    assert alone.tolist() == [3, 5]


def test_a_stack_of_models_is_pulled_row_by_row():
    weights, gradient = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2, 2)
    Force(2.0, torch.tensor([[1.0, 1.0], [1.0, 1.0]]), torch.ones(2, 2)).act(gradient, weights)
    assert gradient.tolist() == [[1, 3], [5, 7]]


def test_a_force_that_does_nothing_says_so():
    assert not Force().acts
    assert not Force(0.0, torch.ones(2)).acts
    assert Force(0.1, torch.ones(2)).acts
    assert Force(shift=torch.ones(2)).acts


def test_two_terms_act_as_their_sum_and_keep_both_memories():
    # SCAFFOLD and FedDyn's client half, from 0 with α = 1, η = 0.1, K = 2: in round 1 everything remembered is 0, so
    # client 0 goes -1 -> 0.1, then -0.9 + 0.1 = -0.8 -> 0.18 as in FedDyn. What it keeps: c_0 = -0.18 / (2 · 0.1), the
    # mean of all that pulled, and g_0 = -0.18. Client 1 goes 3 -> -0.3, then 2.1 - 0.3 = 1.8 -> -0.48; x = -0.15, and
    # c = (-0.9 + 2.4) / 2 = 0.75. In round 2 client 0 follows -1.15 + (c - c_0) - g_0 = -1.15 + 1.65 + 0.18 = 0.68 to
    # -0.218, then -1.218 + 1.83 - 0.068 = 0.544 to -0.2724.
    engine = two()
    both = fr.method(scaffold(), Change(terms=feddyn(alpha=1.0).terms), local=TWO_STEPS, fraction=1.0)
    assert both.update.terms == (Control(), Dynamic(1.0))
    assert both.update.keeps == ("control", "gradient")
    state = advance(both, engine, start(both, engine))
    memories = engine.memories()[1]
    assert set(memories[0]) == {"control", "gradient"}
    assert [memories[client]["control"].item() for client in (0, 1)] == pytest.approx([-0.9, 2.4])
    assert [memories[client]["gradient"].item() for client in (0, 1)] == pytest.approx([-0.18, 0.48])
    visit = replace(visit_to(engine, 0), memory=memories[0], shared=state.shared, round=2)
    assert both.update(state.batons[0], visit)[0].params.item() == pytest.approx(-0.2724)


def test_the_same_term_twice_counts_once():
    assert joined(Proximal(0.1), Proximal(0.1)) == (Proximal(0.1),)
    assert joined() == ()
    assert joined(Proximal(0.1), Proximal(0.2)) == (Proximal(0.1), Proximal(0.2))
    assert replace(TWO_STEPS, terms=(Proximal(0.1), Proximal(0.1))).terms == (Proximal(0.1),)


def test_two_terms_that_would_keep_the_same_vector_are_refused():
    with pytest.raises(BadInput, match="two terms would both keep gradient in the clients' memories"):
        joined(Dynamic(0.1), Dynamic(0.2))


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (fedprox, {"mu": -0.1}, "mu must be at least 0, not -0.1"),
        (feddyn, {"alpha": 0.0}, "alpha must be above 0, not 0"),
        (scaffold, {"option": "III"}, "option must be I or II, not 'III'"),
        (scaffold, {"server_lr": 0.0}, "server_lr must be above 0"),
        (fedsam, {"rho": -1.0}, "rho must be at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(method, settings, message):
    with pytest.raises(BadInput, match=message):
        method(**settings)


def test_a_radius_that_is_said_twice_is_refused():
    message = r"two terms decide the radius of SAM, Sharpness\(rho=0.2\) and Sharpness\(rho=0.1\): only one"
    with pytest.raises(BadInput, match=message):
        fr.method(fedsam(rho=0.1), local=Sgd(terms=(Sharpness(0.2),)))
