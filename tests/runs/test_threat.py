"""Runs among attackers: who they are is on record, honest draws stay as they are, and what they do is tested."""

from __future__ import annotations

import json
import logging

import pytest

from fedrelay import BadInput, config
from fedrelay.runs.folder import load
from fedrelay.runs.threat import Threat

TABLES = {
    "rounds": 3,
    "data": {"name": "digits", "clients": 12, "share": 0.3, "partition": {"name": "dirichlet", "alpha": 100.0}},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"lr": 0.2, "batch": 8},
    "algorithm": {"name": "fedseq", "max_clients": 4, "fraction": 1.0},
    "evaluate": {"every": 1},
    "engine": {"name": "inline"},
}
WHO = {"name": "groups", "groups": 0.4, "clients": 0.5}


def done(folder, **changes):
    tables = {**TABLES, **changes}
    for _ in config.build(tables).record(folder).run():
        pass
    return load(folder)


def mean_of(run, name):
    """Over the last five tests, of which there are three."""
    return pytest.approx(sum(log.metrics[name] for log in run.rounds) / 3)


def attack(name="labels", **settings):
    return {"name": name, "who": WHO} | settings


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return done(tmp_path_factory.mktemp("runs") / "honest")


def test_the_attackers_are_in_a_file_and_in_every_line(tmp_path, honest):
    run = done(tmp_path / "run", attack=attack())
    facts = json.loads((run.folder / "attackers.json").read_text())
    assert len(facts["clients"]) == 2  # half of one of three groups of four
    assert facts["names"] == [f"client {number}" for number in facts["clients"]]
    for log in run.rounds:
        assert sorted(hit.client for hit in log.attacked) == facts["clients"]
        assert len({hit.chain for hit in log.attacked}) == 1
        assert all(0 <= hit.hop < 4 for hit in log.attacked)
        assert 0 <= log.metrics["attacked_accuracy"] <= 1
    assert run.summary.attacked == {"visits": 6, "attacked_accuracy": mean_of(run, "attacked_accuracy")}
    assert honest.summary.attacked == {}
    assert "attackers.json" not in [path.name for path in honest.folder.iterdir()]
    assert "attacked" not in (honest.folder / "rounds.jsonl").read_text()


@pytest.mark.parametrize("name", ["labels", "noise", "ipm"])
def test_without_strength_the_lines_are_those_of_the_honest_run_but_for_the_attackers(tmp_path, honest, name):
    run = done(tmp_path / "run", attack=attack(name, strength=0))
    assert run.summary.params_sha256 == honest.summary.params_sha256
    for mine, theirs in zip(run.rounds, honest.rounds, strict=True):
        assert mine.metrics["accuracy"] == theirs.metrics["accuracy"]
        assert (mine.train_loss, mine.bytes, mine.messages) == (theirs.train_loss, theirs.bytes, theirs.messages)


def test_who_attacks_and_who_trains_after_whom_depend_on_the_seed_alone(tmp_path):
    """A stronger attack meets the same clients in the same order."""
    runs = [done(tmp_path / name, attack=attack(name)) for name in ("labels", "sign_flip")]
    assert [log.attacked for log in runs[0].rounds] == [log.attacked for log in runs[1].rounds]
    other = done(tmp_path / "other", attack=attack(), seed=1)
    assert [log.attacked for log in other.rounds] != [log.attacked for log in runs[0].rounds]


def test_a_run_among_attackers_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    tables = {**TABLES, "checkpoint": 1, "attack": attack("noise", first_round=2)}
    whole = done(tmp_path / "whole", **tables)
    rounds = config.build(tables).record(tmp_path / "part").run()
    next(rounds)
    rounds.close()
    (tmp_path / "part" / "attackers.json").unlink()
    for _ in config.build(tables).record(tmp_path / "part", resume=True).run():
        pass
    part = load(tmp_path / "part")
    assert part.summary.params_sha256 == whole.summary.params_sha256
    assert [log.attacked for log in part.rounds] == [log.attacked for log in whole.rounds]
    assert [bool(log.attacked) for log in part.rounds] == [False, True, True]
    assert (tmp_path / "part" / "attackers.json").read_text() == (tmp_path / "whole" / "attackers.json").read_text()


def test_groups_that_are_made_anew_keep_their_attackers_after_a_resume(tmp_path):
    """They are drawn among the groups that a run begins with, which are gone later."""
    grown = {"name": "fedseq2par", "growth": {"name": "linear", "alpha": 1.0, "beta": 3}, "fraction": 1.0}
    tables = {**TABLES, "algorithm": grown, "checkpoint": 1, "attack": attack()}
    rounds = config.build(tables).record(tmp_path).run()
    first = {hit.client for hit in next(rounds).attacked}
    rounds.close()
    *_, last = config.build(tables).record(tmp_path, resume=True).run()
    assert {hit.client for hit in last.attacked} == first != set()


@pytest.mark.parametrize("method", ["fedper", "fedov", "dfedavgm", "fedseqinter"])
def test_whatever_predicts_is_tested_on_the_attacked_classes(tmp_path, method):
    """Models of clients' own, models that vote and know unknowns, models that are mixed or under way."""
    threat = attack(classes=[[0, 1]], who={"name": "share", "share": 0.5})
    run = done(tmp_path, rounds=1, algorithm={"name": method}, attack=threat)
    assert 0 <= run.rounds[-1].metrics["attacked_accuracy"] <= 1


def test_a_model_that_tells_all_right_tells_the_attacked_classes_right(tmp_path):
    tables = {**TABLES, "rounds": 12, "data": {"name": "digits", "clients": 12}, "attack": attack(strength=0)}
    found = done(tmp_path, **tables).rounds[-1].metrics  # all ten classes are swapped, so these are all examples
    assert found["attacked_accuracy"] == pytest.approx(found["accuracy"])
    assert found["accuracy"] > 0.8


def test_the_resolved_configuration_repeats_the_run(tmp_path, honest):
    run = done(tmp_path / "run", attack={"name": "replacement", "who": "share", "by": "labels"})
    again = config.read(run.folder / "config.toml")
    assert again["attack"]["by"] == {"name": "labels", "strength": 1.0, "classes": "mirrored", "pairing": "fixed"}
    assert again["attack"]["who"] == {"name": "share", "share": 0.1}
    assert config.build(again).tables == again


def test_the_reference_is_honest_and_says_so(caplog):
    with caplog.at_level(logging.WARNING, "fedrelay"):
        experiment = config.build({**TABLES, "algorithm": {"name": "centralized"}, "attack": attack()})
    assert experiment.algorithm.threat is None
    assert "nobody attacks there" in caplog.text


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, r"\[attack\]: name is missing; one of labels"),
        ({"name": "label"}, "did you mean 'labels'"),
        ({"name": "labels", "deviation": 1.0}, r"\[attack\]: unknown key 'deviation'"),
        ({"name": "labels", "who": {"name": "share", "share": 0.05}}, r"\[attack\]: share = 0.05 of 12 is 0.6"),
        ({"name": "labels", "who": {"name": "clients", "clients": [12]}}, r"\[attack\]: there is no client 12"),
        ({"name": "labels", "classes": "intra"}, r"\[attack\]: there is no class 73 to swap"),
        ({"name": "labels", "strength": 2}, "strength must be at least 0 and at most 1, not 2"),
        ({"name": "replacement", "by": "ipm"}, "by must be an attack on examples"),
        ({"name": "noise", "first_round": 3, "last_round": 2}, "last_round must be at least 3, not 2"),
        ({"name": "noise", "first_round": 4}, "first_round, in 3 rounds, must be at most 3, not 4"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(section, message):
    with pytest.raises(BadInput, match=message):
        config.build({**TABLES, "attack": section})


@pytest.mark.parametrize("name", ["labels", "backdoor"])
def test_data_that_have_no_classes_or_no_images_are_refused(name):
    plain = {"data": {"name": "quadratic"}, "model": {"name": "quadratic"}, "local": {}}
    with pytest.raises(BadInput, match=r"\[attack\]: "):
        config.build({**TABLES, **plain, "algorithm": {"name": "fedavg"}, "attack": {"name": name}})


def test_a_position_that_no_chain_has_is_refused_in_the_first_round(tmp_path):
    who = {"name": "position", "position": 7}
    with pytest.raises(BadInput, match="finds nobody in round 1: the longest of its chains has 4 clients"):
        done(tmp_path, attack={"name": "lazy", "who": who})


def test_clients_that_are_elsewhere_cannot_be_made_to_attack():
    with pytest.raises(BadInput, match="attacks are simulated, and here clients are real"):
        config.build({**TABLES, "attack": attack()}, engine=lambda *_: (None, {}))


def test_a_threat_takes_an_attack():
    with pytest.raises(BadInput, match=r"a threat takes an attack, such as SignFlip\(\)"):
        Threat("labels")
