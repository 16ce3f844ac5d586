"""The demonstration: what order does for unlike clients, on real digits, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from fedrelay import config, report
from fedrelay.report.progress import follow

METHODS = ("fedavg", "fedcyclic", "fedseq")

TABLES: dict[str, Any] = {
    "rounds": 200,
    "seed": 0,
    "data": {"name": "digits", "clients": 100, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "model": {"name": "mlp"},
    "local": {"epochs": 1, "batch": 16, "lr": 0.1},
    "evaluate": {"every": 1},
    "engine": {"name": "inline"},  # the same bits on every machine
}


def run(out: Path, console: Console, live: Console) -> Path:
    """Train the reference, then every method against its accuracy; print the table and write the report."""
    console.print(
        "100 clients, each with about 14 real handwritten digits of one class only; 20 of them train per round."
    )
    _, target = trained(out, {**TABLES, "rounds": 30, "algorithm": {"name": "centralized"}}, live)
    console.print(f"All data in one place (the reference) reaches {target:.1%}.")
    evaluate = {**TABLES["evaluate"], "target": target}
    runs = [trained(out, {**TABLES, "evaluate": evaluate, "algorithm": {"name": method}}, live) for method in METHODS]
    folders = [folder for folder, _ in runs]
    console.print(report.table([report.load(folder) for folder in folders]))
    return report.write(folders, out / "report.html")


def trained(out: Path, tables: dict[str, Any], live: Console) -> tuple[Path, float]:
    """Run an experiment (or take it as it is, if its folder holds it finished): its folder and its accuracy."""
    experiment = config.build(tables)
    recorder = experiment.record(out / experiment.fingerprint[:8] / experiment.name, resume=True)
    follow(recorder, live)
    return recorder.path, recorder.summary().accuracy or 0.0
