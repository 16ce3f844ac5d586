"""A small item of its own, for tests of what every item has."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import tomli_w

TABLES: dict[str, Any] = {
    "title": "Two methods",
    "where": "Table 1",
    "study": "compare",
    "experiment": {
        "rounds": 3,
        "seeds": [0, 1],
        "data": {"name": "digits", "clients": 10, "partition": {"name": "dirichlet", "alpha": 0.0}},
        "model": {"name": "mlp", "hidden": [8]},
        "local": {"lr": 0.2, "batch": 16},
        "evaluate": {"every": 1},
        "engine": {"name": "inline"},
        "algorithm": {"name": "fedseq", "max_clients": 5},
        "runs": {"FedAvg": {"algorithm": {"name": "fedavg"}}, "FedSeq": {}},
    },
    "panels": {"one class": {}, "mixed": {"data": {"partition": {"alpha": 0.5}}}},
    "scales": {
        "small": {"why": "two rounds", "change": {"rounds": 2}},
        "smoke": {"why": "one round, one panel", "panels": ["mixed"], "change": {"rounds": 1, "seeds": [0]}},
    },
    "columns": [
        {"name": "accuracy", "measure": "accuracy", "unit": "%"},
        {"name": "rounds", "measure": "rounds_to", "share": 0.1},
    ],
    "paper": {"mixed": {"FedAvg": {"accuracy": {"value": 50, "deviation": 0.5}, "rounds": "never"}}},
    "claims": [{"text": "FedSeq is better", "panel": "mixed", "column": "accuracy", "rising": ["FedAvg", "FedSeq"]}],
}


def tables(**changes: Any) -> dict[str, Any]:
    """The tables of the item, with other values at these keys."""
    return {**copy.deepcopy(TABLES), **changes}


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "mine.toml"
    path.write_text(tomli_w.dumps(content), encoding="utf-8")
    return path
