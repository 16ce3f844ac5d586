"""Methods without a server on the three quadratic clients: values from outside this project, laws, costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from quadratics import CENTRES, FULL_STEPS, MATRICES, models_of, three

import fedrelay as fr
from fedrelay import Adam, BadInput, Federation, Sgd, Task, deployed, train
from fedrelay.algorithms import dfedavgm, dfedsam
from fedrelay.data import Dirichlet, Iid, Natural, digits, quadratic_of
from fedrelay.engines import Inline
from fedrelay.errors import DroppedClients
from fedrelay.merges import PlainMean
from fedrelay.merges.graphs import Circle, Edges, RandomNeighbours
from fedrelay.models import MODELS, Mlp, Quadratic
from fedrelay.runs.folder import load
from fedrelay.runs.latency import Given, Latency
from fedrelay.runs.output import load_trained, read_weights
from fedrelay.runs.record import Recorder
from fedrelay.studies import tune
from fedrelay.tasks import PerClient
from fedrelay.types import State, Work

PATH = Edges(((0, 1), (1, 2)))

# Computed outside this project, in float64, from the formulas: five steps of 0.1 from 0 at each of the three clients.
PLAIN = [(0.7286672917, -0.0316744792), (1.0060783769, -0.0508442844)]
MOMENTUM = [(1.6577297917, -0.0519319792), (0.9944987587, 0.0021873113)]
ON_A_PATH = [(0.1191733333, 0.36275), (0.7286672917, -0.0316744792), (1.33816125, -0.4260989583)]
SHARP = [(0.7428746505, -0.0285873202), (1.0218722221, -0.0486784776)]


def digits_engine(clients: int = 6, seed: int = 1) -> Inline:
    federation = Federation.split(digits(), Dirichlet(alpha=0.3), clients, seed)
    return Inline(federation, Task.of(Mlp(hidden=(8,)), federation), seed)


def batons(state: State) -> np.ndarray:
    return torch.stack([baton.params for baton in state.batons]).numpy()


# --- values from elsewhere


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (dfedavgm(momentum=0.0), PLAIN),
        (dfedavgm(momentum=0.9), MOMENTUM),
        (dfedavgm(), MOMENTUM),  # the momentum of the paper, if nobody says one
        (dfedsam(rho=0.05), SHARP),
        (dfedsam(rho=0.0), PLAIN),
    ],
)
def test_two_rounds_with_everybody_connected_end_where_the_formulas_do(change, expected):
    found = models_of(fr.method(change, local=FULL_STEPS), three(), 2)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_on_a_path_every_client_has_a_model_of_its_own():
    *_, state = train(fr.method(dfedavgm(momentum=0.0, graph=PATH), local=FULL_STEPS), three(), rounds=1)
    np.testing.assert_allclose(batons(state), ON_A_PATH, atol=2e-6)
    np.testing.assert_allclose(deployed(state).params, PLAIN[0], atol=2e-6)  # mixing keeps the mean


# --- laws


def test_without_momentum_and_with_everybody_connected_it_is_fedavg_with_equal_weights():
    engine, local = digits_engine(), Sgd(batch=16, lr=0.1)
    plain = list(train(fr.method(local=local, merge=PlainMean(), fraction=1.0), engine, rounds=3))
    mixed = list(train(fr.method(dfedavgm(momentum=0.0), local=local), engine, rounds=3))
    for one, other in zip(plain, mixed, strict=True):
        torch.testing.assert_close(deployed(one).params, other.batons[4].params, atol=1e-6, rtol=1e-5)


def test_many_mixing_steps_on_a_ring_are_as_good_as_everybody_connected():
    engine = three()
    full = models_of(fr.method(dfedsam(), local=FULL_STEPS), engine, 2)
    ring = fr.method(dfedsam(graph=PATH, mixing_steps=60), local=FULL_STEPS)
    *_, state = train(ring, engine, rounds=2)
    np.testing.assert_allclose(batons(state), np.tile(full[-1], (3, 1)), atol=1e-5)


def test_momentum_begins_at_rest_in_every_visit():
    """Two rounds by hand for two clients in one dimension: v is 0 at the beginning of each."""
    curves, centres = (1.0, 3.0), (1.0, -1.0)
    source = quadratic_of([[[curve]] for curve in curves], [[centre] for centre in centres], [1, 1])
    federation = Federation.split(source, Natural())
    engine = Inline(federation, Task.of(Quadratic(), federation))
    found = models_of(fr.method(dfedavgm(momentum=0.5), local=Sgd(steps=3, batch=0, lr=0.1)), engine, 2)
    mean, expected = 0.0, []
    for _ in range(2):
        ends = []
        for curve, centre in zip(curves, centres, strict=True):
            w, v = mean, 0.0
            for _ in range(3):
                v = 0.5 * v + curve * (w - centre)
                w -= 0.1 * v
            ends.append(w)
        mean = sum(ends) / 2
        expected.append([mean])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_step_uphill_has_one_length_over_all_tensors():
    """One step at client 1 by hand: the gradient at w + rho g / |g|."""
    *_, state = train(fr.method(dfedsam(rho=0.5, graph=PATH), local=Sgd(steps=1, batch=0, lr=0.1)), three(), rounds=1)
    ends = []
    for matrix, centre in zip(MATRICES, CENTRES, strict=True):
        slope = -matrix @ centre
        ends.append(-0.1 * matrix @ (0.5 * slope / np.linalg.norm(slope) - centre))
    expected = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3 @ np.array(ends)
    np.testing.assert_allclose(batons(state), expected, atol=1e-6)


def test_who_is_not_drawn_keeps_its_model_and_mixes_it():
    engine = three()
    algorithm = fr.method(dfedavgm(momentum=0.0), local=FULL_STEPS, fraction=0.34)
    states = list(train(algorithm, engine, rounds=2))
    assert [len(state.log.kept) for state in states] == [2, 2]
    (trained,) = states[0].participants
    matrix, centre = MATRICES[trained], CENTRES[trained]
    alone = centre - np.linalg.matrix_power(np.eye(2) - 0.1 * matrix, 5) @ centre
    np.testing.assert_allclose(deployed(states[0]).params, alone / 3, atol=1e-6)


def test_everybody_may_begin_with_a_random_model_of_its_own():
    """Two clients that do not move (lr 0): what they mix is what they begin with, which is not the same."""
    engine = digits_engine(2)
    still = Sgd(steps=1, lr=0.0)
    (same,) = train(fr.method(dfedsam(), local=still), engine, rounds=1)
    assert torch.equal(same.batons[1].params, engine.task.init(1))
    states = list(train(fr.method(dfedavgm(same_start=False), local=still), engine, rounds=2))
    ones = [engine.task.init(fr.seeds.derive(1, "own model", client)) for client in (0, 1)]
    assert not torch.equal(*ones)
    torch.testing.assert_close(states[0].batons[0].params, (ones[0] + ones[1]) / 2)
    assert torch.equal(states[1].batons[0].params, states[0].batons[0].params)


def test_the_statistics_of_the_step_uphill_do_not_count_and_statistics_are_mixed():
    """Running means of a normalisation layer after one step from the initial model: a tenth of the batch's own mean."""
    federation = Federation.split(digits(), Iid(), 2, 1)
    engine = Inline(federation, Task.of(MODELS["mlp_norm"](hidden=(8,)), federation), 1)
    (state,) = train(fr.method(dfedsam(rho=5.0), local=Sgd(steps=1, batch=0, lr=0.1)), engine, rounds=1)
    pieces = engine.task.layout.pieces(engine.task.init(1))
    weight, bias = (next(piece for piece in pieces.values() if piece.ndim == ndim) for ndim in (2, 1))
    means = []
    for client in (0, 1):
        data = federation.client(client)
        x, _ = data.take(torch.arange(data.size), None)
        means.append((x.flatten(1) @ weight.T + bias).mean(0))
    name = next(name for name in pieces if name.endswith("running_mean"))
    found = engine.task.layout.pieces(state.batons[0].params)[name]
    torch.testing.assert_close(found, 0.1 * (means[0] + means[1]) / 2, atol=1e-5, rtol=1e-4)


# --- costs


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (dfedavgm(), 6 * 5),  # N(N - 1)
        (dfedavgm(graph=Circle()), 6 * 2),
        (dfedsam(graph=Circle(), mixing_steps=4), 4 * 6 * 2),
        (dfedavgm(graph=RandomNeighbours(2), weights="sizes"), 6 * 2),
    ],
)
def test_models_go_from_client_to_client_only(change, messages):
    engine = digits_engine()
    size = engine.task.layout.size * 4
    for state in train(fr.method(change, local=Sgd(steps=1)), engine, rounds=2):
        assert state.log.messages == {"server_to_client": 0, "client_to_server": 0, "client_to_client": messages}
        assert state.log.bytes == {"server_to_client": 0, "client_to_server": 0, "client_to_client": messages * size}
        assert state.log.depth == 1


def test_on_the_clock_a_round_is_the_slowest_training_and_then_the_mixing_steps():
    engine = three()  # of 10, 20 and 30 examples, models of 8 bytes
    pace = Latency(speed=Given((1.0, 20.0, 30.0)), bandwidth=Given((8e-6, 8e-6 * 4, 8e-6 * 2)), delay=0.5)
    local = Sgd(steps=2, batch=0, lr=0.1)
    *_, state = train(fr.method(dfedsam(graph=PATH, mixing_steps=3), local=local), engine, rounds=1, latency=pace)
    # training: 2 · 10 / 1 seconds at client 0. A step: client 1 has two neighbours, 8 bytes at 1 byte per second and at
    # 2 bytes per second, each with a delay of half a second.
    assert state.log.simulated_seconds == pytest.approx(2 * 10 + 3 * ((8 + 0.5) + (4 + 0.5)))


# --- what is tested, and what is left


def recorded(folder: Path, **settings) -> Recorder:
    federation = Federation.split(digits(), Iid(), 4, 1)
    engine = Inline(federation, Task.of(Mlp(hidden=(8,)), federation), 1)
    change = dfedavgm(graph=Circle(), **settings)
    algorithm = fr.method(change, local=Sgd(batch=16, lr=0.1))
    return Recorder(folder, algorithm, engine, federation.test, rounds=2, federation=federation, resume=True)


def accuracy(weights: dict[str, torch.Tensor], test) -> float:
    x, y = test.take(slice(0, len(test)))
    (w1, b1, w2, b2) = weights.values()
    answers = torch.relu(x.flatten(1) @ w1.T + b1) @ w2.T + b2
    return float((answers.argmax(1) == y).double().mean())


def test_the_mean_of_the_models_is_tested_and_left_unless_one_says_otherwise(tmp_path):
    recorder = recorded(tmp_path)
    list(recorder.run())
    summary = recorder.summary()
    assert summary.tested == "the mean of 4 models"
    assert summary.final_accuracy == pytest.approx(accuracy(read_weights(tmp_path / "model.pt"), recorder.test))


def test_the_model_of_one_client_can_be_what_is_tested_and_left(tmp_path):
    recorder = recorded(tmp_path, tested=2)
    list(recorder.run())
    state = fr.runs.checkpoint.load(tmp_path / "checkpoint")[0]
    weights = read_weights(tmp_path / "model.pt")
    assert recorder.summary().tested == "the model of client 2"
    assert recorder.summary().final_accuracy == pytest.approx(accuracy(weights, recorder.test))
    torch.testing.assert_close(torch.cat([w.flatten() for w in weights.values()]), state.batons[2].params)


def test_every_model_can_be_tested_and_then_all_are_left(tmp_path):
    recorder = recorded(tmp_path, tested="each")
    list(recorder.run())
    trained = load_trained(tmp_path)
    common = read_weights(tmp_path / "model.pt")
    several = [common | own for own in read_weights(tmp_path / "client_models.pt").values()]
    assert len(several) == len(trained.facts["clients"]) == 4
    expected = np.mean([accuracy(weights, recorder.test) for weights in several])
    assert recorder.summary().tested == "every client's model, on the whole test set: the mean"
    assert recorder.summary().final_accuracy == pytest.approx(expected)


@pytest.mark.parametrize(("clients", "tested"), [(20, 20), (21, 11), (50, 17)])
def test_of_many_clients_some_models_are_tested_and_that_is_said(clients, tested):
    models = PerClient(torch.zeros(1), {client: torch.zeros(1) for client in range(clients)}, tested="each")
    assert len(models.some) == tested <= 20
    assert models.tests.startswith("every client's" if tested == clients else f"the models of {tested} of {clients}")


def test_the_best_of_several_settings_is_tested_as_its_runs_were(tmp_path):
    tables = {
        "rounds": 2,
        "data": {"name": "digits", "clients": 3},
        "model": {"name": "mlp", "hidden": [8]},
        "local": {"lr": 0.1},
        "algorithm": {"name": "dfedavgm", "graph": {"name": "edges", "edges": [[0, 1], [1, 2]]}, "tested": "each"},
        "engine": {"name": "inline"},
    }
    recorder = fr.config.build(tables).record(tmp_path / "run")
    list(recorder.run())
    found = tune.tested(tables, tmp_path / "run", None)
    assert found["accuracy"] == pytest.approx(recorder.summary().final_accuracy)


def test_a_client_that_fails_keeps_its_old_model_and_the_record_says_so(tmp_path):
    recorder = recorded(tmp_path)
    algorithm = replace(recorder.algorithm, update=Failing(recorder.algorithm.update, client=3, round=2))
    with pytest.warns(DroppedClients, match="client 3 was dropped"):
        states = list(train(algorithm, recorder.engine, rounds=2))
    assert states[1].log.kept == (3,)
    recorder = replace(recorder, algorithm=algorithm)
    with pytest.warns(DroppedClients):
        list(recorder.run())
    assert [log.kept for log in load(tmp_path).rounds] == [(), (3,)]


class Failing(Work):
    """A client that fails in one round."""

    def __init__(self, work, client, round):
        self.work, self.client, self.round = work, client, round

    def __call__(self, baton, visit, /):
        if (visit.client.id, visit.round) == (self.client, self.round):
            raise RuntimeError("no power")
        return self.work(baton, visit)


# --- what is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fr.method(dfedavgm(tested="all")), "tested must be mean, each, or the number of a client, not 'all'"),
        (
            lambda: fr.method(dfedavgm(momentum=0.5), local=Adam()),
            "momentum = 0.5 is of SGD, and clients train by Adam",
        ),
        (lambda: fr.method(dfedavgm(momentum=0.5), local=Sgd(momentum=0.9)), r"says momentum 0.5, \[local\] 0.9"),
        (lambda: fr.method(dfedavgm(momentum=1.5)), "momentum must be"),
        (lambda: fr.method(dfedavgm(tested="each"), private="head"), "head stays at home, and this method tests whole"),
        (lambda: fr.method(dfedavgm(), merge=PlainMean()), "both say how models are merged"),
    ],
)
def test_settings_without_a_meaning_are_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def test_a_client_that_is_not_there_cannot_be_tested():
    with pytest.raises(BadInput, match="the model of client 3 is to be tested, and clients are numbered 0 to 2"):
        list(train(fr.method(dfedavgm(tested=3), local=FULL_STEPS), three(), rounds=1))


def test_by_name_graphs_are_given_in_the_configuration():
    tables = {
        "data": {"name": "digits", "clients": 4},
        "model": {"name": "mlp", "hidden": [4]},
        "algorithm": {"name": "dfedavgm", "graph": {"name": "edges", "edges": [[0, 1], [1, 2], [2, 3]]}, "tested": 1},
        "engine": {"name": "inline"},
    }
    built = fr.config.build(tables)
    assert built.algorithm.merge.graph == Edges(((0, 1), (1, 2), (2, 3)))
    assert fr.config.build(built.tables).algorithm == built.algorithm
    assert built.tables["algorithm"]["fraction"] == 1.0
