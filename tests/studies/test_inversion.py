"""Inversion: the closed form on a gradient made by hand, real visits of runs, and noise that stops it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay import BadInput
from fedrelay.cli.main import main
from fedrelay.data import Iid, digits
from fedrelay.models import Logistic, SmallCnn
from fedrelay.studies.inversion.attack import in_closed_form
from fedrelay.studies.inversion.measure import CLOSED, MATCHING, invert, matched

TABLES = {
    "rounds": 1,
    "data": {"name": "digits", "clients": 12, "partition": {"name": "iid"}},
    "model": {"name": "mlp", "hidden": [32]},
    "local": {"steps": 1, "batch": 1, "lr": 0.1},
    "algorithm": {"name": "fedseq", "groups": 3, "grouper": "random", "fraction": 1.0},
    "engine": {"name": "inline"},
}


def with_method(**algorithm):
    return {**TABLES, "algorithm": {**TABLES["algorithm"], **algorithm}}


def test_the_closed_form_gives_back_the_input_of_a_gradient_made_by_hand():
    federation = fr.Federation.split(digits(), Iid(), clients=4, seed=0)
    task = fr.Task.of(Logistic(), federation)
    draw = np.random.default_rng(0)
    x, weights = draw.random(64), draw.normal(0, 0.1, (10, 64))
    scores = np.exp(weights @ x)
    pull = scores / scores.sum() - np.eye(10)[3]  # softmax and cross-entropy: p - y
    gradient = torch.from_numpy(np.concatenate([np.outer(pull, x).ravel(), pull])).float()
    found = in_closed_form(0.1 * gradient, task)
    assert found.shape == (1, *task.shape)
    np.testing.assert_allclose(found.flatten().numpy(), x, atol=1e-6)
    assert in_closed_form(torch.zeros_like(gradient), task) is None
    convolved = fr.Task.of(SmallCnn(), federation)
    assert in_closed_form(torch.ones(convolved.layout.size), convolved) is None


def test_each_made_example_stands_for_one_and_the_error_is_relative():
    truth = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    order, error = matched(torch.tensor([[0.0, 1.0], [3.0, 4.0]]), truth)
    assert order == [1, 0]
    assert error == pytest.approx((0 + 1 / 2) / 2)


def test_those_around_a_visit_have_its_example_until_there_is_noise():
    parallel = {**TABLES, "algorithm": {"name": "fedavg", "fraction": 1.0}}
    server, neighbours = invert(parallel, client=4), invert(TABLES, client=4)
    assert server.holders == "the server"
    assert neighbours.hop > 0
    assert "neighbours" in neighbours.holders
    for one in (server, neighbours):
        assert one.how == CLOSED
        assert one.error < 1e-5
    errors = [invert(with_method(privacy={"clip": 0.1, "noise": noise}), client=4) for noise in (1e-4, 1e-2, 1.0)]
    assert neighbours.error < errors[0].error < errors[1].error < errors[2].error
    # At noise 1, which is epsilon 4.38 for the one visit, a guess without any attack is nearer.
    assert errors[2].epsilon == pytest.approx(4.38, abs=0.005)
    assert errors[2].error > 0.9 > errors[2].guess


def test_examples_of_a_small_batch_are_found_by_their_gradient():
    found = invert({**TABLES, "local": {"steps": 1, "batch": 2, "lr": 0.1}}, client=4)
    assert found.how == MATCHING
    assert found.examples == 2
    assert found.error < 1e-3


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"client": 12}, "there is no client 12"),
        ({"local": {"lr": 0.1}}, {}, "one step of SGD, and here it is 4 of Sgd"),
        ({"local": {"steps": 1, "optimiser": "adam"}}, {}, "one step of SGD, and here it is 1 of Adam"),
        ({"local": {"steps": 1, "batch": 1, "weight_decay": 0.1}}, {}, "weight_decay = 0.1 adds the weights"),
        ({"local": {"steps": 1, "batch": 1, "clip": 0.1}}, {}, "clip = 0.1 may shorten it"),
        ({"algorithm": {"name": "scaffold"}}, {}, "Control, which the method adds"),
        ({"algorithm": {"name": "feddyn"}}, {}, "Dynamic, which the method adds"),
        ({"algorithm": {"name": "fedprox"}}, {}, "Proximal, which the method adds"),
        ({"algorithm": {"name": "fedper"}}, {}, "stay at home"),
        ({"algorithm": {"name": "centralized"}}, {}, "the centralised reference has none"),
        ({"algorithm": {"name": "fedelmy"}, "local": {"steps": 1, "optimiser": "sgd"}}, {}, "in a way of its own"),
        ({"algorithm": {"name": "fedavg", "fraction": 0.1}}, {"client": 0}, "client 0 was not visited in 1 rounds"),
    ],
)
def test_what_cannot_be_inverted_is_refused(changes, options, message):
    with pytest.raises(BadInput, match=message):
        invert({**TABLES, **changes}, **options)


def test_the_command_draws_a_page_with_pictures(tmp_path, capsys):
    file, page = tmp_path / "one.toml", tmp_path / "inverted.html"
    file.write_text(
        'rounds = 1\ndata = { name = "digits", clients = 12 }\nmodel = { name = "logistic" }\n'
        'local = { steps = 1, batch = 1 }\nalgorithm = { name = "fedavg" }\nengine = { name = "inline" }\n'
    )
    command = ["inversion", str(file), "--client", "3", "--json", "--quiet", "--out", str(page)]
    assert main(command) == 0
    said = capsys.readouterr()
    assert said.err == ""
    found = json.loads(said.out)
    assert found["fedavg"]["error"] < 1e-5
    assert "data:image/png;base64" in page.read_text()
    assert main(command) == 2
    assert main([*command[:3], "99", "--out", str(tmp_path / "other.html")]) == 2
    assert "there is no client 99" in capsys.readouterr().err
