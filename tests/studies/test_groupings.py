"""The grouping laboratory: groupings compared without training, as a table, as files and as a page."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import plotly.graph_objects
import pytest
import tomli_w
from rich.console import Console

from fedrelay import BadInput, cli
from fedrelay.plans import DISTANCES
from fedrelay.studies import groupings as laboratory
from fedrelay.studies.groupings import results
from fedrelay.studies.groupings.study import smaller

TABLES = {
    "data": {"name": "digits", "clients": 40, "partition": {"name": "dirichlet", "alpha": 0.0}, "exemplars": 5},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"batch": 16, "lr": 0.1},
    "groups": {"groups": 4, "repeats": 2},
}


def study(**groups) -> laboratory.Findings:
    return laboratory.study({**TABLES, "groups": {**TABLES["groups"], **groups}}, Console(file=io.StringIO()))


@pytest.fixture(scope="module")
def findings() -> laboratory.Findings:
    return study(epochs=[1, 4])


def test_every_trait_is_compared_with_every_grouper_and_distance_that_go_with_it(findings):
    made = {(one.trait, one.grouper, one.distance) for one in findings.made}
    assert len(made) == len(findings.made)
    centroids = {
        (t, g, d)
        for t in ("histogram", "classifier", "confidence")
        for g in ("kmeans", "icg")
        for d in ("euclidean", "cosine")
    }
    greedy = {("histogram", "greedy", d) for d in DISTANCES if d != "wasserstein"}
    greedy |= {("confidence", "greedy", d) for d in DISTANCES}
    greedy |= {("classifier", "greedy", d) for d in ("cosine", "euclidean", "wasserstein")}
    assert made == centroids | greedy | {("", "random", "")}


def test_informed_groups_are_more_even_than_random_ones(findings):
    # the order of FedSeq 2022, Table IV: greedy and k-means above random
    balance = {(one.trait, one.grouper, one.distance): one.balance for one in findings.made}
    random = balance["", "random", ""]
    for trait, distance in (
        ("classifier", "cosine"),
        ("confidence", "kl"),
        ("confidence", "gini"),
        ("histogram", "kl"),
    ):
        assert balance[trait, "greedy", distance] > random + 0.15
    for trait in ("classifier", "confidence", "histogram"):
        assert balance[trait, "kmeans", "euclidean"] > random + 0.3
        assert balance[trait, "icg", "euclidean"] > random


def test_measures_are_those_of_the_groups(findings):
    one = findings.made[0]
    assert one.number == len(one.groups) == 4
    assert one.counts.sum() == sum(findings.sizes)
    assert sorted(client for group in one.groups for client in group) == list(range(40))
    assert findings.clients_apart > one.apart


def test_models_become_unlike_while_clients_train_alone(findings):
    first, last = findings.pretrained
    assert (first.epochs, last.epochs) == (1, 4)
    assert last.norm < first.norm <= 40 + 1e-9
    assert 0 < first.components <= 1
    assert np.diagonal(last.similarity) == pytest.approx(1)


def test_a_large_similarity_matrix_is_shown_by_means_of_blocks():
    matrix = np.arange(250 * 250, dtype=float).reshape(250, 250)
    small = smaller(matrix)
    assert small.shape == (100, 100)
    assert small[0, 0] == matrix[:2, :2].mean()
    assert smaller(matrix[:7, :7]).tolist() == matrix[:7, :7].tolist()


def test_the_page_is_self_contained_and_its_pictures_are_valid(findings, tmp_path):
    laboratory.write(findings, tmp_path, "groupings of <digits>")
    page = (tmp_path / "report.html").read_text()
    assert "groupings of &lt;digits&gt;" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.S)[1])
    assert len(specs) == len(findings.made) + 3
    for spec in specs.values():
        plotly.graph_objects.Figure(spec)  # refuses what Plotly does not know
    mix = np.array(specs["mix0"]["data"][0]["z"])
    assert mix.shape == (4, 10)
    np.testing.assert_allclose(mix.sum(axis=1), 1, atol=1e-3)


def test_results_are_written_for_machines_and_documents(findings, tmp_path):
    laboratory.write(findings, tmp_path, "digits")
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["clients"] == 40
    assert len(content["groupings"]) == len(findings.made)
    assert content["groupings"][-1]["trait"] is None
    assert {np.sum(one["counts"]) for one in content["groupings"]} == {sum(findings.sizes)}  # all are in a group
    lines = (tmp_path / "results.md").read_text().splitlines()
    assert sum(line.startswith("| ") for line in lines) == len(findings.made) + 2


def test_what_epochs_alone_did_comes_back_from_the_results(findings, tmp_path):
    laboratory.write(findings, tmp_path, "digits")
    content = json.loads((tmp_path / "results.json").read_text())
    for said, one in zip(map(results.from_json, content["pretraining"]), findings.pretrained, strict=True):
        assert (said.epochs, said.norm, said.components) == (one.epochs, one.norm, one.components)
        np.testing.assert_allclose(said.similarity, one.similarity, atol=5e-5)


def test_of_many_groups_the_first_are_drawn_and_all_are_told():
    picture = results.mix(0, "random", np.eye(12, 3, dtype=np.int64), ("a", "b", "c"), most=10)
    assert len(picture.spec["data"][0]["z"]) == 10
    assert "each of 12 groups, the first 10 of them" in picture.caption


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"distances": ["kll"]}, r"\[groups\].distances: unknown name 'kll'; did you mean 'kl'"),
        (
            {"traits": ["classifier"], "distances": ["kl"]},
            r"classifier has no partner.*pairs that work.*confidence.*kl",
        ),
        ({"traits": ["classifier", "classifier"]}, "classifier is there twice"),
        ({"traits": []}, "expected a list of names"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"epochs": [0]}, "epochs must be at least 1"),
        ({"max_clients": 3}, "groups = 4 and max_clients = 3: give one or the other"),
        ({"groups": 41}, "groups = 41 but there are 40 clients"),
        ({"grouper": "icg"}, "unknown key 'grouper'; did you mean 'groupers'"),
    ],
)
def test_bad_input_is_refused_with_its_place(groups, message):
    with pytest.raises(BadInput, match=message):
        study(**groups)


def test_limits_come_from_the_algorithm_where_groups_gives_none():
    asked = laboratory.read({}, {"name": "fedseq", "min_examples": 800, "max_clients": 11}, exemplars=False)
    assert (asked.limits.min_examples, asked.limits.max_clients) == (800, 11)
    assert set(asked.traits) == {"histogram", "classifier"}
    assert laboratory.read({"groups": 7}, {"max_clients": 3}, exemplars=False).limits.groups == 7


def test_options_tell_two_traits_of_one_name_apart():
    traits = [
        {"name": "classifier", "layers": "last"},
        {"name": "classifier", "layers": "last2", "epochs": 3},
        "histogram",
    ]
    assert list(laboratory.read({"traits": traits}, {}, exemplars=False).traits) == [
        "classifier last",
        "classifier last2 3",
        "histogram",
    ]


def test_the_command_writes_the_page_and_prints_the_table(tmp_path, capsys):
    file = tmp_path / "small.toml"
    groups = {
        "groups": 4,
        "repeats": 1,
        "traits": ["histogram"],
        "distances": ["euclidean"],
        "groupers": ["icg", "random"],
    }
    file.write_text(tomli_w.dumps({**TABLES, "groups": groups}))
    assert cli.main(["groups", str(file), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert [one["grouper"] for one in json.loads(capsys.readouterr().out)["groupings"]] == ["icg", "random"]
    assert (tmp_path / "out" / "report.html").is_file()
    assert cli.main(["groups", str(file), "--out", str(tmp_path / "out"), "--set", "groups.groups=50"]) == 2
