"""Noise at clients: by hand on hand-made steps, what is recorded of it, and the same bits on every engine."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import in_process
import numpy as np
import pytest
import torch
from zoo import Pools, models, resumed, same_bits, shared_pools, trained

import fedrelay as fr
from fedrelay import BadInput, config
from fedrelay.algorithms import fedelmy, fednova, fedseq, maecho, scaffold
from fedrelay.algorithms.defence import Defence
from fedrelay.algorithms.privacy import Privacy
from fedrelay.data import Dirichlet, Natural, digits, quadratic
from fedrelay.engines import Inline, Pool
from fedrelay.models import Quadratic
from fedrelay.plans import Greedy
from fedrelay.report import page
from fedrelay.runs.folder import load
from fedrelay.types import Baton, Chain, Report, Work
from fedrelay.visits import ClassHistogram
from fedrelay.visits.batches import poisson
from fedrelay.visits.noise import Noised, Released

LOCAL = fr.Sgd(batch=16, lr=0.1)


class Goes(Work):
    """Moves the model by (3, 4) and tells a loss."""

    def __call__(self, baton, visit):
        after = Baton(baton.params + torch.tensor([3.0, 4.0]), baton.weight + 1)
        return after, visit.memory, Report(visit.client.id, 1, {"loss": 0.5})


@pytest.fixture
def engine() -> Inline:
    federation = fr.Federation.split(quadratic(clients=6, dimension=2, seed=2), Natural())
    return Inline(federation, fr.Task.of(Quadratic(), federation))


def test_a_visit_is_shortened_and_without_noise_tells_what_it_told(engine):
    (outcome,) = engine.run(Noised(Goes(), clip=1.0, noise=0.0), [Chain(Baton(torch.ones(2)), (3,))], {}, 1)
    assert outcome.baton.params.tolist() == pytest.approx([1.6, 1.8])
    assert outcome.reports[0].metrics == {"loss": 0.5}


def test_noise_has_its_deviation_is_new_at_every_visit_and_no_loss_is_told(engine):
    work = Noised(Goes(), clip=2.0, noise=3.0)
    found = []
    for round in range(1, 401):
        (outcome,) = engine.run(work, [Chain(Baton(torch.zeros(2)), (3, 1))], {}, round)
        found.append(outcome.baton.params.numpy())
        assert all(report.metrics == {} for report in outcome.reports)
    # Two hops of (1.2, 1.6) and of noise of deviation 6: means of 400 are within 5 deviations, so are deviations.
    spread = 6 * math.sqrt(2)
    np.testing.assert_allclose(np.mean(found, axis=0), [2.4, 3.2], atol=5 * spread / 20)
    np.testing.assert_allclose(np.std(found, axis=0), spread, rtol=5 / math.sqrt(800))


def test_a_secret_changes_the_noise_and_nothing_else(engine):
    simulation = engine._simulation
    client = engine.federation.client(3)
    visit = simulation.visit(type("C", (), {"shared": {}, "round": 1})(), 3, {}, 0)
    assert visit.client.id == client.id
    work = Noised(Goes(), clip=2.0, noise=3.0)
    known, secret = (work(Baton(torch.zeros(2)), replace(visit, secret=one))[0].params for one in (None, 5))
    assert not torch.equal(known, secret)
    plain = Noised(Goes(), clip=2.0, noise=0.0)
    known, secret = (plain(Baton(torch.zeros(2)), replace(visit, secret=one))[0].params for one in (None, 5))
    assert torch.equal(known, secret)


def test_batches_are_drawn_with_the_same_probability_for_every_example():
    client = fr.Federation.split(digits(), Dirichlet(alpha=1.0), 4).client(0)
    drawn = list(poisson(client, 0.1, 2000, 30, np.random.default_rng(0)))
    counts = [count for some in drawn for _, _, count in some]
    assert len(drawn) == 67
    assert len(counts) == 2000
    expected, deviation = 0.1 * client.size, math.sqrt(0.09 * client.size)
    assert np.mean(counts) == pytest.approx(expected, abs=5 * deviation / math.sqrt(2000))
    assert np.std(counts) == pytest.approx(deviation, rel=0.1)


def test_privacy_of_no_strength_is_the_method_itself():
    for level in ("client", "example"):
        nothing = Privacy(level, clip=math.inf, noise=0.0)
        assert fr.method(fedseq(), local=LOCAL, privacy=nothing) == fr.method(fedseq(), local=LOCAL)


@pytest.fixture(scope="module")
def pools():
    with shared_pools() as made:
        yield made


WAYS = {
    "visits": Privacy(clip=0.5, noise=0.1),
    "steps": Privacy("example", clip=0.5, noise=1.0, delta=1e-3),
    "too weak to act": Privacy(clip=1e6, noise=0.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_privacy_has_the_same_bits_on_every_engine_and_after_a_stop(way, pools: Pools, tmp_path):
    federation = fr.Federation.split(digits(), Dirichlet(alpha=1.0), 6, 1)
    task = fr.Task.of(fr.models.Mlp(hidden=(4,)), federation)
    local = fr.Sgd(steps=4, batch=40, lr=0.1)
    algorithm = fr.method(fedseq(max_clients=3), local=local, fraction=1.0, privacy=WAYS[way])
    pool = pools.setdefault((len(federation), task), Pool(federation, task, 1, workers=2))
    engine = Inline(federation, task, 1)
    states, _ = trained(algorithm, engine)
    remote = in_process.remote(algorithm, federation, task, tmp_path / "remote")
    for other in (pool, remote):
        assert same_bits(models(states), models(trained(algorithm, other)[0]))
    last, _ = resumed(algorithm, engine, tmp_path / "run")
    assert same_bits(models(states[-1:]), models(last))
    assert last[-1].log.privacy == states[-1].log.privacy
    assert [state.log.privacy["releases"] for state in states] == [1, 2, 3]
    plain = models(trained(fr.method(fedseq(max_clients=3), local=local, fraction=1.0), engine)[0])
    assert same_bits(models(states), plain) is (way == "too weak to act")


def test_one_step_of_all_examples_without_noise_is_one_of_plain_training():
    federation = fr.Federation.split(digits(), Dirichlet(alpha=1.0), 6, 1)
    engine = Inline(federation, fr.Task.of(fr.models.Mlp(hidden=(4,)), federation), 1)
    local = fr.Sgd(steps=3, batch=0, lr=0.1)
    found = [
        models(fr.train(fr.method(local=local, fraction=1.0, privacy=privacy), engine, rounds=1))[0]
        for privacy in (None, Privacy("example", clip=1e6, noise=0.0))
    ]
    torch.testing.assert_close(*found, atol=1e-6, rtol=1e-5)


def test_a_trait_gets_noise_and_counts_as_a_release():
    federation = fr.Federation.split(digits(), Dirichlet(alpha=0.5), 8, 1)
    engine = Inline(federation, fr.Task.of(fr.models.Mlp(hidden=(4,)), federation), 1)
    changes = fedseq(groups=2, traits=ClassHistogram(), grouper=Greedy())
    method = fr.method(changes, local=LOCAL, fraction=1.0, privacy=Privacy(noise=5.0))
    (state,) = fr.train(method, engine, rounds=1)
    # V = 2, z = 5: mu = √2 / 5; epsilon at 1e-5 by the closed form is 1.07 to 1.08
    assert state.log.privacy["releases"] == 2
    assert 1.06 < state.log.privacy["epsilon"] < 1.09
    plain, noisy = (
        [outcome.reports[0].uplink["trait"] for outcome in engine.run(work, chains_of(engine), {}, 0)]
        for work in (ClassHistogram(), Released(ClassHistogram(), 1.0, 5.0))
    )
    for one, other in zip(plain, noisy, strict=True):
        assert not torch.equal(one, other)
        assert float(other.min()) >= 0


def chains_of(engine):
    return [Chain(Baton(engine.task.init(1)), (client,)) for client in range(len(engine.sizes))]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Privacy(noise=-1.0), "noise must be at least 0"),
        (lambda: Privacy(clip=math.inf), "no noise hides what may be of any length"),
        (lambda: Privacy(delta=1.0), "delta must be below 1"),
        (lambda: fr.method(privacy=Privacy(clip=math.inf, noise=0.0, epsilon=1.0)), "epsilon is had by noise"),
        (lambda: fr.method(maecho(), privacy=Privacy()), "sends something besides the model"),
        (lambda: fr.method(scaffold(), privacy=Privacy()), "Control.* sends something besides the model"),
        (lambda: fr.method(fednova(), privacy=Privacy()), "CountSteps.* sends something besides the model"),
        (lambda: fr.method(scaffold(), privacy=Privacy("example")), "looks at examples beside the steps"),
        (lambda: fr.method(fedelmy(), privacy=Privacy("example")), "trains in a way of its own"),
        (lambda: fr.method(privacy=Privacy(), defence=Defence(tolerance=1.0)), "noise does not hide that"),
    ],
)
def test_privacy_that_cannot_be_is_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


TABLES = {
    "rounds": 10,
    "data": {"name": "digits", "clients": 8},
    "model": {"name": "mlp", "hidden": [4]},
    "engine": {"name": "inline"},
    "algorithm": {"name": "fedseq", "max_clients": 4, "fraction": 1.0, "privacy": {"noise": 1.0, "epsilon": 1.2}},
}


def test_an_epsilon_that_cannot_be_had_is_refused_with_the_noise_that_would_give_it():
    # The table: noise 10 gives 1.20 for 10 visits, noise 1 gives 17.9.
    wanted = r"epsilon = 1.2 cannot be had with noise = 1: 10 releases .* up to 17.86 .*; noise = (\S+) would give it"
    with pytest.raises(BadInput, match=wanted) as refused:
        config.build(TABLES)
    found = re.search(wanted, str(refused.value))
    assert found is not None
    noise = float(found[1])
    assert 9.9 < noise < 10.1
    config.build(config.with_values(TABLES, {"algorithm.privacy.noise": noise}))


def test_a_model_that_carries_statistics_along_is_refused_unless_they_stay_at_home():
    tables = config.with_values(
        TABLES, {"model": {"name": "mlp_norm", "hidden": [4]}, "algorithm.privacy": {"noise": 1.0}}
    )
    with pytest.raises(BadInput, match="carries running statistics of the examples along"):
        config.build(tables)
    config.build(config.with_values(tables, {"algorithm.private": "norm"}))


def test_a_run_records_its_epsilon_in_every_round_and_its_page_shows_it(tmp_path):
    privacy = {"noise": 5.0, "clip": 0.5}
    experiment = config.build(config.with_values(TABLES, {"rounds": 2, "algorithm.privacy": privacy}))
    assert config.build(experiment.tables).tables == experiment.tables
    list(experiment.record(tmp_path / "run").run())
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["privacy"]["releases"] for line in lines] == [1, 2]
    assert lines[0]["privacy"]["epsilon"] == pytest.approx(0.73, abs=0.005)  # the table: noise 5, one visit
    assert lines[0]["train_loss"] is None
    run = load(tmp_path / "run")
    assert run.summary.privacy == lines[1]["privacy"]
    assert "most releases of a client" in page.html([run])
