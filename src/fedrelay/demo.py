"""The demonstration: what order does for unlike clients, on real digits, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from fedrelay import config, report
from fedrelay.live import follow

METHODS = ("fedavg", "fedcyclic", "fedseq")

TABLES: dict[str, Any] = {
    "rounds": 200,
    "seed": 0,
    "data": {"name": "digits", "clients": 100, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "model": {"name": "mlp"},
    "local": {"epochs": 1, "batch": 16, "lr": 0.1},
    "evaluate": {"every": 1},
}


def run(out: Path, console: Console, live: Console) -> Path:
    """Train the reference, then every method against its accuracy; print the table and write the report."""
    console.print(
        "100 clients, each with about 14 real handwritten digits of one class only; 20 of them train per round."
    )
    target = accuracy_of(out / "centralized", {**TABLES, "rounds": 30, "algorithm": {"name": "centralized"}}, live)
    console.print(f"All data in one place (the reference) reaches {target:.1%}.")
    evaluate = {**TABLES["evaluate"], "target": target}
    folders = [out / method for method in METHODS]
    for method, folder in zip(METHODS, folders, strict=True):
        accuracy_of(folder, {**TABLES, "evaluate": evaluate, "algorithm": {"name": method}}, live)
    console.print(report.table([report.load(folder) for folder in folders]))
    return report.write(folders, out / "report.html")


def accuracy_of(folder: Path, tables: dict[str, Any], live: Console) -> float:
    """Run an experiment (or take it as it is, if the folder holds it finished) and read its accuracy."""
    recorder = config.build(tables).record(folder, resume=True)
    follow(recorder, live)
    return float(recorder.summary()["accuracy"])
