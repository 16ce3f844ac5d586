"""Defences inside chains: by hand on hand-made steps, and the same bits on every engine."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

import in_process
import pytest
import torch
from zoo import Pools, models, resumed, same_bits, shared_pools, trained

import fedrelay as fr
from fedrelay import BadInput, config
from fedrelay.algorithms import dfedavgm, fedbn, fedseq, fedseqinter
from fedrelay.algorithms.defence import Defence, defended
from fedrelay.data import Dirichlet, Natural, digits, quadratic
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.merges import Mean, Median
from fedrelay.merges.agreement import Agreeing
from fedrelay.models import Quadratic
from fedrelay.plans.twins import halves
from fedrelay.report import page
from fedrelay.runs.folder import load
from fedrelay.types import Baton, Chain, Outcome, Report, State, Work
from fedrelay.visits.attacks import Attacked, Scaled
from fedrelay.visits.defended import Defended

LOCAL = fr.Sgd(steps=1, batch=0, lr=0.1)


@dataclass(frozen=True)
class Throws(Work):
    """Another work; at one client the model is moved by this much instead."""

    work: Work
    client: int
    way: tuple[float, float]

    def __call__(self, baton, visit):
        if visit.client.id != self.client:
            return self.work(baton, visit)
        return Baton(baton.params + torch.tensor(self.way), baton.weight + 1), visit.memory, Report(self.client, 1)


@pytest.fixture
def engine() -> Inline:
    federation = fr.Federation.split(quadratic(clients=6, dimension=2, seed=2), Natural())
    return Inline(federation, fr.Task.of(Quadratic(), federation))


def test_a_hop_goes_no_farther_than_the_bound(engine):
    # (3, 4) is 5 long, a bound of 1 makes it (0.6, 0.8); (0.3, 0.4) stays.
    for way, expected, shortened in (((3.0, 4.0), (0.6, 0.8), 1.0), ((0.3, 0.4), (0.3, 0.4), 0.0)):
        work = Defended(Throws(LOCAL, 3, way), bound=1.0)
        (outcome,) = engine.run(work, [Chain(Baton(torch.zeros(2)), (3, 3))], {}, 1)
        assert outcome.baton.params.tolist() == pytest.approx([2 * value for value in expected])
        assert [report.metrics["bounded"] for report in outcome.reports] == [shortened] * 2


def test_a_client_leaves_out_a_model_that_is_worse_on_its_examples_than_the_last_global_one(engine):
    start = torch.tensor([0.1, -0.2])
    spoiling = Defended(Throws(LOCAL, 1, (100.0, 0.0)), tolerance=5.0)
    shared = {"last_global": start}
    (spoiled,) = engine.run(spoiling, [Chain(Baton(start), (0, 1, 4))], shared, 1)
    (alone,) = engine.run(LOCAL, [Chain(Baton(start), (4,))], {}, 1)
    # One full step of gradient descent draws nothing, so at hop 2 it is what it is at hop 0: all before is lost.
    assert torch.equal(spoiled.baton.params, alone.baton.params)
    assert spoiled.baton.weight == alone.baton.weight
    assert [report.metrics.get("skipped") for report in spoiled.reports] == [0.0, 0.0, 1.0]
    # Without the check the last client goes on from 100: one step of its own takes away less than half of that.
    (trusting,) = engine.run(spoiling.work, [Chain(Baton(start), (0, 1, 4))], shared, 1)
    assert trusting.baton.params[0] > 10


def test_the_first_client_of_a_chain_and_a_model_that_became_better_are_never_skipped(engine):
    # Equal clients: every step brings the model nearer to the one optimum, so no loss grows.
    federation = fr.Federation.split(quadratic(clients=4, dimension=2, spread=0.0, seed=1), Natural())
    equal = Inline(federation, fr.Task.of(Quadratic(), federation))
    method = fr.method(fedseq(groups=1), local=LOCAL, fraction=1.0, defence=Defence(tolerance=1.0))
    assert [state.log.defence for state in fr.train(method, equal, rounds=3)] == [{"skipped": 0.0}] * 3


def test_a_chain_is_cut_into_every_other_client_lap_by_lap():
    chain = Chain(Baton(torch.zeros(1)), (5, 2, 7, 1, 4) * 2, weight=0.5)
    one, other = halves(chain, 3)
    assert (one.clients, other.clients) == ((5, 7, 4) * 2, (2, 1) * 2)
    assert (one.slot, other.slot, one.weight, other.weight) == (3, 3, 0.25, 0.25)


def pair(state: State, slot: int, *ends: tuple[float, float]) -> list[Outcome]:
    chain = Chain(state.batons[0], (0,), slot)
    return [Outcome(chain, Baton(torch.tensor(end), 1.0), (Report(0, 1),)) for end in ends]


def test_pairs_that_went_different_ways_do_not_count():
    state = State(0, (Baton(torch.ones(2)),), {}, {}, {})
    # Ways (1, 0) and (1, 1): cosine 0.707. Ways (0, 2) and (2, 0): 0. A lost twin: no pair.
    outcomes = [
        *pair(state, 0, (2.0, 1.0), (2.0, 2.0)),
        *pair(state, 1, (1.0, 3.0), (3.0, 1.0)),
        *pair(state, 2, (9.0, 9.0)),
    ]
    merge = Agreeing(Mean(), 0.5)
    assert merge(state, outcomes).batons[0].params.tolist() == [2, 1.5]
    assert merge.tells(state, outcomes) == {"disagreed": 2}
    lenient = Agreeing(Mean(), -1.0)
    assert lenient(state, outcomes).batons[0].params.tolist() == [2, 1.75]
    # Nobody agrees, or fewer than the inner merge needs: nothing changes.
    assert Agreeing(Mean(), 0.9)(state, outcomes).batons[0].params.tolist() == [1, 1]
    assert Agreeing(Median(), 0.5)(state, outcomes).batons[0].params.tolist() == [1, 1]


def test_a_defence_of_no_strength_is_the_method_itself():
    plain = fr.method(fedseq(max_clients=3), local=LOCAL)
    assert fr.method(fedseq(max_clients=3), local=LOCAL, defence=Defence()) == plain
    assert fr.method(fedseq(max_clients=3), local=LOCAL, defence=Defence(math.inf, math.inf)) == plain


@pytest.fixture(scope="module")
def pools():
    with shared_pools() as made:
        yield made


@pytest.mark.parametrize(
    "defence",
    [Defence(bound=0.05, tolerance=1.05), Defence(agreement=0.1), Defence(bound=1e6, tolerance=1e6)],
    ids=["bound and tolerance", "agreement", "too weak to act"],
)
def test_defences_have_the_same_bits_on_every_engine_and_after_a_stop(defence, pools: Pools, tmp_path):
    federation = fr.Federation.split(digits(), Dirichlet(alpha=0.1), 12, 1)
    task = fr.Task.of(fr.models.Mlp(hidden=(4,)), federation)
    made = {"local": fr.Sgd(batch=16, lr=0.1), "fraction": 1.0}
    algorithm = fr.method(fedseq(max_clients=4), defence=defence, **made)
    pool = pools.setdefault((len(federation), task), Pool(federation, task, 1, workers=2))
    engine = Inline(federation, task, 1)
    states, _ = trained(algorithm, engine)
    remote = in_process.remote(algorithm, federation, task, tmp_path / "remote")
    for other in (pool, remote):
        assert same_bits(models(states), models(trained(algorithm, other)[0]))
    last, _ = resumed(algorithm, engine, tmp_path / "run")
    assert same_bits(models(states[-1:]), models(last))
    for one, other in zip(models(states), models(trained(algorithm, Stacked(federation, task, 1))[0]), strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-2)
    plain = models(trained(fr.method(fedseq(max_clients=4), **made), engine)[0])
    acts = defence.bound < 1e6 or defence.agreement is not None
    assert same_bits(models(states), plain) is not acts
    if defence.bound < 1:
        assert sum(state.log.defence["bounded"] for state in states) == 3 * 12
        assert 0 < sum(state.log.defence["skipped"] for state in states) < 3 * 12


def test_the_last_global_model_and_the_relaying_are_counted(engine):
    def sent(defence: Defence | None) -> dict[str, int]:
        method = fr.method(fedseq(groups=2), local=LOCAL, fraction=1.0, defence=defence)
        return next(fr.train(method, engine, rounds=1)).log.bytes

    model = 2 * 4  # two numbers; two chains of three clients
    assert sent(None) == {"server_to_client": 2 * model, "client_to_server": 2 * model, "client_to_client": 4 * model}
    assert sent(Defence(tolerance=2.0))["server_to_client"] == (2 + 6) * model
    assert sent(Defence(bound=1.0)) == {
        "server_to_client": 6 * model,
        "client_to_server": 6 * model,
        "client_to_client": 0,
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Defence(bound=0.0), "bound must be above 0"),
        (lambda: Defence(tolerance=math.nan), "tolerance must be above 0, not nan"),
        (lambda: Defence(agreement=1.5), "agreement must be at least -1 and at most 1"),
        (lambda: fr.method(dfedavgm(), defence=Defence(bound=1.0)), "has no server that could relay"),
        (lambda: fr.method(fedseqinter(), defence=Defence(tolerance=1.0)), "merges only now and then"),
        (lambda: fr.method(fedbn(), defence=Defence(tolerance=1.0)), "here parts of them stay at home"),
    ],
)
def test_defences_that_make_no_sense_are_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def test_chains_of_one_cannot_be_compared(engine):
    with pytest.raises(BadInput, match=r"client . is a chain of its own: longer chains can be cut in two"):
        next(fr.train(fr.method(local=LOCAL, defence=Defence(agreement=0.0)), engine, rounds=1))


def test_a_run_records_what_its_defences_did_and_its_page_shows_it(tmp_path):
    tables = {
        "rounds": 2,
        "data": {"name": "digits", "clients": 8},
        "model": {"name": "mlp", "hidden": [4]},
        "engine": {"name": "inline"},
        "algorithm": {"name": "fedseq", "max_clients": 4, "defence": {"bound": 0.01}},
    }
    experiment = config.build(tables)
    wanted = {"bound": 0.01, "tolerance": math.inf}
    assert experiment.tables["algorithm"]["defence"] == wanted
    assert config.build(experiment.tables).tables == experiment.tables
    list(experiment.record(tmp_path / "run").run())
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["defence"] for line in lines] == [{"bounded": 8.0}] * 2
    assert load(tmp_path / "run").summary.defence == {"bounded": 16.0}
    assert "hops shortened" in page.html([load(tmp_path / "run")])


def test_a_method_with_a_defence_is_a_value_that_can_be_compared_and_sent():
    algorithm = defended(fr.method(fedseq()), Defence(bound=1.0, agreement=0.0))
    assert replace(algorithm) == algorithm
    assert algorithm.relayed


def test_the_bound_holds_for_an_attacker_too(engine):
    # It goes 30 times as far as it has trained, and comes 0.01 far.
    attack = Attacked(Defended(LOCAL, bound=0.01), Scaled(scale=30.0), frozenset({(3, 0)}))
    (outcome,) = engine.run(attack, [Chain(Baton(torch.zeros(2)), (3,))], {}, 1)
    assert float(torch.linalg.vector_norm(outcome.baton.params)) == pytest.approx(0.01, rel=1e-5)
    assert outcome.reports[0].metrics["bounded"] == 1
