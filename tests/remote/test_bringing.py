"""What a client brings, and what it refuses by its own policy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from fedrelay import BadInput
from fedrelay.engines.remote.messages import Done, Failed, Request
from fedrelay.plans.sampling.target import Census
from fedrelay.remote.bringing import Bringing
from fedrelay.remote.policy import Policy, SentLog
from fedrelay.visits import Sgd
from fedrelay.visits.own_test import OwnTest
from fedrelay.visits.traits import ClassHistogram, ClassifierWeights

REQUEST = Request("t", "update", 3, 1, 0.0, None, {}, None, "name")


def test_a_function_of_the_clients_own_brings_arrays(tmp_path, monkeypatch):
    code = "import numpy as np\ndef mine():\n    return np.ones((6, 2)), np.array([0, 1, 0, 1, 2, 2])\n"
    (tmp_path / "registry_of_north.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    told = Bringing("registry_of_north:mine").open("north", {}).told()
    assert (told["rows"], told["shape"], told["classes"]) == (6, [2], 3)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("nowhere.csv", "expected a table, a folder, arrays"),
        ("no_such_module_of_mine:f", "No module named"),
        ("json:no_such_function", "has no attribute"),
        ("odd.bin", "expected a name that ends in .npz"),
        ("pickled.npz", "expected arrays x"),
        ("lacking.npz", "expected arrays x"),
    ],
)
def test_what_cannot_be_brought_is_refused(what, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.bin").write_text("x", encoding="utf-8")
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object), y=np.zeros(1))
    np.savez(tmp_path / "lacking.npz", x=np.zeros((2, 2)))
    with pytest.raises(BadInput, match=says):
        Bringing(what).open("north", {})


def test_a_policy_refuses_methods_rounds_traits_and_statistics(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(
        'methods = ["fedseq"]\ntraits = ["histogram"]\nrounds = 5\nstatistics = false\ntests = false\n',
        encoding="utf-8",
    )
    policy = Policy.read(path)
    policy.check_run({"algorithm": {"name": "fedseq"}, "rounds": 5})
    with pytest.raises(BadInput, match="does not allow the method scaffold"):
        policy.check_run({"algorithm": {"name": "fedseq+scaffold"}, "rounds": 5})
    with pytest.raises(BadInput, match="allows 5 rounds, and the run has 6"):
        policy.check_run({"algorithm": {"name": "fedseq"}, "rounds": 6})
    with pytest.raises(BadInput, match="statistics of its table"):
        policy.check_told({"kind": "table"})
    assert policy.why_not(REQUEST, Sgd()) is None
    assert (
        policy.why_not(REQUEST, OwnTest()) == "its policy does not allow it to tell what the model is worth on its data"
    )
    assert policy.why_not(REQUEST, ClassHistogram()) is None
    assert policy.why_not(REQUEST, ClassifierWeights()) == "its policy does not allow the trait classifier to be told"
    assert policy.why_not(REQUEST, Census()) == "its policy does not allow the trait census to be told"
    late = Request("t", "update", 6, 0, 0.0, None, {}, None, "name")
    assert policy.why_not(late, Sgd()) == "its policy allows 5 rounds"
    assert Policy().why_not(late, Census()) is None


def test_a_policy_with_a_wrong_key_is_refused_by_its_place(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("round = 5\n", encoding="utf-8")
    with pytest.raises(BadInput, match="unknown key 'round'; did you mean 'rounds'"):
        Policy.read(path)


def test_the_log_of_what_has_left_has_names_and_shapes_and_no_numbers_of_models(tmp_path):
    log = SentLog(tmp_path)
    log.described({"kind": "arrays", "rows": 6})
    answer = Done("t", 6.0, torch.full((4,), 0.123456), 6, {"loss": 0.5}, {"control": torch.zeros(3)}, False, 0.1)
    log.answered(REQUEST, answer, 200)
    log.answered(REQUEST, Failed("t", "the disk is full"), 50)
    text = (tmp_path / "sent.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["what"] for line in lines] == ["description", "answer", "answer"]
    assert (lines[1]["model"], lines[1]["beside"], lines[1]["bytes"]) == (4, {"control": [3]}, 200)
    assert lines[2]["failed"] == "the disk is full"
    assert "0.123456" not in text
