"""The grouping laboratory: groupings compared without training, as a table, as files and as a page."""

from __future__ import annotations

import io
import itertools
import json
import re

import numpy as np
import plotly.graph_objects
import pytest
import tomli_w
from rich.console import Console

from fedrelay import BadInput, cli
from fedrelay.plans import DISTANCES
from fedrelay.runs.measures import Box
from fedrelay.studies import groupings as laboratory
from fedrelay.studies.groupings import results
from fedrelay.studies.groupings.apart import Apart, chosen
from fedrelay.studies.groupings.pictures import heat_maps
from fedrelay.studies.groupings.study import smaller

TABLES = {
    "data": {"name": "digits", "clients": 40, "partition": {"name": "dirichlet", "alpha": 0.0}, "exemplars": 5},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"batch": 16, "lr": 0.1},
    "groups": {"groups": 4, "repeats": 2},
}


def classes_of(clients):
    """Of clients that are called such as `client 3 (cat)`."""
    return [re.search(r"\((.*)\)", name)[1] for name in clients]


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
    # Clients of one class are at distance (1 - 1/e) · 2 from those of another, and at 0 from their own.
    classes = np.array(classes_of(findings.between[0].clients)).astype(int)
    apart = [(1 - np.exp(-1)) * 2 * (classes[a] != classes[b]) for a, b in itertools.combinations(range(40), 2)]
    assert findings.clients_box.mean == pytest.approx(np.mean(apart))
    assert findings.clients_apart == findings.clients_box.high == pytest.approx(2 - 2 / np.e)


def test_a_box_is_that_of_a_box_plot():
    """Of 1 to 9 and 30: quarters at 3.25, 5.5 and 7.75, so whiskers reach from -3.5 to 14.5; 30 is beyond."""
    assert Box.of(np.array([*range(1, 10), 30.0])) == Box(1.0, 3.25, 5.5, 7.75, 9.0, 7.5)
    assert Box.of(np.array([2.0])) == Box(2.0, 2.0, 2.0, 2.0, 2.0, 2.0)
    assert Box.of(np.array([])) is None


def test_distances_between_clients_are_those_of_their_traits(findings):
    """A histogram of one class is at a right angle to that of another class, whichever that is."""
    histogram = next(one for one in findings.between if one.trait == "histogram")
    assert histogram.distance == "cosine"
    assert sorted(int(name.split()[1]) for name in histogram.clients) == list(range(40))
    classes = classes_of(histogram.clients)
    assert classes == sorted(classes)
    expected = np.array([[float(a != b) for b in classes] for a in classes])
    np.testing.assert_allclose(histogram.matrix, expected, atol=1e-12)
    assert {one.trait for one in findings.between} == {"histogram", "classifier", "confidence"}


def test_clients_are_shown_by_number_or_by_class():
    counts = np.array([[5, 0, 1], [0, 4, 0], [9, 0, 0], [0, 0, 3], [1, 8, 0]])
    names = ("ant", "bee", "cat")
    assert chosen(4, counts, names) == [0, 2, 1, 3]
    assert chosen(99, counts, names) == [0, 2, 1, 4, 3]
    assert chosen((3, 0, 3), counts, names) == [3, 0]
    assert chosen(("cat", "ant"), counts, names) == [3, 0, 2]
    assert chosen(("1",), counts, ()) == [1, 4]


def test_task2vec_stands_beside_confidence_with_its_own_distance_and_one_client_has_a_row(tmp_path):
    trait = {"name": "task2vec", "probe": "model", "epochs": 1, "samples": 20, "draws": 2, "most": 8}
    found = study(
        traits=[trait, "confidence"],
        distances=["cosine", "normalised_cosine"],
        groupers=["greedy"],
        repeats=1,
        clients=["3", "5"],
    )
    first, second = found.between
    assert (first.distance, second.distance) == ("normalised_cosine", "cosine")
    assert first.clients == second.clients
    assert set(classes_of(first.clients)) == {"3", "5"}
    laboratory.write(found, tmp_path, "digits")
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', (tmp_path / "report.html").read_text(), re.S)[1])
    assert len(specs["apart0"]["data"][0]["z"]) == len(first.clients)
    assert [len(trace["y"]) for trace in specs["apart_row"]["data"]] == [len(first.clients) - 1] * 2
    assert max(specs["apart_row"]["data"][0]["y"]) == 1.0
    content = json.loads((tmp_path / "results.json").read_text())
    assert [one["trait"] for one in content["distances"]] == [first.trait, "confidence"]
    again = [Apart.from_json(one) for one in content["distances"]]
    np.testing.assert_allclose(again[0].matrix, first.matrix, atol=1e-4)
    assert heat_maps(again)[:2] == heat_maps(found.between)[:2]


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
    assert len(specs) == len(findings.made) + 3 + 5  # and the boxes, three matrices and a row
    assert specs["cpd"]["data"][0]["median"][1:] == [made.box.median for made in findings.made]
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


def test_the_pictures_of_the_page_come_back_from_the_results(findings, tmp_path):
    laboratory.write(findings, tmp_path, "digits")
    page = (tmp_path / "report.html").read_text()
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.S)[1])
    again = {figure.key: figure.spec for figure in results.drawn(json.loads((tmp_path / "results.json").read_text()))}
    assert set(again) == set(specs)
    for key in ("cpd", "apart0", "apart2"):
        assert again[key] == specs[key]


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
        ({"clients": 1}, r"\[groups\].clients must be at least 2"),
        ({"clients": [1, "a"]}, "expected a number of clients, a list of their numbers or of classes"),
        ({"clients": [40]}, "there is no client 40: there are 0 to 39"),
        ({"clients": ["x"]}, "there is no class 'x': there is 0, 1, 2"),
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
