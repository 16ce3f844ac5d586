"""The distances in the last pool: told only when asked for, counted, recorded, drawn."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from invented_runs import line_of, run_folder

from fedrelay import BadInput, config, report
from fedrelay.report.pools import figures
from fedrelay.visits import model_pool

TABLES = {
    "rounds": 1,
    "data": {"name": "digits", "clients": 3},
    "model": {"name": "logistic"},
    "local": {"epochs": 1, "lr": 0.01, "batch": 64},
    "algorithm": {"name": "fedelmy", "models": 2, "warm_up": 0, "order": "given"},
    "engine": {"name": "inline"},
}


def run_of(folder, **algorithm):
    tables = TABLES | {"algorithm": TABLES["algorithm"] | algorithm}
    (log,) = config.build(tables).record(folder).run()
    return log


def test_distances_are_lengths_of_differences():
    models = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    assert model_pool.pairwise(models).tolist() == [
        [0, 5, 1],
        [5, 0, pytest.approx(18**0.5)],
        [1, pytest.approx(18**0.5), 0],
    ]


def test_the_last_clients_pool_is_recorded_and_costs_only_its_numbers(tmp_path, monkeypatch):
    seen = []
    real = model_pool.pairwise
    monkeypatch.setattr(model_pool, "pairwise", lambda models: (seen.append(models.clone()), real(models))[1])
    plain, asked = run_of(tmp_path / "plain"), run_of(tmp_path / "asked", distances=True)
    assert plain.pool == {}
    assert "pool" not in json.loads((tmp_path / "plain" / "rounds.jsonl").read_text())
    assert asked.pool["client"] == 2
    expected = [[float(np.linalg.norm(a - b)) for b in seen[-1].numpy()] for a in seen[-1].numpy()]
    assert np.allclose(asked.pool["distances"], expected, atol=1e-6)
    assert asked.messages == plain.messages  # no model of a pool leaves its client
    sent = {"server_to_client": 0, "client_to_server": 3 * 3 * 3 * 4, "client_to_client": 0}
    assert asked.bytes == {key: plain.bytes[key] + more for key, more in sent.items()}
    weights = [torch.load(tmp_path / name / "model.pt", weights_only=True) for name in ("plain", "asked")]
    assert all(torch.equal(one, other) for one, other in zip(*(each.values() for each in weights), strict=True))
    assert report.load(tmp_path / "asked").rounds[0].pool == asked.pool


def test_the_page_draws_the_pool_of_every_run_that_has_one(tmp_path):
    pool = {"client": 7, "distances": [[0, 2.5], [2.5, 0]]}
    with_pool = report.load(run_folder(tmp_path / "a", [line_of(1, pool=pool), line_of(2)]))
    without = report.load(run_folder(tmp_path / "b"))
    (figure,) = figures([without, with_pool], ["b", "a"])
    go.Figure(figure.spec)
    assert figure.title == "Models of the last pool: a"
    assert "client 7" in figure.caption
    trace = figure.spec["data"][0]
    assert (trace["z"], trace["meta"]) == ([[0, 2.5], [2.5, 0]], 1)
    page = report.write([tmp_path / "a"], tmp_path / "page.html").read_text()
    assert "Models of the last pool" in page


def test_a_large_pool_has_no_numbers_on_its_squares(tmp_path):
    pool = {"client": 0, "distances": [[1.0] * 13] * 13}
    run = report.load(run_folder(tmp_path / "a", [line_of(1, pool=pool)]))
    assert "texttemplate" not in figures([run], ["a"])[0].spec["data"][0]


@pytest.mark.parametrize("pool", [3, {"client": 0}, {"client": 0, "distances": [[1, 2]]}, {"distances": [[1]]}])
def test_a_line_with_a_damaged_pool_is_refused(tmp_path, pool):
    with pytest.raises(BadInput, match="pool should say client and distances"):
        report.load(run_folder(tmp_path / "a", [line_of(1, pool=pool)]))
