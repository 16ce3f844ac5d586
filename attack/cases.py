"""The commands that are killed, cut off and damaged: small enough to take a fraction of a second."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

BASE: dict[str, Any] = {
    "rounds": 6,
    "seed": 5,
    "checkpoint": 2,
    "data": {"name": "digits", "clients": 12, "partition": {"name": "dirichlet", "alpha": 0.3}},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 16, "lr": 0.1},
    "algorithm": {"name": "fedavg"},
    "engine": {"name": "inline"},
}
SPILLING = {"name": "inline", "memory_limit": 0.004}
"""A few clients' memories fit into it; the others are in a file."""
LATENCY = {"speed": {"name": "tiers", "values": [5.0, 50.0]}, "bandwidth": {"name": "lognormal", "median": 1.0}}


@dataclass(frozen=True, eq=False)
class Case:
    """A command: its configuration, its arguments after the file's name, and what is added to go on with it."""

    name: str
    tables: Mapping[str, Any]
    verb: str = "run"
    options: tuple[str, ...] = ()
    again: tuple[str, ...] = field(default=("--resume",))

    def write(self, folder: Path) -> list[str]:
        """The arguments, with the configuration written into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "case.toml").write_text(tomli_w.dumps(self.tables), encoding="utf-8")
        return [self.verb, "case.toml", "--out", "out", *self.options]


def changed(**changes: Any) -> dict[str, Any]:
    """The base with other values; a section is taken over key by key."""
    tables = copy.deepcopy(BASE)
    for key, value in changes.items():
        tables[key] = {**tables.get(key, {}), **value} if isinstance(value, dict) else value
    return tables


def run_of(method: str, engine: str | dict[str, Any] = "inline", **more: Any) -> Case:
    settings = {"name": engine} if isinstance(engine, str) else engine
    algorithm = {"name": method, **more.pop("algorithm", {})}
    return Case(f"{method} {settings['name']}", changed(algorithm=algorithm, engine=settings, **more))


GROUPED: dict[str, Any] = {"algorithm": {"max_clients": 4}}
INLINE = (
    *(run_of(name) for name in ("fedavg", "fedprox", "fedcyclic", "fednova", "fedadam", "ida", "fedmmd", "fedsam")),
    *(run_of(name, SPILLING) for name in ("scaffold", "feddyn", "moon", "fedper", "fedrep")),
    run_of("fedseq", **GROUPED),
    run_of("fedseqinter", **GROUPED),
    run_of("fedasyncseq", latency=LATENCY, **GROUPED),
    run_of("fedgsp"),
    run_of("fedseq2par"),
)
STACKED = (
    *(run_of(name, "stacked") for name in ("fedavg", "fedprox", "scaffold", "fedgsp", "fedcyclic")),
    run_of("fedseq", "stacked", **GROUPED),
    run_of("fedseqinter", "stacked", **GROUPED),
)
POOL = tuple(
    run_of(name, {"name": "pool", "workers": 2}, **more)
    for name, more in (("fedavg", {}), ("scaffold", {}), ("fedseq", GROUPED), ("fedseqinter", GROUPED))
)
COMPARE = Case(
    "compare",
    {
        **changed(rounds=3),
        "seeds": [0, 1],
        "reference": "mean",
        "runs": {
            "mean": {"algorithm": {"name": "fedavg"}},
            "chains": {"algorithm": {"name": "fedseq", "max_clients": 4}},
            "variates": {"algorithm": {"name": "scaffold"}, "engine": SPILLING},
        },
    },
    verb="compare",
    again=(),
)
TUNE = Case("tune", changed(rounds=8), verb="tune", options=("--lr", "0.03,0.1,0.3"), again=())
GROUPS = Case("groups", changed(groups={"max_clients": 4}), verb="groups", again=())
STUDIES = (COMPARE, TUNE)
