"""MetaFed: values from outside this project on the three quadratic clients, its rules by hand, its costs, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from quadratics import CENTRES, FULL_STEPS, MATRICES, three
from torch.nn import functional

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, adapted, deployed, train
from fedrelay.algorithms import metafed
from fedrelay.data import Dirichlet, Iid, digits
from fedrelay.engines import Inline
from fedrelay.models import Mlp
from fedrelay.runs.record import Recorder
from fedrelay.tasks import PerClient, Workspaces
from fedrelay.types import Baton, Visit
from fedrelay.visits.validation import held_out

# Computed outside this project, in float64, from the formulas: five steps of 0.1 at every client from where a
# chain 0, 1, 2 of such steps, from 0, ended.
PERSONAL = [(1.7347130503, -0.0477251839), (0.1067246977, 0.4883067338), (2.9247868077, -1.2587796187)]
CHECKED = Sgd(batch=16, lr=0.1, validation=0.25)


def engine_on(clients: int = 10) -> Inline:
    """Digits; among ten clients each has one class, which it soon knows."""
    partition = Dirichlet(alpha=0.0) if clients == 10 else Iid()
    federation = Federation.split(digits(), partition, clients, 1)
    return Inline(federation, Task.of(Mlp(hidden=(8,)), federation), 1)


def visit_of(engine: Inline, round: int, memory=None, client: int = 0) -> Visit:
    return Visit(engine.federation.client(client), engine.task, memory or {}, {}, round, 0, 1, Workspaces(engine.task))


def by_hand(steps: int, matrix: np.ndarray, centre: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Steps of 0.1 down a quadratic."""
    return centre + np.linalg.matrix_power(np.eye(2) - 0.1 * matrix, steps) @ (start - centre)


# --- values from elsewhere


def test_without_preparation_and_with_no_good_model_it_is_a_chain_and_then_everybody_on_its_own():
    algorithm = fr.method(metafed(preparation=0, threshold=1.1), local=FULL_STEPS)
    first, last = train(algorithm, three(), rounds=2)
    chain = np.zeros(2)
    for matrix, centre in zip(MATRICES, CENTRES, strict=True):
        chain = by_hand(5, matrix, centre, chain)
    np.testing.assert_allclose(deployed(first, algorithm).common, chain, atol=2e-6)
    predictor = deployed(last, algorithm)
    assert isinstance(predictor, PerClient)
    np.testing.assert_array_equal(predictor.common, deployed(first, algorithm).common)
    np.testing.assert_allclose(torch.stack([predictor.own[client] for client in range(3)]), PERSONAL, atol=2e-6)


@pytest.mark.parametrize(
    ("apart", "weight"), [(-0.2, 0.01), (-0.1, 0.0316228), (0.0, 0.1), (0.1, 0.316228), (0.2, 1.0), (0.5, 1.0)]
)
def test_the_weight_of_the_last_lesson_is_that_of_the_table(apart, weight):
    lessons = metafed().visit
    assert lessons.of_last(0.4 + 0.5, 0.4 + 0.5 - apart) == pytest.approx(weight, rel=1e-5)


def test_a_common_model_that_is_poor_and_no_better_teaches_nothing():
    lessons = metafed(teacher_threshold=0.5).visit
    assert lessons.of_last(0.4, 0.4) == 0
    assert lessons.of_last(0.0, 0.0) == 0  # a validation accuracy of 0 throughout
    assert lessons.of_last(0.4, 0.3) == pytest.approx(0.316228, rel=1e-5)  # better than one's own
    assert lessons.of_last(0.6, 0.7) == pytest.approx(0.0316228, rel=1e-5)  # good
    assert lessons.of_last(float("nan"), 0.4) == 0


# --- the rules by hand


def test_a_client_whose_model_is_good_goes_on_with_its_own_and_the_features_of_its_predecessor():
    """One step by hand: cross-entropy plus the mean squared difference of the features from the teacher's."""
    engine = engine_on()
    local = Sgd(steps=1, batch=0, lr=0.5, validation=0.25)
    work = fr.method(metafed(weight=2.0), local=local).update
    own, teacher = engine.task.init(5), engine.task.init(6)
    visit = visit_of(engine, 2, {"own": own, "good": torch.tensor([1.0])})
    baton, memory, _ = work(Baton(teacher, 7.0), visit)
    client = work.training.without_held_out(visit).client
    x, y = client.take(torch.arange(client.size), None)
    leaves = {name: piece.clone().requires_grad_() for name, piece in engine.task.layout.pieces(own).items()}
    w1, b1, w2, b2 = leaves.values()
    t1, c1, *_ = engine.task.layout.pieces(teacher).values()
    features = torch.relu(x.flatten(1) @ w1.T + b1)
    taught = torch.relu(x.flatten(1) @ t1.T + c1)
    loss = functional.cross_entropy(features @ w2.T + b2, y) + 2.0 * (features - taught).square().mean()
    slopes = torch.autograd.grad(loss, leaves.values())
    for (name, piece), slope in zip(leaves.items(), slopes, strict=True):
        found = engine.task.layout.pieces(baton.params)[name]
        torch.testing.assert_close(found, (piece - 0.5 * slope).detach(), atol=1e-6, rtol=1e-5)
    assert torch.equal(memory["own"], baton.params)
    assert "teacher" not in memory


def test_a_client_whose_model_is_not_good_goes_on_with_that_of_its_predecessor():
    engine = engine_on()
    work = fr.method(metafed(), local=CHECKED).update
    own, teacher = engine.task.init(5), engine.task.init(6)
    visit = visit_of(engine, 2, {"own": own, "good": torch.tensor([0.0])})
    found = work(Baton(teacher, 7.0), visit)[0].params
    assert torch.equal(found, CHECKED(Baton(teacher), visit)[0].params)


def test_the_first_client_of_all_goes_on_with_its_own_model():
    engine = engine_on()
    work = fr.method(metafed(), local=CHECKED).update
    own = engine.task.init(5)
    visit = visit_of(engine, 2, {"own": own, "good": torch.tensor([0.0])})
    found = work(Baton(engine.task.init(1)), visit)[0].params  # the initial model: it has seen no example
    assert torch.equal(found, CHECKED(Baton(own), visit)[0].params)


def test_a_model_is_good_above_the_threshold_on_the_validation_part_and_stays_so():
    engine = engine_on()
    visit = visit_of(engine, 1)
    kept = fr.method(metafed(preparation=5), local=CHECKED).update(Baton(engine.task.init(1)), visit)[1]
    assert kept["good"].item() == 1
    never = fr.method(metafed(preparation=5, threshold=1.1), local=CHECKED).update
    assert never(Baton(engine.task.init(1)), visit)[1]["good"].item() == 0
    # A model that is bad now does not make a client forget.
    untrained = fr.method(metafed(), local=Sgd(lr=0.0, validation=0.25)).update
    again = visit_of(engine, 2, {"own": torch.zeros_like(kept["own"]), "good": torch.tensor([1.0])}, client=3)
    assert untrained(Baton(torch.zeros_like(kept["own"]), 1.0), again)[1]["good"].item() == 1


def test_preparation_is_so_many_epochs_alone():
    engine = engine_on()
    visit, start = visit_of(engine, 1), engine.task.init(1)
    found = fr.method(metafed(preparation=3), local=CHECKED).update(Baton(start), visit)[0].params
    assert torch.equal(found, replace(CHECKED, epochs=3)(Baton(start), visit)[0].params)


def test_as_published_only_the_last_epoch_of_a_copy_counts():
    engine = engine_on()
    local = replace(CHECKED, epochs=6)
    start = Baton(engine.task.init(6), 7.0)
    visit = visit_of(engine, 2)
    published = fr.method(metafed(variant="published"), local=local).update(start, visit)[0].params
    intended = fr.method(metafed(), local=local).update(start, visit)[0].params
    assert torch.equal(published, replace(CHECKED, epochs=1)(start, visit)[0].params)
    assert torch.equal(intended, local(start, visit)[0].params)


def test_a_client_too_small_for_a_validation_part_has_no_good_model_and_does_not_fail():
    engine = engine_on()
    client = engine.federation.client(0)
    visit = replace(visit_of(engine, 1), client=replace(client, rows=client.rows[:1]))
    assert held_out(visit, 0.25) is None
    work = fr.method(metafed(preparation=1), local=CHECKED).update
    assert work(Baton(engine.task.init(1)), visit)[1]["good"].item() == 0


# --- costs


@pytest.mark.parametrize("iters", [2, 4])
def test_models_are_sent_along_the_ring_only(iters):
    """2N - 1 messages for one round along the ring and one for everybody's own (FedELMY 2024, Fig. 5)."""
    algorithm = fr.method(metafed(iters=iters, preparation=1), local=replace(CHECKED, epochs=1))
    logs = [state.log for state in train(algorithm, engine_on(5), rounds=iters + 1)]
    assert sum(log.messages["server_to_client"] + log.messages["client_to_server"] for log in logs) == 0
    assert [log.messages["client_to_client"] for log in logs] == [0, 4, *[5] * (iters - 2), 5]
    assert [log.depth for log in logs] == [1, *[5] * (iters - 1), 1]


# --- what is tested and left


def test_both_the_common_model_and_the_clients_own_are_tested(tmp_path):
    federation = Federation.split(digits(), Iid(), 3, 1)
    engine = Inline(federation, Task.of(Mlp(hidden=(8,)), federation), 1)
    found = {}
    for tested in ("common", "personal"):
        algorithm = fr.method(metafed(preparation=1, tested=tested), local=CHECKED)
        recorder = Recorder(tmp_path / tested, algorithm, engine, federation.test, rounds=3, federation=federation)
        found[tested], summary = list(recorder.run())[-1].metrics, recorder.summary()
        assert summary.final_accuracy == found[tested]["accuracy"]
        assert tested == "common" or "own model" in summary.tested
    common, personal = found["common"], found["personal"]
    assert common["accuracy"] == personal["common_accuracy"]
    assert common["personal_accuracy"] == personal["accuracy"]
    assert common["accuracy"] != common["personal_accuracy"]
    assert {path.name for path in (tmp_path / "common").iterdir()} >= {"model.pt", "client_models.pt"}


# --- what is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fr.method(metafed(), local=Sgd()), r"validation part of their own.*\[local\] validation = 0.2"),
        (lambda: metafed(iters=1), "iters must be at least 2"),
        (lambda: metafed(preparation=-1), "preparation must be at least 0"),
        (lambda: metafed(weight=-1.0), "weight must be at least 0"),
        (lambda: metafed(variant="odd"), "variant must be intended or published"),
        (lambda: metafed(tested="each"), "tested common or personal"),
        (lambda: fr.method(metafed(), private="head"), "head stays at home, and this method tests whole models"),
    ],
)
def test_settings_without_a_meaning_are_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def test_a_model_without_features_is_refused_unless_the_threshold_is_never_reached():
    engine = three()
    with pytest.raises(BadInput, match="MetaFed needs a model with features"):
        adapted(fr.method(metafed(), local=CHECKED), engine.task)
    assert adapted(fr.method(metafed(variant="published"), local=CHECKED), engine.task) == engine.task


def test_one_client_and_more_rounds_than_there_are_phases_are_refused():
    with pytest.raises(BadInput, match="one client is no ring"):
        list(train(fr.method(metafed(), local=CHECKED), engine_on(1), rounds=1))
    with pytest.raises(BadInput, match="done after 3 rounds: rounds = 3, not 4"):
        list(train(fr.method(metafed(), local=CHECKED), engine_on(), rounds=4))


def test_by_name_it_has_as_many_rounds_as_it_needs_and_a_validation_part():
    tables = {"data": {"name": "digits", "clients": 4}, "model": {"name": "mlp"}, "engine": {"name": "inline"}}
    built = fr.config.build({**tables, "algorithm": {"name": "metafed", "iters": 5}})
    assert built.tables["rounds"] == 6
    assert built.tables["local"]["validation"] == 0.2
    assert built.algorithm.plan.rounds == 6
    with pytest.raises(BadInput, match="done after 6 rounds"):
        fr.config.build({**tables, "rounds": 7, "algorithm": {"name": "metafed", "iters": 5}})
