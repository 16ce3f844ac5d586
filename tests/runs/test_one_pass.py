"""What one pass over the clients sends: the formulas, the paper's figure, and what runs count."""

from __future__ import annotations

import pytest

from fedrelay import BadInput, config
from fedrelay.algorithms import ALGORITHMS
from fedrelay.runs.loop import train
from fedrelay.runs.one_pass import PASSES, few_shot, over_graph

CLIENTS = 4
EXTRA = {"maecho": "client_to_server"}
"""Who sends more than models, and where to."""


def counted(name: str, rounds: int = 1, **settings):
    """Messages and bytes by direction of a short run, and the size of the model."""
    tables = {
        "data": {"name": "digits", "clients": CLIENTS, "share": 0.1},
        "model": {"name": ALGORITHMS[name].model, "hidden": [4]},
        "local": {"epochs": 1, "batch": 16, "validation": 0.2},
        "algorithm": {"name": name, "fraction": 1.0, **settings},
        "engine": {"name": "inline"},
    }
    built = config.build(tables)
    totals = {"messages": {}, "bytes": {}}
    for state in train(built.algorithm, built.engine, rounds=rounds):
        for what, found in totals.items():
            for way, count in getattr(state.log, what).items():
                found[way] = found.get(way, 0) + count
    return totals["messages"], totals["bytes"], 4 * built.task.layout.size


SMALL = {
    "fedelmy": {"models": 1, "warm_up": 0},
    "metafed": {"preparation": 1},
}
ROUNDS = {"metafed": 3}


@pytest.mark.parametrize("name", [name for name in PASSES if name in ALGORITHMS])
def test_runs_count_what_the_formulas_say(name):
    messages, sent, model = counted(name, ROUNDS.get(name, 1), **SMALL.get(name, {}))
    one = PASSES[name]
    expected = {
        "server_to_client": one.down(CLIENTS),
        "client_to_server": one.up(CLIENTS),
        "client_to_client": one.across(CLIENTS),
    }
    if name in EXTRA:
        assert messages.pop(EXTRA[name]) >= expected.pop(EXTRA[name])
        assert sent.pop(EXTRA[name]) > one.up(CLIENTS) * model
    assert messages == expected
    assert sent == {way: count * model for way, count in expected.items()}


def test_the_papers_figure_is_found_again():
    """FedELMY 2024, Fig. 5: N = 10, a model of 46.2 MB; of the full mesh it says only that it is more."""
    model = 46.2e6
    found = {name: PASSES[name].megabytes(10, model) for name in PASSES}
    assert found["fedelmy"] == found["sequential"] == pytest.approx(415.8)
    assert found["metafed"] == pytest.approx(877.8)
    assert found["fedov"] == found["dense"] == pytest.approx(462)
    assert found["dfedavgm"] == found["dfedsam"] == pytest.approx(4158)


def test_several_shots_send_a_chain_again_and_again():
    assert few_shot(10, 1) == PASSES["fedelmy"].figure(10)
    messages, _, _ = counted("fedelmy", 3, models=1, warm_up=0, order="given")
    assert messages == {"server_to_client": 0, "client_to_server": 0, "client_to_client": few_shot(CLIENTS, 3)}


@pytest.mark.parametrize(("graph", "neighbours", "steps"), [("ring", 2, 1), ("ring", 2, 3), ("full", 3, 2)])
def test_mixing_sends_the_sum_of_degrees_in_every_step(graph, neighbours, steps):
    messages, _, _ = counted("dfedavgm", graph=graph, mixing_steps=steps)
    assert messages["client_to_client"] == over_graph(neighbours, CLIENTS, steps=steps)


def test_parallel_pools_go_from_everybody_to_everybody():
    messages, _, _ = counted("fedelmy", models=1, warm_up=0, parallel=True)
    assert messages["client_to_client"] == sum(messages.values()) == PASSES["dfedavgm"].figure(CLIENTS)


def test_one_client_has_nobody_to_send_to():
    with pytest.raises(BadInput, match="clients must be at least 2"):
        PASSES["fedelmy"].total(1)
