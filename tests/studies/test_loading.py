"""A network of another package is built again, in a process that has only been asked to load it."""

from __future__ import annotations

import fedrelay as fr
from fedrelay import config
from fedrelay.config import catalogue


def test_parts_of_other_packages_are_entered_before_a_network_is_built(tmp_path, monkeypatch):
    tables = {
        "rounds": 1,
        "data": {"name": "digits", "clients": 3},
        "model": {"name": "logistic"},
        "algorithm": {"name": "fedavg"},
        "engine": {"name": "inline"},
    }
    list(config.build(tables).record(tmp_path / "run").run())
    calls = []
    monkeypatch.setattr(catalogue, "extend", lambda: calls.append("entered"))
    fr.load_model(tmp_path / "run")
    assert calls == ["entered"]
