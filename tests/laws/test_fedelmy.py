"""FedELMY and sequential training: closed forms on three quadratic clients, and laws.

The figures were computed outside this project, in float64, from the formulas of the paper (and, where it says so, of
the code that its authors published).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import quadratics
import torch

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, config, deployed, train
from fedrelay.algorithms import dfedavgm, elmy, fedadam, fedcyclic, fedelmy, fedseq, maecho, scaffold, sequential
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline
from fedrelay.errors import SAID
from fedrelay.models import Mlp, MlpNorm
from fedrelay.types import Baton
from fedrelay.visits.diversity import MEASURES, Diversity, Pool, factors, measured, scale

STEPS = quadratics.FULL_STEPS
PLAIN = {"alpha": 0.0, "beta": 0.0, "warm_up": 0, "order": "given"}


def shots(rounds: int, **settings) -> np.ndarray:
    """The model of the three quadratic clients after every shot."""
    return quadratics.models_of(fr.method(fedelmy(**PLAIN | settings), local=STEPS), quadratics.three(), rounds)


# --- the pool alone


@pytest.mark.parametrize(
    ("models", "first", "second", "end"),
    [
        (1, (1.0820125764, -0.1751551293), (1.4270426294, -0.2494450631), (1.5888778840, -0.2955238080)),
        (2, (1.5488460134, -0.3344058919), (1.7919037141, -0.4132046426), (1.8372147570, -0.4329605265)),
        (5, (2.1371049478, -0.6313106753), (2.2315794122, -0.6858573423), (2.2359279517, -0.6894962911)),
    ],
)
def test_the_pool_alone_has_its_closed_form_after_one_shot_two_and_many(models, first, second, end):
    found = shots(60, models=models)
    np.testing.assert_allclose(found[[0, 1, -1]], [first, second, end], atol=2e-6)


def test_the_model_after_every_client_has_its_closed_form():
    engine = quadratics.three()
    work = fr.method(fedelmy(**PLAIN | {"models": 1}), local=STEPS).update
    expected = [(0.2047550000, 0.0), (-0.1070779800, 0.5272071181), (1.0820125764, -0.1751551293)]
    baton = Baton(torch.zeros(2))
    for client, model in enumerate(expected):
        baton, _, report = work(baton, quadratics.visit_to(engine, client))
        np.testing.assert_allclose(baton.params, model, atol=1e-6)
        assert report.examples == 5 * quadratics.SIZES[client]


def test_the_first_client_warms_up_the_initial_model_and_only_in_the_first_shot():
    found = shots(2, models=1, warm_up=5)
    np.testing.assert_allclose(found[0], (1.2122381427, -0.1837606172), atol=1e-6)
    again = quadratics.three()
    state = next(train(fr.method(fedelmy(**PLAIN | {"models": 1}), local=STEPS), again, rounds=1))
    warm = replace(state, batons=(Baton(torch.from_numpy(found[0])),))
    method = fr.method(fedelmy(**PLAIN | {"models": 1}), local=STEPS)
    *_, second = train(method, again, rounds=2, state=warm)
    np.testing.assert_allclose(found[1], deployed(second).params, atol=1e-7)


def test_shots_are_the_rounds_of_a_run_that_does_not_say_its_own():
    tables = {"data": {"name": "digits", "clients": 4}, "model": {"name": "logistic"}, "engine": {"name": "inline"}}
    few = {**tables, "algorithm": {"name": "fedelmy", "shots": 3}}
    assert [config.build(one).tables["rounds"] for one in (few, {**few, "rounds": 2})] == [3, 2]
    with pytest.raises(BadInput, match="shots must be at least 1, not 0"):
        fedelmy(shots=0)


def test_few_shots_begin_with_one_shot():
    assert np.array_equal(shots(1, models=2, warm_up=3)[0], shots(3, models=2, warm_up=3)[0])


def test_in_parallel_the_result_is_the_plain_mean_of_the_means_of_all_pools():
    np.testing.assert_allclose(shots(1, models=1, parallel=True)[0], (0.3643336458, -0.0158372396), atol=1e-6)


def test_in_parallel_everybody_begins_with_a_random_model_of_its_own_and_counts_the_same():
    engine = digits_of(3)
    method = fr.method(fedelmy(models=2, warm_up=1, parallel=True), local=Sgd(lr=0.05))
    (state,) = train(method, engine, rounds=1)
    means = []
    for client in range(3):
        visit = quadratics.visit_to(engine, client)
        own, _, _ = method.update(Baton(torch.full((engine.task.layout.size,), 7.0)), replace(visit, seed=engine.seed))
        means.append(own.params)  # what it was sent makes no difference
    torch.testing.assert_close(deployed(state).params, torch.stack(means).mean(0))
    assert not torch.allclose(means[0], means[1], atol=0.1)


# --- distances


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"apart": "squared", "scaling": "off"}, (1.0242135557, -0.1605132770)),
        ({"apart": "squared", "scaling": "off", "alpha": 1.0}, (1.3131246818, -0.2481057946)),
        ({"apart": "squared", "scaling": "published"}, (1.4927934997, -0.4550330506)),
        ({"apart": "norm", "scaling": "each"}, (1.5592470975, -0.4325166930)),
    ],
)
def test_distances_act_as_in_the_paper_and_as_in_the_published_code(settings, expected):
    np.testing.assert_allclose(shots(1, **{"models": 2, "alpha": 0.06, "beta": 1.0} | settings)[0], expected, atol=2e-6)


@pytest.mark.parametrize(
    ("loss", "distance", "scaled"),
    [
        (6.02, 45, 0.45),
        (6.02, 1, 0.1),
        (6.02, 0.3, 0.3),
        (0.5, 45, 0.045),
        (0.02, 45, 0.0045),
        (9.99, 100, 0.1),
        (10, 100, 1),
    ],
)
def test_distances_are_scaled_to_an_order_of_magnitude_below_the_loss(loss, distance, scaled):
    assert scale(loss, distance) * distance == pytest.approx(scaled)
    assert factors(loss, distance, 1e-9, "each") == (pytest.approx(scaled / distance), 1.0)
    assert factors(loss, 7.0, distance, "published") == (pytest.approx(scaled / distance),) * 2


@pytest.mark.parametrize(("apart", "expected"), [("squared", 10.0), ("norm", 10**0.5), ("l1", 4.0)])
def test_distances_of_a_pool_of_two_by_hand(apart, expected):
    models, weights = [torch.tensor([0.0, 0.0]), torch.tensor([2.0, 0.0])], torch.tensor([1.0, 3.0])
    assert measured(models, weights, apart) == pytest.approx([expected, expected])
    pool = Pool.of(models, torch.tensor([1.0, 0.0]), apart)
    found = measured(pool.models, weights, apart)
    assert sum(share * far for share, far in zip(pool.shares, found, strict=True)) + pool.spread == pytest.approx(
        expected
    )
    assert found[0] == pytest.approx(expected)


def test_the_cosine_of_a_right_angle_is_a_distance_of_one():
    assert measured([torch.tensor([1.0, 0.0])], torch.tensor([0.0, 5.0]), "cosine") == pytest.approx([1.0])
    assert measured([torch.zeros(2)], torch.tensor([0.0, 5.0]), "cosine") == [0.0]


@pytest.mark.parametrize("apart", MEASURES)
@pytest.mark.parametrize("scaling", ["each", "published", "off"])
def test_the_gradient_written_out_is_that_of_automatic_differentiation(apart, scaling):
    draw = torch.Generator().manual_seed(1)
    trainable, buffers = 70_000, 5  # more than a piece
    models = torch.randn(4, trainable + buffers, generator=draw)
    start, weights = models.mean(0), torch.randn(trainable, generator=draw)
    engine = digits_of(3)
    visit = replace(quadratics.visit_to(engine), pool=models)
    layout = replace(visit.task.layout, trainable=trainable)
    visit = replace(visit, task=Laid(layout))
    term, gradient = Diversity(0.3, 0.7, apart, scaling), torch.zeros(trainable)
    (guide,) = term.begin(start, visit).guides
    guide(gradient, weights, 2.5)

    own = weights.double().requires_grad_()
    gaps = own - models[:, :trainable].double()
    far = {
        "norm": gaps.norm(dim=1),
        "squared": gaps.square().sum(1),
        "l1": gaps.abs().sum(1),
        "cosine": 1 - torch.cosine_similarity(own[None], models[:, :trainable].double()),
    }[apart]
    d1, d2 = far.mean(), far[0]
    away, near = factors(2.5, float(d1.detach()), float(d2.detach()), scaling)
    (-0.3 * away * d1 + 0.7 * near * d2).backward()
    torch.testing.assert_close(gradient.double(), own.grad, rtol=1e-4, atol=1e-7)


class Laid:
    """A task of which only the layout is looked at."""

    def __init__(self, layout) -> None:
        self.layout = layout


def test_weights_that_have_not_moved_get_exactly_no_gradient():
    models = torch.randn(3, 100)
    weights = models[0].clone()
    weights[::2] += 1
    gradient = torch.zeros(100)
    visit = replace(quadratics.visit_to(digits_of(3)), pool=models[:1])
    visit = replace(visit, task=Laid(replace(visit.task.layout, trainable=100)))
    (guide,) = Diversity(0.5, 1.0).begin(models[0], visit).guides
    guide(gradient, weights, 1.0)
    assert not gradient[1::2].any()
    assert gradient[::2].all()


def test_both_distances_can_be_left_out_and_then_the_term_costs_nothing():
    visit = quadratics.visit_to(quadratics.three())
    assert not Diversity(0.0, 0.0).begin(torch.zeros(2), visit).guides
    both, d1, d2, none = (
        shots(1, models=3, alpha=alpha, beta=beta)[0]
        for alpha, beta in ((0.5, 0.5), (0.5, 0.0), (0.0, 0.5), (0.0, 0.0))
    )
    assert len({tuple(model) for model in (both, d1, d2, none)}) == 4


@pytest.mark.parametrize("loss", [0.0, float("nan"), float("inf")])
def test_a_batch_whose_loss_has_no_logarithm_is_a_step_without_distances_and_is_told(loss, caplog):
    SAID.clear()
    assert factors(loss, 1.0, 1.0, "each") == (0.0, 0.0)
    assert "to which no distance can be scaled" in caplog.text


def test_a_run_whose_losses_are_exactly_zero_goes_on():
    """The published code stops in the logarithm; here clients that are at their optimum stay there."""
    source = fr.data.quadratic_of([np.eye(2)] * 2, [np.zeros(2)] * 2, (3, 3))
    found = quadratics.models_of(fr.method(fedelmy(models=2), local=STEPS), quadratics.engine_on(source), 1)
    assert not found.any()


# --- one pass over real clients


def digits_of(clients: int, model=Mlp(hidden=(8,)), seed: int = 1) -> Inline:
    federation = Federation.split(digits(), Dirichlet(alpha=0.5), clients, seed)
    return Inline(federation, Task.of(model, federation), seed)


def test_a_pool_of_one_visit_is_the_mean_of_its_models_running_statistics_too():
    engine = digits_of(3, MlpNorm(hidden=(8,)))
    local, visit = Sgd(lr=0.1), quadratics.visit_to(engine)
    work = fr.method(elmy(models=3), local=local).update
    start = Baton(engine.task.init(4))
    found, _, report = work(start, visit)
    pool = [start.params]
    for number in range(1, 4):
        here = replace(visit, pool=torch.stack(pool), part=number)
        trained, _, _ = work.work(Baton(torch.stack(pool).mean(0)), here)
        pool.append(trained.params)
    torch.testing.assert_close(found.params, torch.stack(pool).mean(0), rtol=0, atol=0)
    assert report.examples == 3 * visit.client.size
    buffers = slice(engine.task.layout.trainable, None)
    assert not torch.equal(found.params[buffers], start.params[buffers])
    assert len({tuple(model.tolist()) for model in pool}) == 4


def test_sequential_is_one_chain_of_everybody_and_each_keeps_its_best_epoch():
    engine, best = digits_of(5), Sgd(epochs=4, lr=0.2, keep="best", validation=0.2)
    (once,) = train(fr.method(sequential(), local=best), engine, rounds=1)
    (ring,) = train(fr.method(fedcyclic(), local=best, fraction=1.0), engine, rounds=1)
    assert torch.equal(deployed(once).params, deployed(ring).params)
    assert once.log.messages == {"server_to_client": 0, "client_to_server": 0, "client_to_client": 4}
    assert (once.log.chains, once.log.depth) == (1, 5)


def test_fedelmy_without_a_pool_to_speak_of_is_half_way_along_sequential():
    """One model, no distances: a client that receives m and trains it to w sends (m + w) / 2."""
    engine, local = digits_of(2), Sgd(lr=0.1, batch=0)
    pool = fr.method(fedelmy(**PLAIN | {"models": 1}), local=local).update
    start, visit = Baton(engine.task.init(1)), quadratics.visit_to(engine)
    alone, _, _ = local(start, visit)
    found, _, _ = pool(start, visit)
    torch.testing.assert_close(found.params, (start.params + alone.params) / 2)


@pytest.mark.parametrize("recipe", [sequential, fedelmy])
def test_so_many_shots_of_so_many_clients_are_one_message_less_than_visits(recipe):
    """FedELMY 2024, Section 3.4: N - 1 models are exchanged in one shot; so TN - 1 in T."""
    engine = quadratics.three()
    states = list(train(fr.method(recipe(order="given"), local=STEPS), engine, rounds=3))
    assert [state.log.messages["client_to_client"] for state in states] == [2, 3, 3]
    assert [sum(state.log.bytes.values()) for state in states] == [2 * 8, 3 * 8, 3 * 8]
    assert not any(state.log.messages["server_to_client"] for state in states)


def test_whoever_has_the_model_at_the_end_of_a_shot_need_not_send_it_to_itself():
    """In a random order the last client of a shot is now and then the first of the next."""
    states = list(train(fr.method(sequential(), local=STEPS), quadratics.three(), rounds=20))
    assert {state.log.messages["client_to_client"] for state in states} == {2, 3}


def test_in_parallel_everybody_sends_to_everybody_else():
    (state,) = train(fr.method(fedelmy(models=1, parallel=True), local=STEPS), quadratics.three(), rounds=1)
    assert state.log.messages == {"server_to_client": 0, "client_to_server": 0, "client_to_client": 6}


def test_pools_mixed_over_a_full_graph_are_the_parallel_method_to_the_bit():
    engine, local = digits_of(3), Sgd(lr=0.05)
    (parallel,) = train(fr.method(fedelmy(models=2, warm_up=1, parallel=True), local=local), engine, rounds=1)
    mixing = dfedavgm(momentum=0.0), elmy(models=2, warm_up=1, own=True)
    (mixed,) = train(fr.method(*mixing, local=local), engine, rounds=1)
    assert torch.equal(deployed(parallel).params, deployed(mixed).params)


def test_a_merge_that_is_the_work_of_a_server_brings_the_server_back():
    (state,) = train(fr.method(sequential(), fedadam(), local=STEPS), quadratics.three(), rounds=1)
    assert state.log.messages == {"server_to_client": 1, "client_to_server": 1, "client_to_client": 2}


# --- what makes no sense


def test_one_client_is_refused_and_so_is_a_pool_of_none():
    alone = quadratics.engine_on(fr.data.quadratic_of([np.eye(2)], [np.ones(2)], (3,)))
    for recipe in (sequential(), fedelmy()):
        with pytest.raises(BadInput, match="and there is 1 client: use more clients, or centralized"):
            fr.start(fr.method(recipe, local=STEPS), alone)
    with pytest.raises(BadInput, match="models must be at least 1, not 0"):
        fedelmy(models=0)
    with pytest.raises(BadInput, match="apart must be one of norm, squared, l1, cosine"):
        fedelmy(apart="far")


def test_what_is_sent_of_one_training_does_not_go_with_a_pool():
    with pytest.raises(BadInput, match="sends something of one training, and a visit that trains a pool"):
        fr.method(elmy(), maecho(), local=STEPS)


@pytest.mark.parametrize("name", ["scaffold", "fednova", "feddyn"])
def test_methods_that_read_gradients_off_the_way_a_model_went_do_not_go_with_a_pool(name):
    recipe = fr.algorithms.ALGORITHMS[name].recipe
    with pytest.raises(BadInput, match="a visit that trains a pool of models sends their mean"):
        fr.method(elmy(), recipe(), local=STEPS)


def test_a_client_too_small_for_a_validation_part_keeps_its_last_epoch_and_is_told(caplog):
    SAID.clear()
    source = fr.data.quadratic_of(quadratics.MATRICES, quadratics.CENTRES, (1, 20, 30))
    engine = quadratics.engine_on(source)
    best = Sgd(epochs=3, batch=0, lr=0.1, keep="best", validation=0.1)
    list(train(fr.method(fedelmy(models=1), local=best), engine, rounds=1))
    assert "client 0 has too few examples for a validation part, so it keeps its last epoch" in caplog.text


def test_a_client_that_gets_its_whole_validation_part_wrong_keeps_its_first_epoch_and_is_told(caplog):
    SAID.clear()
    engine = digits_of(3)
    still = Sgd(epochs=2, lr=0.0, keep="best", validation=0.1)
    visit, broken = quadratics.visit_to(engine), engine.task.init(1)
    y = visit.client.examples.y
    never = int(torch.bincount(y[visit.client.rows], minlength=10).argmin())
    pieces = engine.task.layout.pieces(broken)
    for piece in pieces.values():
        piece.zero_()
    list(pieces.values())[-1][never] = 1.0  # one class whatever comes: the rarest at this client
    found, _, _ = still(Baton(broken), visit)
    assert torch.equal(found.params, broken)
    assert "client 0: the accuracy on its validation part is 0 after every epoch, so it keeps the first" in caplog.text


# --- joined, and by name


def test_pools_go_along_the_chains_of_groups():
    engine, local = digits_of(6), Sgd(lr=0.1)
    plain, pooled, alone = (
        deployed(next(train(fr.method(*changes, local=local, fraction=1.0), engine, rounds=1))).params
        for changes in (
            (fedseq(max_clients=3),),
            (fedseq(max_clients=3), elmy(models=2)),
            (fedseq(max_clients=3), elmy(models=2, alpha=0.0, beta=0.0)),
        )
    )
    assert not torch.equal(plain, pooled)
    assert not torch.equal(pooled, alone)


@pytest.mark.parametrize("shots", [1, 3])
def test_models_go_from_client_to_client_as_often_as_the_paper_counts(shots):
    """N - 1 messages, TN - 1 for T shots; N(N - 1) where all work at the same time (FedELMY 2024, Fig. 5)."""
    engine, local = digits_of(5), Sgd(steps=1)
    for parallel, expected in ((False, shots * 5 - 1), (True, shots * 5 * 4)):
        algorithm = fr.method(fedelmy(models=1, warm_up=0, order="given", parallel=parallel), local=local)
        logs = [state.log for state in train(algorithm, engine, rounds=shots)]
        assert sum(log.messages["client_to_client"] for log in logs) == expected
        assert sum(log.messages["server_to_client"] + log.messages["client_to_server"] for log in logs) == 0


def test_with_a_method_that_has_a_server_models_go_through_it_all_the_same():
    engine, local = digits_of(5), Sgd(steps=1)
    for other in (scaffold(), fedadam()):
        (once,) = train(fr.method(sequential(), other, local=local), engine, rounds=1)
        (ring,) = train(fr.method(fedcyclic(), other, local=local, fraction=1.0), engine, rounds=1)
        assert once.log.messages == ring.log.messages
        assert once.log.messages["client_to_server"] > 0
