"""A model is built again from plain data."""

from __future__ import annotations

import json

import pytest
from torch import nn

from fedrelay.errors import BadInput
from fedrelay.models import MODELS, Fused, LeNet5, Mlp, Own
from fedrelay.models.described import build_model, describe_model


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_built_again_from_what_json_says_of_it(name):
    model = MODELS[name]()
    described = json.loads(json.dumps(describe_model(model)))
    assert described["name"] == name
    assert build_model(described) == model


def test_parameters_go_along():
    assert describe_model(Mlp(hidden=(7, 3))) == {"name": "mlp", "hidden": [7, 3]}
    assert build_model({"name": "mlp", "hidden": [7, 3]}) == Mlp(hidden=(7, 3))


def test_a_model_in_a_model_is_built_again_too():
    model = Fused(LeNet5(), "multi")
    assert build_model(json.loads(json.dumps(describe_model(model)))) == model


def test_a_network_of_ones_own_is_only_named():
    described = describe_model(Own(nn.Linear(2, 2)))
    assert described == {"name": "own", "is": "Linear"}
    assert build_model(described) is None


def test_a_model_that_is_not_here_is_refused():
    with pytest.raises(BadInput, match="there is no model 'other' here"):
        build_model({"name": "other"})
