from __future__ import annotations

import tomllib

import pytest
import tomli_w

from fedrelay import BadInput, config
from fedrelay.algorithms import ALGORITHMS
from fedrelay.config import schema
from fedrelay.tasks import Huber
from fedrelay.visits import Adam, AdamW, Distillation, Proximal, Sgd, Sharpness
from fedrelay.visits.schedules import Step
from fedrelay.visits.traits import ClassifierWeights

TABLES = {
    "data": {"name": "digits", "clients": 10},
    "model": {"name": "mlp", "hidden": [8]},
    "algorithm": {"name": "fedavg"},
}


def built(**changes):
    return config.build({**TABLES, **changes})


def test_defaults_are_filled_in_and_the_resolved_form_builds_the_same():
    first = built()
    assert first.tables["algorithm"] == {"name": "fedavg", "fraction": 1.0, "sampler": {"name": "uniform"}}
    assert first.tables["local"]["lr"] == 0.05
    assert first.tables["data"]["partition"] == {"name": "iid"}
    again = config.build(tomllib.loads(tomli_w.dumps(first.tables)))
    assert again.tables == first.tables
    assert again.fingerprint == first.fingerprint


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_round_trips_through_its_resolved_configuration(name):
    first = built(algorithm={"name": name}, model={"name": ALGORITHMS[name].model})
    again = config.build(tomllib.loads(tomli_w.dumps(first.tables)))
    assert again.algorithm == first.algorithm
    assert again.tables == first.tables


def test_a_method_says_how_many_rounds_there_usually_are_and_the_user_has_the_last_word():
    once = {"algorithm": {"name": "fedelmy"}}
    assert [built(**each).tables["rounds"] for each in ({}, once, {**once, "rounds": 3})] == [100, 1, 3]


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ({}, Adam(batch=128, lr=5e-5, weight_decay=1e-4, keep="best", validation=0.1)),
        ({"lr": 0.1, "epochs": 3}, Adam(3, batch=128, lr=0.1, weight_decay=1e-4, keep="best", validation=0.1)),
        ({"optimiser": "sgd"}, Sgd(batch=128, keep="best", validation=0.1)),
        ({"keep": "last"}, Adam(batch=128, lr=5e-5, weight_decay=1e-4)),
        ({"validation": 0.0}, Adam(batch=128, lr=5e-5, weight_decay=1e-4)),
        ({"validation": 0.2}, Adam(batch=128, lr=5e-5, weight_decay=1e-4, keep="best", validation=0.2)),
    ],
)
def test_a_method_says_how_clients_usually_train_and_the_user_has_the_last_word(local, expected):
    experiment = built(algorithm={"name": "sequential"}, local=local)
    assert experiment.algorithm.update == expected
    again = config.build(tomllib.loads(tomli_w.dumps(experiment.tables)))
    assert again.algorithm.update == expected
    assert built(algorithm={"name": "fedavg"}).algorithm.update == Sgd()


def test_a_method_that_needs_plain_steps_does_not_get_the_optimiser_that_another_usually_has():
    assert isinstance(built(algorithm={"name": "sequential+scaffold"}).algorithm.update, Sgd)
    assert isinstance(built(algorithm={"name": "sequential+fedprox"}).algorithm.update, Adam)


def test_an_order_of_clients_is_a_word_or_a_list():
    for order in ("by_size", [2, 0, 1, 3, 4, 5, 6, 7, 8, 9], ["photo", "sketch"]):
        experiment = built(algorithm={"name": "fedelmy", "order": order})
        assert experiment.tables["algorithm"]["order"] == order
        assert experiment.algorithm.plan.order == (order if isinstance(order, str) else tuple(order))
    with pytest.raises(BadInput, match=r"\[algorithm\].order: expected"):
        built(algorithm={"name": "fedelmy", "order": 3})


def test_nested_choices_take_a_table_or_a_name():
    table = built(local={"schedule": {"name": "step", "every": 7}})
    assert table.algorithm.update.schedule == Step(every=7)
    assert table.tables["local"]["schedule"] == {"name": "step", "every": 7, "factor": 0.1}
    assert built(local={"schedule": "step"}).algorithm.update.schedule == Step()


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ({}, Sgd()),
        ({"optimiser": "adamw", "lr": 0.01}, AdamW(lr=0.01)),
        ({"terms": ["proximal", {"name": "sharpness", "rho": 0.2}]}, Sgd(terms=(Proximal(), Sharpness(0.2)))),
        ({"pull": {"name": "proximal", "mu": 0.3}}, Sgd(terms=(Proximal(0.3),))),
        ({"pull": "none", "objective": "none", "sam": 0.0}, Sgd()),
        (
            {"objective": "distillation", "sam": 0.1, "optimiser": "adam"},
            Adam(terms=(Distillation(), Sharpness(0.1))),
        ),
        ({"keep": "best", "validation": 0.1, "epochs": 3}, Sgd(epochs=3, keep="best", validation=0.1)),
    ],
)
def test_the_local_training_is_an_optimiser_with_terms_also_by_their_short_forms(local, expected):
    first = built(local=local)
    assert first.algorithm.update == expected
    again = config.build(tomllib.loads(tomli_w.dumps(first.tables)))
    assert again.algorithm == first.algorithm
    assert again.fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("local", "expected"),
    [({"lr": 0.2}, Sgd(lr=0.2)), ({"optimiser": "adam"}, Adam()), ({"sam": 0.1}, Sgd(terms=(Sharpness(0.1),)))],
)
def test_a_trait_may_have_a_training_of_its_own(local, expected):
    first = built(algorithm={"name": "fedseq", "traits": {"name": "classifier", "local": local}})
    assert first.algorithm.plan.grouping.traits == ClassifierWeights(local=expected)
    again = config.build(tomllib.loads(tomli_w.dumps(first.tables)))
    assert again.algorithm == first.algorithm
    assert again.tables == first.tables


def test_a_refusal_names_the_methods_that_are_joined_and_nothing_where_there_is_one():
    with pytest.raises(BadInput, match=r"^\[algorithm\]: fedseq \+ fedcyclic: both say who trains after whom"):
        built(algorithm={"name": "fedseq+fedcyclic"})
    with pytest.raises(BadInput, match=r"^\[algorithm\]: fraction must be above 0"):
        built(algorithm={"name": "fedseq", "fraction": 0})


def test_none_is_said_by_a_word():
    def target(*, size: int | None = 5) -> int | None:
        return size

    assert schema.build(target, {}, "[here]", {}) == (5, {"size": 5})
    assert schema.build(target, {"size": "none"}, "[here]", {}) == (None, {"size": "none"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rouns": 3}, "unknown key 'rouns'; did you mean 'rounds'"),
        ({"algoritm": {}}, "unknown key 'algoritm'; did you mean 'algorithm'"),
        ({"algorithm": {"name": "fedsec"}}, r"\[algorithm\]: unknown name 'fedsec'; did you mean 'fedseq'"),
        (
            {"algorithm": {"name": "fedseq", "max_client": 3}},
            r"\[algorithm\]: unknown key 'max_client'; did you mean 'max_clients'",
        ),
        ({"algorithm": {}}, r"\[algorithm\]: name is missing; one of .*fedavg"),
        (
            {"algorithm": {"name": "fedavg", "fraction": 0}},
            r"\[algorithm\]: fraction must be above 0 and at most 1, not 0",
        ),
        ({"algorithm": {"name": "fedavg", "fraction": "x"}}, r"\[algorithm\].fraction: expected a number, not 'x'"),
        ({"algorithm": {"name": "fedavg", "local": {}}}, r"\[algorithm\]: unknown key 'local'"),
        ({"local": {"lr": -1}}, r"\[local\]: lr must be at least 0, not -1"),
        ({"local": {"epochs": 1.5}}, r"\[local\].epochs: expected a whole number, not 1.5"),
        ({"local": {"epochs": True}}, r"\[local\].epochs: expected a whole number, not True"),
        ({"local": 3}, "local must be a section"),
        ({"local": {"schedule": {"name": "stepp"}}}, r"\[local\].schedule: unknown name 'stepp'; did you mean 'step'"),
        ({"local": {"optimiser": "adan"}}, r"\[local\].optimiser: unknown name 'adan'; did you mean 'adam'"),
        ({"local": {"optimiser": "adam", "betta1": 0.9}}, r"\[local\]: unknown key 'betta1'; did you mean 'beta1'"),
        ({"local": {"lerning": 0.1}}, r"\[local\]: unknown key 'lerning'"),
        ({"local": {"terms": "proximal"}}, r"\[local\].terms: expected a list of names"),
        ({"local": {"terms": ["proximl"]}}, r"\[local\].terms: unknown name 'proximl'; did you mean 'proximal'"),
        ({"local": {"pull": "proximl"}}, r"^\[local\].pull: unknown name 'proximl'; did you mean 'proximal'"),
        ({"local": {"sam": -1}}, r"^\[local\].sam must be at least 0, not -1"),
        ({"local": {"sam": 0.1, "terms": ["sharpness"]}}, r"^\[local\]: two terms decide the radius of SAM"),
        ({"local": {"keep": "best"}}, r"\[local\]: keep = \"best\" needs .*validation = 0.1"),
        (
            {"algorithm": {"name": "fedseq", "traits": {"name": "confidence", "local": {"optimizer": "adam"}}}},
            r"\[algorithm\].traits.local: unknown key 'optimizer'; did you mean 'optimiser'",
        ),
        (
            {"algorithm": {"name": "fedseq", "traits": {"name": "confidence", "local": 3}}},
            r"\[algorithm\].traits.local: expected a table such as \{lr = 0.1\}, not 3",
        ),
        ({"local": {"schedule": 3}}, r"\[local\].schedule: expected a name or a table"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"rounds": "many"}, "rounds: expected a whole number, not 'many'"),
        ({"checkpoint": 0}, "checkpoint must be at least 1"),
        ({"data": {"name": "digits", "clients": 0}}, r"\[data\].clients must be at least 1"),
        ({"data": {"name": "digits", "clients": 5000}}, r"\[data\]: .*1438"),
        ({"data": {"name": "digitz"}}, "did you mean 'digits'"),
        (
            {"data": {"name": "digits", "partition": "dirichlt"}},
            r"\[data\].partition: unknown name 'dirichlt'; did you mean 'dirichlet'",
        ),
        ({"model": {"name": "lenet5"}}, r"8x8"),
        ({"model": {"name": "mlp", "hidden": 3}}, r"\[model\].hidden: expected a list"),
        ({"engine": {"name": "inline", "threads": 0}}, r"\[engine\]: threads must be at least 1"),
        ({"evaluate": {"target": 2.0}}, r"\[evaluate\]: target must be above 0 and at most 1"),
    ],
)
def test_mistakes_are_refused_with_their_place_and_what_would_work(changes, message):
    with pytest.raises(BadInput, match=message):
        built(**changes)


def test_overrides_are_read_as_toml_and_otherwise_as_text():
    found = config.override(
        TABLES, ["algorithm.name=fedseq", "algorithm.fraction=0.5", "model.hidden=[4, 4]", "seed=9"]
    )
    assert found["algorithm"] == {"name": "fedseq", "fraction": 0.5}
    assert found["model"]["hidden"] == [4, 4]
    assert found["seed"] == 9
    assert TABLES["algorithm"] == {"name": "fedavg"}
    with pytest.raises(BadInput, match="expected key=value"):
        config.override(TABLES, ["seed"])
    with pytest.raises(BadInput, match="name is a value, not a section"):
        config.override(TABLES, ["model.name.x=1"])


def test_files_that_cannot_be_read_are_named_in_full(tmp_path):
    with pytest.raises(BadInput, match=str(tmp_path / "no.toml")):
        config.read(tmp_path / "no.toml")
    with pytest.raises(BadInput, match="cannot be read"):
        config.read(tmp_path)
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(BadInput, match=r"bad.toml is not valid TOML: .*line 1"):
        config.read(tmp_path / "bad.toml")


def test_the_fingerprint_knows_what_decides_the_results_and_nothing_else():
    same = built(rounds=7, checkpoint=2).fingerprint
    assert same == built().fingerprint
    assert same != built(seed=1).fingerprint
    assert same != built(local={"lr": 0.2}).fingerprint


@pytest.mark.parametrize(
    ("clients", "name", "fraction"),
    [(20, "fedavg", 1.0), (21, "fedavg", 0.2), (12, "fedgsp", 1.0), (30, "fedgsp", 0.3), (20, "fedavg+fedprox", 1.0)],
)
def test_the_fraction_that_nobody_gave_is_stated(clients, name, fraction):
    """0.3 is the fraction of FedGSP's paper."""
    tables = {
        "data": {"name": "digits", "clients": clients},
        "model": {"name": "logistic"},
        "algorithm": {"name": name},
    }
    assert config.build(tables).tables["algorithm"]["fraction"] == fraction
    given = {**tables, "algorithm": {"name": name, "fraction": 0.5}}
    assert config.build(given).tables["algorithm"]["fraction"] == 0.5


PATIENTS = {"data": {"name": "diabetes", "clients": 4}, "model": {"name": "logistic"}}


def test_a_task_section_chooses_loss_metrics_and_headline_and_its_resolved_form_builds_the_same():
    section = {"loss": {"name": "huber", "delta": 10.0}, "metrics": ["r2", "mae"], "headline": "mae"}
    first = built(**PATIENTS, task=section, evaluate={"target": 45.0})
    assert (first.task.loss, first.task.headline.name) == (Huber(10.0), "mae")
    assert first.tables["task"]["metrics"] == [{"name": "r2"}, {"name": "mae"}]
    again = config.build(tomllib.loads(tomli_w.dumps(first.tables)))
    assert (again.tables, again.task) == (first.tables, first.task)


def test_the_section_is_resolved_where_the_targets_are_no_classes_and_absent_where_they_are():
    assert "task" not in built().tables
    assert built().tables["evaluate"]["target"] == 1.0
    numbers = built(**PATIENTS)
    assert numbers.tables["task"]["loss"] == {"name": "mse"}
    assert numbers.tables["task"]["headline"] == "rmse"
    assert "target" not in numbers.tables["evaluate"]  # an error has no upper end
    weighted = built(task={"loss": {"name": "cross_entropy", "weights": [1.0] * 9 + [2.0]}})
    assert weighted.tables["task"]["loss"]["weights"] == [1.0] * 9 + [2.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": {"loss": "mse"}}, r"\[task\]: the loss mse learns numbers, but the examples have one class each"),
        ({"task": {"loss": "hubert"}}, r"\[task\].loss: unknown name 'hubert'; did you mean 'huber'"),
        ({"task": {"metrics": ["mae"]}}, r"\[task\]: the metric mae judges numbers"),
        ({"task": {"metrics": "mae"}}, r"\[task\].metrics: expected a list of names"),
        ({"task": {"headline": "f1"}}, r"\[task\]: the headline 'f1' is not among the figures"),
        ({"task": {"loss": {"name": "cross_entropy", "weights": [1.0]}}}, r"\[task\]: weights must have one number"),
        ({"task": {"lost": 1}}, r"\[task\]: unknown key 'lost'"),
        ({**PATIENTS, "data": {**PATIENTS["data"], "partition": "shards"}}, "have numbers .*not one class each"),
    ],
)
def test_a_task_that_does_not_fit_is_refused_with_its_place(changes, message):
    with pytest.raises(BadInput, match=message):
        built(**changes)


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("sequential", {"order": "sorted"}, "expected one of random, given, by_size, by_domain or a list"),
        ("sequential", {"order": [0, "one", True]}, r"one of random, .*, not \[0, 'one', True\]"),
        ("dfedavgm", {"tested": "all"}, "expected one of mean, each or a whole number, not 'all'"),
    ],
)
def test_where_several_kinds_of_value_are_taken_a_refusal_names_them_all(name, setting, message):
    with pytest.raises(BadInput, match=message):
        config.build({"data": {"name": "digits"}, "model": {"name": "mlp"}, "algorithm": {"name": name, **setting}})


@pytest.mark.parametrize("name", ["sequential", "fedelmy", "fedov", "maecho"])
def test_methods_of_one_shot_have_one_round_unless_one_says_more(name):
    tables = {"data": {"name": "digits", "clients": 3}, "model": {"name": "mlp"}, "algorithm": {"name": name}}
    assert config.build(tables).tables["rounds"] == 1
    assert config.build(tables | {"rounds": 3}).tables["rounds"] == 3
