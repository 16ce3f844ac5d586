"""Advice: distances and costs are the closed forms, rules do what they say, and nothing is predicted in one number."""

from __future__ import annotations

import inspect
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrelay import BadInput, Federation, Task, config
from fedrelay.algorithms import ALGORITHMS, fedelmy
from fedrelay.cli import main
from fedrelay.config.method import names_of
from fedrelay.data import digits
from fedrelay.models import Mlp
from fedrelay.plans.growth import Logarithmic
from fedrelay.studies.advise import Advice, Wishes, advise, told, unlike
from fedrelay.studies.advise.advice import command, tables_for
from fedrelay.studies.advise.evidence import LIKE, SPEEDS, scaled, speed_of
from fedrelay.studies.advise.facts import Facts
from fedrelay.studies.advise.round_costs import Line, Shape, break_even, hops, messages, seconds
from fedrelay.studies.advise.rules import DIRECT, RULES, STATEFUL, applied
from fedrelay.studies.advise.shortlist import shortlist
from fedrelay.studies.marks import filled

PAGE = Path(__file__).parents[2] / "docs" / "advise.md"
TABLES = {
    "rounds": 100,
    "data": {"name": "digits", "clients": 50, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "model": {"name": "mlp"},
    "local": {"batch": 16, "lr": 0.1},
    "engine": {"name": "inline"},
}
ONE_CLASS = Facts(
    by="traffic",
    reach="direct",
    state=True,
    clients=500,
    classes=10,
    sizes=(100, 100, 100),
    h=0.83,
    by_chance=0.11,
    diversity=None,
    single=True,
    shortest=None,
    parameters=800_000,
    model_bytes=3_200_000,
    steps=5,
    fraction=0.2,
    rounds=300,
    visits=60.0,
    lr=0.1,
    line=Line(1.0, 1.0),
    prices=(1.0, 1.0),
    stragglers=1.0,
    attackers=0.0,
)
ALIKE = replace(ONE_CLASS, h=0.12, single=False)


def methods(facts: Facts) -> list[str]:
    return [one.method for one in shortlist(facts, applied(facts))]


# --- distances


@pytest.mark.parametrize("own", [1, 2, 5, 10])
def test_clients_with_some_of_ten_classes_in_equal_parts_have_the_closed_form(own):
    counts = np.array([[60 // own if (c - k) % 10 < own else 0 for c in range(10)] for k in range(10)])
    assert unlike.distance(counts) == pytest.approx((1 - (own / 10) ** 0.5) ** 0.5)


def dirichlet_counts(alpha: float, classes: int = 10, examples: int = 100) -> np.ndarray:
    """400 clients whose mixes are drawn around an even one, and their examples from these."""
    rng = np.random.default_rng(0)
    return np.stack([rng.multinomial(examples, rng.dirichlet([alpha] * classes)) for _ in range(400)])


@pytest.mark.parametrize(("alpha", "h"), [(0.1, 0.67), (0.2, 0.59), (0.5, 0.45), (1, 0.35), (5, 0.18), (100, 0.11)])
def test_dirichlet_splits_have_the_distances_that_were_computed_elsewhere(alpha, h):
    assert unlike.distance(dirichlet_counts(alpha)) == pytest.approx(h, abs=0.03)


def test_few_examples_of_many_classes_look_unlike_by_chance_alone():
    counts = dirichlet_counts(100, classes=100)
    chance = unlike.distance_by_chance(counts, np.random.default_rng(1))
    assert unlike.distance(counts) == pytest.approx(0.48, abs=0.02)
    assert chance == pytest.approx(0.48, abs=0.02)
    assert unlike.excess(unlike.distance(counts), chance) < 0.15
    assert unlike.excess(0.5, 0.3) == pytest.approx(0.4)
    assert unlike.excess(0.3, 0.5) == 0


def test_random_groups_of_ten_one_class_clients_have_the_distance_that_was_computed_elsewhere():
    counts = np.kron(np.eye(10, dtype=np.int64) * 100, np.ones((40, 1), dtype=np.int64))
    rng = np.random.default_rng(0)
    assert unlike.distance_of_groups(counts, 10, rng) == pytest.approx(0.45, abs=0.03)
    assert unlike.shortest_chain(counts, 0.2, 10, rng) is None
    assert unlike.shortest_chain(np.full((20, 10), 10), 0.2, 10, rng) == 1


def test_diversity_of_gradients_is_the_closed_form_and_nothing_for_equal_clients():
    assert unlike.diversity([torch.tensor([2.0, 0.0]), torch.tensor([0.0, 2.0])]) == pytest.approx(1.0)
    source, rows = digits(), np.arange(50)
    same = Federation.of(source, [rows, rows, rows])
    assert unlike.diversity(unlike.gradients(same, Task.of(Mlp(hidden=(8,)), same), 0)) == pytest.approx(0, abs=1e-6)
    labels = source.train.labels
    apart = Federation.of(source, [np.flatnonzero(labels == label)[:40] for label in range(10)])
    own, even = unlike.diversities(apart, Task.of(Mlp(hidden=(8,)), apart), 0)
    assert own > 2 * even


# --- costs


def test_the_messages_of_a_round_are_those_of_the_papers():
    visits, groups = 100.0, 10.0  # C K, and C G with chains of ten
    assert sum(messages(Shape(), visits)) == 2 * visits
    assert sum(messages(Shape(extra=2), visits)) == 4 * visits  # SCAFFOLD
    assert sum(messages(Shape(10), visits)) == groups + visits
    assert sum(messages(Shape(10), visits)) / (2 * visits) == pytest.approx((1 + 1 / 10) / 2)
    assert sum(messages(Shape(100), visits)) == visits + 1  # FedCyclic
    assert messages(Shape(10, relayed=True), visits) == (2 * visits, 0.0)
    assert messages(Shape(10), visits) == (2 * groups, visits - groups)


def test_the_seconds_of_a_round_are_those_of_links_or_of_the_servers_line():
    free, thin = Line(3.0, 0.5), Line(3.0, 0.5, server=0.1)
    assert seconds(Shape(), 100, free) == 3 + 2 * 0.5
    assert seconds(Shape(extra=2), 100, free) == 3 + 4 * 0.5
    assert seconds(Shape(10), 100, free) == 10 * (3 + 0.5) + 0.5
    assert seconds(Shape(10, relayed=True), 100, free) == 10 * (3 + 2 * 0.5)
    assert seconds(Shape(), 100, thin) == 2 * 100 * 0.1
    assert seconds(Shape(10, relayed=True), 100, thin) == 2 * 100 * 0.1 + 10 * 3
    assert break_even(Shape(10), 100, free) == pytest.approx((10 * 3.5 + 0.5) / 4)
    assert break_even(Shape(10), 100, thin) == pytest.approx((10 * 3.5 + 0.5) / 20)
    assert break_even(Shape(10, relayed=True), 100, free) == pytest.approx(10)
    assert break_even(Shape(10, relayed=True), 100, thin) == pytest.approx((20 + 30) / 20)


def test_the_34_rounds_of_fedgsp_are_291_hops():
    growth = Logarithmic(beta=10, alpha=2.0)
    assert [hops(growth, 368, 1), hops(growth, 368, 2) - 37, hops(growth, 368, 3) - 37 - 19] == [37, 19, 13]
    assert hops(growth, 368, 34) == 291


def test_a_chain_of_one_is_fedavg_and_one_of_ten_as_published():
    assert scaled(7.7, 1) == 1
    assert scaled(7.7, 10) == pytest.approx(7.7)
    assert scaled(7.7, 30) == pytest.approx(7.7)  # nobody has published more
    assert 1 < scaled(1.75, 3) < 1.75


# --- rules


def test_every_method_that_is_named_exists_and_every_range_is_one():
    named = {name for rule in RULES for name in (*rule.tries, *rule.without)} | {row.method for row in SPEEDS}
    assert {part for name in named for part in names_of(name)} <= set(ALGORITHMS)
    assert all(0 < row.low <= row.high for row in SPEEDS)
    assert all(rule.evidence and rule.source for rule in RULES)


def test_one_class_and_a_large_model_is_for_chains_unless_the_clock_counts():
    assert methods(ONE_CLASS)[0] == "fedseq"
    assert methods(replace(ONE_CLASS, by="time"))[0] == "feddyn"
    assert methods(replace(ONE_CLASS, by="time", state=False))[0] == "fedadam"
    thin = replace(ONE_CLASS, by="time", line=Line(1.0, 1.0, server=1.0))
    assert methods(thin)[0] == "fedseq"  # 200 s through the server, 20 along a chain
    assert "fedseq2par" in methods(replace(ONE_CLASS, rounds=1000))
    assert methods(replace(ONE_CLASS, clients=100))[0] == "fedcyclic"  # one chain of all twenty sends least


def test_alike_clients_average_where_the_clock_counts_and_may_chain_where_traffic_does():
    assert set(methods(replace(ALIKE, by="time"))) == {"fedadam", "fedavgm", "fedavg"}
    assert "fedseq" in methods(ALIKE)
    assert not {*methods(ALIKE)} & {*STATEFUL}


def test_low_participation_has_no_state_and_unreachable_clients_no_chains():
    assert not {*methods(replace(ONE_CLASS, fraction=0.02, visits=20))} & {*STATEFUL}
    assert not {*methods(replace(ONE_CLASS, visits=3))} & {*STATEFUL}
    assert not {*methods(replace(ONE_CLASS, reach="none"))} & {*DIRECT, "fedgsp"}
    relayed = methods(replace(ONE_CLASS, reach="server"))
    assert "fedgsp" in relayed
    assert "fedseq" not in relayed


def test_a_small_model_and_many_steps_take_the_chain_off_the_first_place():
    worn = replace(ONE_CLASS, parameters=7_850, steps=50)
    assert methods(worn)[0] != "fedseq"
    rates = {one.method: one.values for one in shortlist(worn, applied(worn))}
    assert rates["fedavg"] == (0.033, 0.1, 0.3)
    assert rates["fedseq"] == (0.0011, 0.0033, 0.01)  # divided by ten, and by three


def test_chains_are_of_ten_shorter_on_the_clock_and_among_attackers_and_never_more_than_take_part():
    assert ONE_CLASS.chain == 10
    assert replace(ONE_CLASS, by="time", shortest=4).chain == 4
    assert replace(ONE_CLASS, attackers=0.2).chain == 3  # 1 - 0.8³ is 49 %, 1 - 0.8⁴ is 59 %
    assert replace(ONE_CLASS, clients=4, fraction=1.0).chain == 4


def test_one_pass_costs_a_chain_through_everybody_once_to_three_times():
    silos = replace(ONE_CLASS, clients=10, fraction=0.5, rounds=1, line=Line(3.0, 0.5))
    advice = Advice(silos, tuple(applied(silos)), tuple(shortlist(silos, applied(silos))))
    found = {one.method: advice.predicted(one) for one in advice.candidates}
    plain, pooled = found["sequential"], found["fedelmy"]
    assert (plain.rounds.low, plain.rounds.high) == pytest.approx((1, 3))
    assert (plain.seconds.low, plain.seconds.high) == pytest.approx((34.5, 3 * 34.5))  # ten visits, nine messages
    assert (plain.traffic.low, plain.traffic.high) == pytest.approx((9 * 3.2e6, 27 * 3.2e6))
    assert pooled.traffic == plain.traffic
    models = inspect.signature(fedelmy).parameters["models"].default
    assert pooled.seconds.low == pytest.approx(10 * models * 3 + 9 * 0.5)
    assert "1 … 3" in told.rows_of(advice)[0]
    assert methods(replace(silos, by="time")) == ["sequential", "fedelmy"]


def test_free_messages_of_the_server_are_no_division_by_nothing():
    found = methods(replace(ONE_CLASS, prices=(0.0, 1.0)))
    assert found.index("fedavg") < found.index("fedseq")


def test_a_number_that_is_taken_from_another_method_says_so():
    assert speed_of("fedavgm", ONE_CLASS).source.startswith("none published; taken as fedadam's: FedGSP")
    assert "none" not in speed_of("fedadam", ONE_CLASS).source
    assert all(speed_of(name, ONE_CLASS).source.startswith("none published") for name in LIKE)


def test_silos_that_are_asked_once_relay_and_one_client_has_nobody():
    assert methods(replace(ONE_CLASS, clients=10, rounds=1)) == ["fedelmy", "sequential"]
    assert methods(replace(ONE_CLASS, clients=1)) == ["centralized"]


# --- from a configuration


def test_a_configuration_is_read_and_every_prediction_is_a_range():
    advice, _ = advise(TABLES)
    assert advice.facts.h == pytest.approx((1 - 0.1**0.5) ** 0.5, abs=0.01)
    assert advice.facts.level == "one class"
    assert advice.first.method == "fedseq"  # of ten that take part: as much traffic as one chain of them, and groups
    for one in advice.candidates:
        found = advice.predicted(one)
        assert one.method == "fedavg" or all(part.low < part.high for part in vars(found).values())
    assert any("no [latency]" in text for text in advice.facts.assumed)


def test_data_without_classes_is_judged_by_gradients_and_data_of_one_class_is_alike():
    numbers = {"data": {"name": "diabetes", "clients": 6}, "model": {"name": "logistic"}}
    advice, _ = advise(numbers)
    assert advice.facts.h is None
    assert advice.facts.diversity is not None
    assert advice.facts.level == "alike"
    assert "diversity" in told.unlike_in_words(advice.facts)
    assert replace(ONE_CLASS, h=0.0, by_chance=0.0, single=True).level == "alike"


def test_a_learning_rate_of_chains_is_taken_for_one():
    chains, _ = advise({**TABLES, "algorithm": {"name": "fedseq"}, "local": {"batch": 16, "lr": 0.01}})
    alone, _ = advise(TABLES)
    assert chains.facts.lr == pytest.approx(alone.facts.lr)


def test_what_is_wished_of_every_method_is_kept_and_who_refuses_it_is_named():
    wanted = {
        "fraction": 0.4,
        "sampler": {"name": "by_size"},
        "defence": {"bound": 2.0},
        "privacy": {"clip": 1.0, "noise": 0.5},
    }
    tables = {**TABLES, "algorithm": {"name": "fedprox", "mu": 0.1, **wanted}}
    advice, experiment = advise(tables)
    assert experiment.algorithm.privacy is not None
    for one in advice.candidates:
        made = tables_for(tables, one)["algorithm"]
        assert {key: made[key] for key in wanted} == wanted
        assert not {"mu", "traits"} & {*made}  # of another method; and of what examples are like
        words = shlex.split(command(one, "mine.toml"))
        typed = config.override(tables, [words[place + 1] for place, word in enumerate(words) if word == "--set"])
        assert typed["algorithm"] == made if one.key == "local.lr" else {**typed["algorithm"], **made} == made
        assert config.build(typed).algorithm.privacy is not None
    assert "fedavg" in [one.method for one in advice.candidates]
    assert "privacy" not in told.choice_in_words(advice)
    private, _ = advise({**TABLES, "algorithm": {"name": "fedavg", "privacy": {"clip": 1.0, "level": "example"}}})
    assert set(private.refused) == {"feddyn", "fedseq+feddyn"}  # their steps have a term of their own
    assert not {*private.refused} & {one.method for one in private.candidates}
    one, _ = advise({**TABLES, "data": {"name": "digits", "clients": 1}, "algorithm": {"name": "fedavg", **wanted}})
    assert ([found.method for found in one.candidates], [*one.refused]) == (["fedavg"], ["centralized"])


@pytest.mark.parametrize("wrong", [{"server_line": 0.0}, {"link_price": -1.0}, {"rounds": 0}, {"visits": -2.0}])
def test_impossible_wishes_are_refused(wrong):
    with pytest.raises(BadInput):
        Wishes(**wrong)


# --- the command


@pytest.fixture
def file(tmp_path, monkeypatch) -> str:
    import tomli_w

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(tomli_w.dumps({**TABLES, "rounds": 4}))
    return "mine.toml"


def test_the_command_says_what_to_try_and_what_to_type_and_that_runs(file, capsys):
    assert main(["advise", file, "--by", "traffic"]) == 0
    printed = capsys.readouterr().out
    assert "Try fedseq" in printed
    assert "published, not measured on your data" in printed
    typed = next(line for line in printed.splitlines() if line.strip().startswith("fedrelay tune"))
    assert main(shlex.split(typed)[1:]) == 0
    assert Path("runs/tune-fedseq/tune.json").is_file()


def test_advice_is_written_and_its_file_runs_and_json_is_json(file, capsys):
    assert main(["advise", file, "--out", "advice"]) == 0
    assert main(["run", "advice/first.toml", "--set", "rounds=1", "--out", "one"]) == 0
    assert "| fedseq |" in Path("advice/advice.md").read_text()
    assert main(["advise", file, "--out", "advice"]) == 2  # nothing is overwritten
    capsys.readouterr()
    assert main(["advise", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["candidates"][0]["predicted"]["rounds"]["low"] < found["candidates"][0]["predicted"]["rounds"]["high"]
    assert found["facts"]["clients"] == 50
    Path("several.toml").write_text("seeds = [0, 1]\n" + Path(file).read_text() + "\n[runs.one]\nrounds = 2\n")
    assert main(["advise", "several.toml"]) == 0  # of a comparison, what it says for all runs


def test_printed_commands_say_what_was_typed(file, capsys):
    own = ["--set", "algorithm.fraction=0.4", "--data-dir", "my data"]
    assert main(["advise", file, *own, "--fedavg-rounds", "70"]) == 0
    typed = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if line.startswith("  fedrelay")]
    assert [words[1] for words in typed] == ["tune", "advise"]
    assert all(words[3:7] == own for words in typed)
    assert typed[1][7:] == ["--fedavg-rounds", "70", "--race"]
    assert main(["advise", "digits", *own]) == 0
    last = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  fedrelay")]
    assert last[1] == "fedrelay run advice/first.toml --data-dir 'my data'"
    Path("several.toml").write_text("seeds = [0, 1]\n" + Path(file).read_text())
    assert main(["advise", "several.toml"]) == 0
    assert "fedrelay advise several.toml --out advice" in capsys.readouterr().out  # tune takes no comparison


def test_data_by_name_tables_and_nonsense(file, capsys):
    assert main(["advise", "digits", "--set", "data.clients=1"]) == 0
    assert "one client makes no federation" in capsys.readouterr().out
    rows = "\n".join(f"{'ab'[i % 2]},{i % 7},{'yx'[i % 3 == 0]}" for i in range(60))
    Path("patients.CSV").write_text(f"client,value,label\n{rows}\n")
    assert main(["advise", "patients.CSV"]) == 0
    assert "2 clients" in capsys.readouterr().out
    assert main(["advise", "nothing.at.all"]) == 2
    assert "no TOML file, data set, table or folder" in capsys.readouterr().err
    assert main(["advise", "digits", "--set", "data.clients=1", "--race"]) == 2
    assert "nobody to race" in capsys.readouterr().err
    assert main(["advise", file, "--race", "--budget", "5 apples"]) == 2
    assert "600rounds" in " ".join(capsys.readouterr().err.split())


def test_commands_have_the_settings_of_the_candidate():
    advice, _ = advise(TABLES)
    words = shlex.split(command(advice.first, "my file.toml"))
    assert words[2] == "my file.toml"
    assert config.override({}, [words[4]])["algorithm"] == dict(advice.first.algorithm)


def test_the_tables_of_the_page_are_those_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, told.tables()) == text
