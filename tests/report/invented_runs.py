"""Invented run folders for the tests of the report: small round numbers whose sums can be done in the head."""

from __future__ import annotations

import io
import json

from rich.console import Console

from fedrelay import report
from fedrelay.runs.log import RoundLog

ACCURACIES = (0.2, None, 0.6, 0.9)


def line_of(number, accuracy=0.5, **changes):
    """One invented round: 10 messages of 100 bytes, 3 hops deep."""
    return {
        "round": number,
        "accuracy": accuracy,
        "loss": None if accuracy is None else 1 - accuracy,
        "train_loss": 1.0 / number,
        "clients": 6,
        "chains": 2,
        "drops": [],
        "messages": {"server_to_client": 2, "client_to_server": 2, "client_to_client": 6},
        "bytes": {"server_to_client": 200, "client_to_server": 200, "client_to_client": 600},
        "depth": 3,
        "examples": 60,
        "seconds": 0.5,
    } | changes


def summary_of(algorithm="fedseq", rounds=4, **changes):
    return {
        "algorithm": algorithm,
        "rounds": rounds,
        "accuracy": 0.75,
        "best_accuracy": 0.9,
        "final_accuracy": 0.9,
        "rounds_to": {"0.7": 3, "0.9": 4},
        "traffic_to": {"0.7": 3000, "0.9": 4000},
        "target": 0.8,
        "messages": {"server_to_client": 8, "client_to_server": 8, "client_to_client": 24, "total": 40},
        "bytes": {"server_to_client": 800, "client_to_server": 800, "client_to_client": 2400, "total": 4000},
        "examples": 240,
        "seconds": 2.0,
        "examples_per_second": 120.0,
        "drops": 0,
        "params_sha256": "ab" * 32,
    } | changes


def round_log(number, accuracy=None, loss=None, **changes):
    """The same round as an object."""
    line = line_of(number) | changes
    for key in ("accuracy", "loss"):
        line.pop(key)
    return RoundLog(**line | {"drops": (), "metrics": {"accuracy": accuracy, "loss": loss}})


def run_folder(
    folder, lines=None, *, algorithm="fedseq", finished=True, extra="", rounds=4, seed=0, data="digits", **changes
):
    """Write an invented run folder; `rounds` were asked for."""
    folder.mkdir(parents=True)
    lines = [line_of(i, a) for i, a in enumerate(ACCURACIES, 1)] if lines is None else lines
    config = f'rounds = {rounds}\nseed = {seed}\n[data]\nname = "{data}"\npartition = {{ name = "shards" }}\n'
    config += f'[algorithm]\nname = "{algorithm}"\n{extra}'
    (folder / "config.toml").write_text(config, encoding="utf-8")
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        (folder / "summary.json").write_text(json.dumps(summary_of(algorithm, len(lines), **changes)))
    return folder


def racing(tmp_path, **runs):
    """Runs by name, each from (rounds to 90 %, bytes to 90 %)."""
    loaded = []
    for name, (rounds, sent) in runs.items():
        folder = run_folder(tmp_path / name, algorithm=name, rounds_to={"0.9": rounds}, traffic_to={"0.9": sent})
        loaded.append(report.load(folder))
    return loaded, list(runs)


def many(tmp_path, count):
    return [report.load(run_folder(tmp_path / f"run{i}", finished=i != 3)) for i in range(count)]


def rendered(table, width=80):
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


QUALITY = {
    "classes": ["cat", "<dog>", "cow"],
    "confusion": [[8, 2, 0], [5, 5, 0], [0, 1, 9]],
    "calibration": {"error": 0.125, "bins": [{"examples": 30, "confidence": 0.9, "accuracy": 0.775}]},
}


def client(number, name, accuracy):
    metrics = {"loss": 1.0, "accuracy": accuracy}
    return {"client": number, "name": name, "examples": 100, "tested": 20, "metrics": metrics}


def judged_folder(folder, accuracies, quality=QUALITY, **changes):
    """An invented run whose clients have these accuracies, by name."""
    run_folder(folder, **changes)
    clients = [client(number, *item) for number, item in enumerate(accuracies.items())]
    content = {"headline": "accuracy", "higher_is_better": True, "clients": clients}
    (folder / "clients.json").write_text(json.dumps(content))
    if quality is not None:
        (folder / "quality.json").write_text(json.dumps(quality))
    return folder


HOSPITALS = {"Ulm": 0.9, "<b>Wien</b>": 0.5, "Basel": 0.7}
