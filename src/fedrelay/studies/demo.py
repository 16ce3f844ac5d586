"""The demonstration: what order does for unlike clients, on real digits, in about a minute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrelay import config, report
from fedrelay.report.progress import follow
from fedrelay.runs.folder import SUMMARY, read_summary
from fedrelay.studies.advise import advise, told

METHODS = ("fedavg", "fedcyclic", "fedseq")
SHARE = "0.9"
"""Of the reference: what it took to get there is told at the end."""

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
    advised(folders, console)
    return report.write(folders, out / "report.html")


def trained(out: Path, tables: dict[str, Any], live: Console) -> tuple[Path, float]:
    """Run an experiment (or take it as it is, if its folder holds it finished): its folder and its accuracy."""
    experiment = config.build(tables)
    recorder = experiment.record(out / experiment.fingerprint[:8] / experiment.name, resume=True)
    follow(recorder, live)
    return recorder.path, recorder.summary().accuracy or 0.0


def advised(folders: Sequence[Path], console: Console) -> None:
    """Which method to take for this federation, and why: what was published, and what was just measured."""
    advice, _ = advise(TABLES)
    console.print(told.choice_in_words(advice), style="bold green", highlight=False)
    for rule in advice.rules:
        if rule.name in advice.first.rules:
            console.print(f"{rule.advice} Published: {rule.evidence} [{rule.source}]", highlight=False)
    found = {}
    for name, folder in zip(METHODS, folders, strict=True):
        summary = read_summary(folder / SUMMARY)
        if summary is not None and (sent := summary.traffic_to.get(SHARE)) is not None:
            found[name] = sent
    if found:
        measured = ", ".join(f"{name} {told.in_bytes(sent)}" for name, sent in found.items())
        text = f"Measured here, to {float(SHARE):.0%} of the reference at one learning rate for all: {measured}."
        console.print(text, highlight=False)
    console.print(f"{told.clock_in_words(advice)} On your own file: fedrelay advise FILE.toml", highlight=False)
