"""Methods joined: which pairs go together, what the pair is, and which pairs are refused and why."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest
import tomli_w

from fedrelay import BadInput, Federation, Sgd, Task, config
from fedrelay.algorithms import (
    ALGORITHMS,
    fedadam,
    fedavg,
    fedcyclic,
    feddyn,
    fedprox,
    fedsam,
    fedseq,
    fedseqinter,
    scaffold,
)
from fedrelay.algorithms.compose import compose, join
from fedrelay.algorithms.feddyn import Dynamic, DynamicMerge
from fedrelay.algorithms.scaffold import ControlMerge
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline
from fedrelay.merges import Adam, Every, Mean, Median, PlainMean
from fedrelay.models import Mlp
from fedrelay.plans import Superclients
from fedrelay.plans.sampling import SAMPLERS
from fedrelay.runs.loop import deployed, train
from fedrelay.visits.pulls import Proximal, Pulls

LOCAL = Sgd(batch=8, lr=0.1)
TABLES = {
    "data": {"name": "digits", "clients": 12, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 16, "lr": 0.1},
}
PLANS = [
    "fedseq",
    "fedseqinter",
    "fedasyncseq",
    "fedseq2par",
    "fedgsp",
    "naivegsp",
    "naivegsp_icg",
    "fedcyclic",
]
METHODS = [
    "fedprox",
    "scaffold",
    "feddyn",
    "fedsam",
    "fedmmd",
    "fedfusion",
    "ida",
    "fedavgm",
    "fedadagrad",
    "fedadam",
    "fedyogi",
]
LATE = "chains that are late are given up"
MEANINGLESS = {
    ("fedasyncseq", "scaffold"): LATE,
    ("fedasyncseq", "feddyn"): LATE,
    ("fedcyclic", "ida"): "compares several chains",
}


@pytest.fixture
def engine() -> Inline:
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 12, 1)
    return Inline(federation, Task.of(Mlp(hidden=(8,)), federation), 1)


def models(algorithm, engine, rounds=2):
    return [deployed(state).numpy() for state in train(algorithm, engine, rounds=rounds)]


def built(name: str, **settings):
    return config.build({**TABLES, "algorithm": {"name": name, **settings}}).algorithm


def test_the_plan_comes_from_one_and_the_training_and_merge_from_the_other():
    both = compose(fedseq(local=LOCAL, max_clients=3), feddyn(local=LOCAL, alpha=0.3))
    assert isinstance(both.plan, Superclients)
    assert both.update == replace(LOCAL, pull=Dynamic(0.3))
    assert both.merge == DynamicMerge(0.3)


def test_the_order_of_the_names_does_not_matter(engine):
    one, other = fedseq(local=LOCAL, max_clients=3), scaffold(local=LOCAL)
    for a, b in zip(models(compose(one, other), engine), models(compose(other, one), engine), strict=True):
        assert np.array_equal(a, b)


def test_joined_to_fedavg_a_method_is_itself():
    for recipe in (fedprox, scaffold, feddyn, fedadam, fedseq):
        assert compose(fedavg(local=LOCAL), recipe(local=LOCAL)) == recipe(local=LOCAL)


def test_groups_of_one_with_a_method_are_the_method_to_the_bit(engine):
    for recipe in (fedprox, scaffold, feddyn, fedadam):
        alone = models(recipe(local=LOCAL, fraction=0.5), engine)
        grouped = compose(fedseq(local=LOCAL, fraction=0.5, max_clients=1), recipe(local=LOCAL, fraction=0.5))
        assert all(np.array_equal(a, b) for a, b in zip(alone, models(grouped, engine), strict=True))


def test_a_merge_now_and_then_takes_the_other_merge_inside():
    both = compose(fedseqinter(local=LOCAL, period=4), feddyn(local=LOCAL, alpha=1.0))
    assert both.merge == Every(DynamicMerge(1.0), 4)
    assert compose(fedadam(local=LOCAL), fedseqinter(local=LOCAL, period=4)).merge == Every(Adam(), 4)


@pytest.mark.parametrize("recipe", [feddyn, scaffold, fedadam])
def test_fedseqinter_that_merges_every_round_is_fedseq_with_any_method_to_the_bit(recipe, engine):
    settings = {"local": LOCAL, "fraction": 0.5, "max_clients": 3}
    every = compose(fedseqinter(**settings, period=1), recipe(local=LOCAL))
    plain = compose(fedseq(**settings), recipe(local=LOCAL))
    assert all(np.array_equal(a, b) for a, b in zip(models(every, engine), models(plain, engine), strict=True))


def test_pulls_add_up_and_sam_goes_with_them():
    three = compose(compose(fedprox(local=LOCAL, mu=0.5), scaffold(local=LOCAL)), fedsam(local=LOCAL, rho=0.1))
    assert isinstance(three.update.pull, Pulls)
    assert three.update.pull.parts[0] == Proximal(0.5)
    assert three.update.sam == 0.1
    assert three.merge == ControlMerge()


def test_what_the_user_set_in_local_stays():
    local = replace(LOCAL, pull=Proximal(0.7), weight_decay=0.1)
    both = compose(fedseq(local=local), feddyn(local=local))
    assert both.update.pull == Pulls((Proximal(0.7), Dynamic()))
    assert both.update.weight_decay == 0.1


def trains(experiment) -> bool:
    """Whether two rounds change the model, and nobody is lost."""
    states = list(train(experiment.algorithm, experiment.engine, rounds=2))
    return not np.array_equal(*(deployed(state) for state in states)) and not any(s.log["drops"] for s in states)


def test_the_two_lists_are_all_methods():
    assert {*PLANS, *METHODS, "fedavg", "centralized"} == set(ALGORITHMS)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("method", METHODS)
def test_every_plan_goes_with_every_method_by_name(plan, method):
    tables = {**TABLES, "algorithm": {"name": f"{plan}+{method}"}, "engine": {"name": "inline"}}
    if (plan, method) in MEANINGLESS:
        with pytest.raises(BadInput, match=MEANINGLESS[plan, method]):
            config.build(tables)
        return
    first = config.build(tables)
    again = config.build(tomllib.loads(tomli_w.dumps(first.tables)))
    assert again.algorithm == first.algorithm
    assert again.tables == first.tables
    alone = config.build({**TABLES, "algorithm": {"name": plan}}).algorithm
    assert first.algorithm.plan == alone.plan
    assert first.algorithm != alone
    assert trains(first)


@pytest.mark.parametrize("sampler", ["md", "by_size", "by_similarity", "target"])
@pytest.mark.parametrize(
    "name",
    ["scaffold", "feddyn", "fedprox", "fedadam", "fedfusion", "ida", "fedseq+scaffold", "fedseqinter+feddyn"],
)
def test_methods_go_with_samplers(name, sampler):
    settings = {"name": name, "sampler": sampler, "fraction": 0.5}
    assert trains(config.build({**TABLES, "algorithm": settings, "engine": {"name": "inline"}}))


@pytest.mark.parametrize("sampler", ["md", "by_size", "by_similarity", "target"])
def test_fast_groups_are_drawn_by_any_sampler_too(sampler):
    settings = {"name": "fedasyncseq", "sampler": sampler, "fraction": 0.5, "max_clients": 2, "period": 4}
    experiment = config.build({**TABLES, "algorithm": settings, "latency": {}, "engine": {"name": "inline"}})
    assert experiment.algorithm.plan.groups.sampler == SAMPLERS[sampler]()
    states = list(train(experiment.algorithm, experiment.engine, rounds=6, latency=experiment.latency))
    assert any(state.waiting for state in states)


def test_parameters_of_both_are_taken():
    both = built("fedseq+feddyn", fraction=0.5, max_clients=4, alpha=0.25)
    assert both.plan.fraction == 0.5
    assert both.merge == DynamicMerge(0.25)


def test_every_method_whose_merge_is_the_mean_takes_another_and_another_sampler():
    for name in ("fedavg", "fedseq", "fedprox", "fedsam"):
        assert built(name, merge="median").merge == Median()
    assert built("fedseqinter", merge="plain_mean").merge.merge == PlainMean()
    sampler = SAMPLERS["multinomial"]() if "multinomial" in SAMPLERS else SAMPLERS["md"]()
    name = next(key for key, value in SAMPLERS.items() if value is type(sampler))
    assert built("fedprox", sampler=name).plan.sampler == sampler
    assert built("scaffold", sampler=name).merge == ControlMerge()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "fedseq+fedcyclic"}, r"fedseq \+ fedcyclic: both say who trains after whom"),
        ({"name": "scaffold+feddyn"}, r"scaffold \+ feddyn: both say how models are merged"),
        ({"name": "fedadam+fedyogi"}, "both say how models are merged"),
        ({"name": "fedmmd+fedfusion"}, "both say what is minimised in place of the loss"),
        ({"name": "centralized+fedprox"}, "the reference without federation"),
        ({"name": "fedseq+fedseq"}, "names a method twice"),
        ({"name": "fedseq+fedprx"}, "unknown name 'fedprx'; did you mean 'fedprox'"),
        ({"name": "fedseq+"}, "unknown name ''"),
        ({"name": "fedcyclic", "merge": "median"}, "compares several chains, and here all clients are one chain"),
        ({"name": "fedcyclic+ida"}, "compares several chains"),
        ({"name": "feddyn", "merge": "median"}, "both say how models are merged"),
        ({"name": "fedasyncseq+scaffold"}, "chains that are late are given up"),
        ({"name": "fedasyncseq+feddyn"}, "chains that are late are given up"),
        ({"name": "fedasyncseq", "sampler": "full"}, "takes everybody at once"),
        ({"name": "fedseqinter", "sampler": "original"}, "original needs the merge with_absent"),
        ({"name": "fedcyclic", "sampler": "original"}, "original needs the merge with_absent"),
        ({"name": "fedseqinter", "merge": "with_absent"}, "here models are merged after several"),
        ({"name": "fedasyncseq+fedprox", "merge": "with_absent"}, "here models are merged after several"),
        ({"name": "fedseq", "merge": "with_absent", "laps": 2}, "here laps count them several times"),
        ({"name": "fedadam+fedavgm", "server_lr": 0.1}, "server_lr is a parameter of fedadam and of fedavgm"),
        ({"name": "fedseq+fedprox", "nu": 0.1}, "unknown key 'nu'; did you mean 'mu'"),
        ({"name": "fedprox", "mu": -1}, "mu must be at least 0"),
        (
            {"name": "fedavg", "merge": {"name": "krum", "suspects": -1}},
            r"\[algorithm\].merge: suspects must be at least 0",
        ),
        ({"name": "fedavg", "merge": "medain"}, r"\[algorithm\].merge: unknown name 'medain'; did you mean 'median'"),
        ({"name": "centralized", "merge": "median"}, "unknown key 'merge'"),
    ],
)
def test_pairs_without_a_meaning_are_refused_with_the_reason(settings, message):
    with pytest.raises(BadInput, match=message):
        config.build({**TABLES, "algorithm": settings})


def test_records_that_train_differently_are_refused():
    with pytest.raises(BadInput, match="the local training differs"):
        compose(fedseq(local=Sgd(lr=0.1)), fedprox(local=Sgd(lr=0.2)))
    with pytest.raises(BadInput, match=r"the fractions differ, 0.2 and 0.5"):
        compose(fedavg(local=LOCAL), fedprox(local=LOCAL, fraction=0.5))
    with pytest.raises(BadInput, match="both say the radius of SAM"):
        compose(fedsam(local=LOCAL, rho=0.1), fedsam(local=LOCAL, rho=0.2))


def test_an_update_of_its_own_goes_with_a_plan_but_not_with_another_update():
    own = replace(fedavg(local=LOCAL), update=Strange())
    assert compose(fedcyclic(local=LOCAL), own).update == Strange()
    with pytest.raises(BadInput, match="both train in a way of their own"):
        compose(own, fedprox(local=LOCAL))


class Strange:
    """A Work that is not Sgd."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Strange)

    def __hash__(self) -> int:
        return 0


def test_the_joined_recipe_tells_its_parameters():
    recipe = join({"fedseq": fedseq, "fedprox": fedprox})
    assert recipe(local=LOCAL, mu=0.2).update.pull == Proximal(0.2)
    assert recipe(local=LOCAL, merge=PlainMean()).merge == PlainMean()
    assert recipe(local=LOCAL).merge == Mean()
