"""How far kinds of clients are from one another by a trait, and the pictures of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedrelay.cli import main
from fedrelay.errors import BadInput
from fedrelay.studies.groupings.apart import Apart
from fedrelay.studies.groupings.results import drawn
from fedrelay.studies.reproduce import library, scales
from fedrelay.studies.reproduce.kinds_apart import kinds_apart


def told(matrix) -> dict:
    return Apart("trait", "cosine", tuple(map(str, range(len(matrix)))), np.asarray(matrix), 0).as_json()


def test_a_kind_that_is_half_as_far_as_another_is_half_as_far():
    near, far = 0.2, 0.4
    matrix = [[0, 0.1, near, near, far, far], [0.1, 0, near, near, far, far], *np.zeros((4, 6)).tolist()]
    assert kinds_apart([told(matrix)]) == {"trait": pytest.approx(0.5)}


def test_equal_distances_see_no_likeness():
    assert kinds_apart([told(1 - np.eye(9))]) == {"trait": pytest.approx(1.0)}


@pytest.mark.parametrize("matrix", [np.zeros((6, 6)), np.zeros((2, 2))])
def test_clients_that_are_all_the_same_or_too_few_say_nothing(matrix):
    assert kinds_apart([told(matrix)]) == {"trait": None}


def test_figure_9_has_a_ratio_and_a_picture_for_every_trait(tmp_path):
    assert main(["reproduce", "fedseq-journal/figure9", "--scale", "smoke", "--out", str(tmp_path / "out")]) == 0
    (part,) = json.loads((tmp_path / "out" / "results.json").read_bytes())["parts"]
    (column,) = {column for line in part["lines"] for column in line["cells"]}
    assert {line["name"] for line in part["lines"] if line["cells"][column]["ours"]} == {"conf", "t2v"}
    (results,) = (tmp_path / "out").glob("**/seed-0/results.json")
    keys = [figure.key for figure in drawn(json.loads(results.read_bytes()))]
    assert {"cpd", "apart0", "apart1", "apart_row"} <= set(keys)


def test_figure_9_is_listed_without_the_weights_of_its_probe_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (item,) = library.wanted("fedseq-journal/figure9")
    assert {"conf", "t2v"} <= {item.called(row) for row in scales.rows_of(item, "paper", "")}
    with pytest.raises(BadInput, match=r"there is no file .*resnet18-f37072fd\.pth"):
        item.kind.check(scales.tables_of(item, "paper", ""), None)


def test_probes_that_differ_in_their_file_alone_are_two_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (item,) = library.wanted("fedseq-journal/figure9")
    probes = [{"name": "resnet18", "weights": name} for name in ("a.pth", "b.pth")]
    section = item.experiment["groups"] | {"traits": [{"name": "task2vec", "probe": probe} for probe in probes]}
    assert item.kind.rows({**item.experiment, "groups": section}) == [
        "clients alone",
        "task2vec resnet18 a.pth · greedy · cosine",
        "task2vec resnet18 b.pth · greedy · cosine",
    ]
