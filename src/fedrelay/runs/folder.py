"""The files of a run folder, and reading them: for whoever compares or shows a run.

config.toml says what was asked for, rounds.jsonl what every round did (one line each), summary.json how it ended.
Lines have a module of their own (`rounds`), and so has what else is written at the end: `results` (how good it is) and
`output` (the model). Every file is written by `keep`: whole or not at all, to be read by its owner only.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.runs import checkpoint
from fedrelay.runs.json_files import (
    Check,
    Damaged,
    directions,
    dumps,
    maybe,
    need,
    number,
    numbers,
    parsed,
    part,
    read,
    shares,
    shares_by_name,
    text,
    truth,
)
from fedrelay.runs.log import RoundLog, Summary, nothing
from fedrelay.runs.rounds import kept, read_rounds
from fedrelay.system import files

ROUNDS, SUMMARY, CONFIG = "rounds.jsonl", "summary.json", "config.toml"
ATTACKERS = "attackers.json"
"""Who attacks in the whole run, where there is an attack."""
LABELS = "labels.json"
"""The main class of every client, where it is known."""
CLIENTS, CLIENTS_TABLE, QUALITY = "clients.json", "clients.csv", "quality.json"
MODEL, MODEL_FACTS, CLIENT_MODELS, PREPARATION = "model.pt", "model.json", "client_models.pt", "preparation.json"
AT_THE_END = (SUMMARY, CLIENTS, CLIENTS_TABLE, QUALITY, MODEL, MODEL_FACTS, CLIENT_MODELS, PREPARATION)
"""What is written after the last round; the summary last of all, so a folder that has it has the others."""


@dataclass(frozen=True)
class Run:
    """What a run folder holds. `summary` is None while the run is still going."""

    name: str
    folder: Path
    config: dict[str, Any]
    rounds: list[RoundLog]
    summary: Summary | None


def load(folder: Path | str) -> Run:
    """The run in this folder, finished or still going; a damaged or missing file is refused by name."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(
            f"{folder} is not a run folder: name a folder that `fedrelay run FILE.toml --out DIR` has written"
        )
    config = read_config(folder / CONFIG)
    # Before the rounds: a summary is written after the last of them, so every round it counts is on disk by now.
    summary = read_summary(folder / SUMMARY)
    rounds = read_rounds(folder / ROUNDS, checkpoint.noted(folder / checkpoint.FOLDER))
    if summary is not None and summary.rounds > len(rounds):
        raise BadInput(
            f"{folder / ROUNDS} has {len(rounds)} whole lines, but {SUMMARY} counts {summary.rounds} "
            "rounds: lines were lost; run the experiment again into a new folder"
        )
    if summary is not None and summary.rounds < len(rounds):
        summary = None  # the run was taken up again for more rounds, and this is the summary of its first part
    return Run(folder.resolve().name, folder, config, rounds, summary)


# --- writing


def keep(path: Path, content: bytes | str) -> None:
    """Write a file of a run folder."""
    files.write(path, content.encode() if isinstance(content, str) else content, mode=files.PRIVATE)


def write_summary(path: Path, summary: Summary) -> None:
    keep(path, dumps(asdict(summary), indent=2) + "\n")


# --- reading


def read_summary(path: Path) -> Summary | None:
    """None if there is none yet."""
    if not path.exists():
        return None
    remedy = "delete it and run with --resume to write it anew"
    try:
        found = parsed(read(path, remedy))
        found = OLD_SUMMARY | found | old_headline(found)
        for name, check in SUMMARY_CHECKS.items():
            check(found.get(name), name)
        for item in fields(Summary):
            optional = item.default is not MISSING or item.default_factory is not MISSING
            need(item.name in found or optional, f"{item.name} should be there", None)
    except Damaged as damage:
        raise BadInput(f"{path} is damaged ({damage}): {remedy}") from None
    found |= {name: nothing() | found[name] for name in ("relayed", "describing")}
    return Summary(**kept(Summary, found))


def read_config(path: Path) -> dict[str, Any]:
    raw = read(path, "every run folder has one; name a folder that `fedrelay run` has written")
    try:
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged ({error}): run the experiment again into a new folder") from None


# --- what a summary must hold


SUMMARY_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("algorithm", "params_sha256", "metric", "tested"), text),
    **dict.fromkeys(("higher_is_better", "share"), truth),
    **dict.fromkeys(("mean", "best", "final"), maybe),
    **dict.fromkeys(("rounds", "examples", "seconds", "drops", "depth"), number),
    **dict.fromkeys(("accuracy", "best_accuracy", "final_accuracy", "final_loss", "target"), maybe),
    **dict.fromkeys(("jump", "classes", "parallelism", "simulated_seconds", "examples_per_second"), maybe),
    **dict.fromkeys(("messages", "bytes"), directions("total")),
    **dict.fromkeys(("rounds_to", "traffic_to", "time_to"), shares),
    **dict.fromkeys(("relayed", "describing"), part),
    **dict.fromkeys(("estimates", "clients", "over_clients", "defence", "privacy", "attacked"), numbers),
    **dict.fromkeys(("calibration_error", "mean_loss"), maybe),
    "estimates_to": shares_by_name,
}
OLD_SUMMARY: dict[str, Any] = {
    **dict.fromkeys(("final_loss", "jump", "classes", "parallelism", "simulated_seconds", "calibration_error")),
    "mean_loss": None,
    **{key: {} for key in ("rounds_to", "traffic_to", "time_to", "estimates", "estimates_to", "clients")},
    **{key: {} for key in ("over_clients", "defence", "privacy", "attacked")},
    **{key: nothing() for key in ("relayed", "describing")},
    "depth": 0,
    "tested": "",
}
"""What a summary of before there was a clock, relaying or estimates may lack."""


def old_headline(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a summary of before there were other figures was judged by: accuracy, or the loss where there is none."""
    if "metric" in found:
        return {}
    if found.get("accuracy") is None:
        figures = {"mean": None, "best": None, "final": found.get("final_loss")}
        return {"metric": "loss", "higher_is_better": False, "share": False, **figures}
    figures = {"mean": found.get("accuracy"), "best": found.get("best_accuracy"), "final": found.get("final_accuracy")}
    return {"metric": "accuracy", "higher_is_better": True, "share": True, **figures}
