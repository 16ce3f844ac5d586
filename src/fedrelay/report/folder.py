"""Reads a run folder: what was asked for, what every round did, and how it ended (if it has)."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

from fedrelay.errors import BadInput
from fedrelay.runs.costs import DIRECTIONS


class Dropped(TypedDict):
    """A client that was lost from its chain in one round, and why."""

    client: int
    hop: int
    chain: int
    reason: str


class Round(TypedDict):
    """One line of rounds.jsonl."""

    round: int
    accuracy: float | None
    loss: float | None
    train_loss: float | None
    clients: int
    chains: int
    drops: list[Dropped]
    messages: dict[str, int]
    bytes: dict[str, int]
    depth: int
    examples: int
    seconds: float
    simulated_seconds: float | None
    relayed: dict[str, int]
    describing: dict[str, int]
    groups: int
    classes: int | None
    sampling: dict[str, float | None]


class Summary(TypedDict):
    """The whole of summary.json."""

    algorithm: str
    rounds: int
    accuracy: float | None
    best_accuracy: float | None
    final_accuracy: float | None
    rounds_to: dict[str, int | None]
    traffic_to: dict[str, int | None]
    time_to: dict[str, float | None]
    estimates: dict[str, float]
    target: float | None
    messages: dict[str, int]
    bytes: dict[str, int]
    examples: int
    seconds: float
    examples_per_second: float | None
    drops: int
    params_sha256: str


@dataclass(frozen=True)
class Run:
    """What a run folder holds. `summary` is None while the run is still going."""

    name: str
    folder: Path
    config: dict[str, Any]
    rounds: list[Round]
    summary: Summary | None


_NUMBERS = ("clients", "chains", "depth", "examples", "seconds")
_MAYBE = ("accuracy", "loss", "train_loss", "simulated_seconds", "classes")


def load(folder: Path | str) -> Run:
    """The run in this folder, finished or still going; a damaged or missing file is refused by name."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(
            f"{folder} is not a run folder: name a folder that `fedrelay run FILE.toml --out DIR` has written"
        )
    config = _config(folder / "config.toml")
    # Before the rounds: a summary is written after the last of them, so every round it counts is on disk by now.
    summary = _summary(folder / "summary.json")
    rounds = _rounds(folder / "rounds.jsonl")
    if summary is not None and summary["rounds"] > len(rounds):
        raise BadInput(
            f"{folder / 'rounds.jsonl'} has {len(rounds)} whole lines, but summary.json counts {summary['rounds']} "
            "rounds: lines were lost; run the experiment again into a new folder"
        )
    if summary is not None and summary["rounds"] < len(rounds):
        summary = None  # the run was taken up again for more rounds, and this is the summary of its first part
    return Run(folder.resolve().name, folder, config, rounds, summary)


def _read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path} is missing: {remedy}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): {remedy}") from None


def _config(path: Path) -> dict[str, Any]:
    raw = _read(path, "every run folder has one; name a folder that `fedrelay run` has written")
    try:
        return tomllib.loads(raw.decode())
    except ValueError as error:
        raise BadInput(f"{path} is damaged ({error}): run the experiment again into a new folder") from None


def _summary(path: Path) -> Summary | None:
    if not path.exists():
        return None
    remedy = "delete it and run with --resume to write it anew"
    try:
        found = _object(_read(path, remedy))
        for key in ("algorithm", "params_sha256"):
            _need(isinstance(found.get(key), str), f"{key} should be a text", found.get(key))
        for key in ("rounds", "examples", "seconds", "drops"):
            _number(found, key)
        for key in ("accuracy", "best_accuracy", "final_accuracy", "target", "examples_per_second"):
            _number(found, key, maybe=True)
        for key in ("messages", "bytes"):
            _split(found, key, "total")
        for key in ("rounds_to", "traffic_to", "time_to"):
            _shares(found, key)
        estimates = found.setdefault("estimates", {})
        good = isinstance(estimates, dict) and all(map(_is_number, estimates.values()))
        _need(good, "estimates should be numbers", estimates)
    except _Damaged as damage:
        raise BadInput(f"{path} is damaged ({damage}): {remedy}") from None
    return cast(Summary, found)


def _rounds(path: Path) -> list[Round]:
    raw = _read(path, "no round has ended yet; wait for the first one, or run the experiment again")
    rounds: list[Round] = []
    # What follows the last line end is a line that a run is writing right now, or was when it was killed.
    for number, line in enumerate(raw.split(b"\n")[:-1], start=1):
        try:
            rounds.append(_round(line, number))
        except _Damaged as damage:
            raise BadInput(
                f"{path}, line {number}, is damaged ({damage}): run the experiment again into a new folder"
            ) from None
    return rounds


def _round(line: bytes, number: int) -> Round:
    found = _object(line)
    _need(found.get("round") == number, f"round should be {number}", found.get("round"))
    for key in _MAYBE:
        _number(found, key, maybe=True)
    for key in _NUMBERS:
        _number(found, key)
    for key in ("messages", "bytes"):
        _split(found, key)
    # Runs of before there was a clock, relaying or groups have none.
    none = {"bytes": 0}
    found = {"simulated_seconds": None, "relayed": none, "describing": none, "groups": found["chains"]} | found
    for key in ("relayed", "describing"):
        part = found[key]
        _need(isinstance(part, dict) and _is_number(part.get("bytes")), f"{key} should say bytes", part)
    _number(found, "groups")
    found.setdefault("classes", None)
    said = found.setdefault("sampling", {})
    good = isinstance(said, dict) and all(value is None or _is_number(value) for value in said.values())
    _need(good, "sampling should hold numbers", said)
    drops = found.get("drops")
    _need(isinstance(drops, list), "drops should be a list", drops)
    for drop in cast(list[Any], drops):
        good = isinstance(drop, dict) and all(_is_number(drop.get(key)) for key in ("client", "hop", "chain"))
        _need(good and isinstance(drop.get("reason"), str), "a drop should say client, hop, chain and reason", drop)
    return cast(Round, found)


class _Damaged(Exception):
    """What is wrong with a line or file; whoever knows its name turns it into BadInput."""


def _need(good: bool, expected: str, found: object) -> None:
    if not good:
        raise _Damaged(f"{expected}, found {json.dumps(found)[:60]}")


def _object(raw: bytes) -> dict[str, Any]:
    try:
        # A loss that overflowed may stand there as NaN or Infinity: there is no point of the curve to draw.
        found = json.loads(raw.decode(), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        text = raw[:40].decode(errors="replace")
        raise _Damaged(f"not JSON: it begins with {text!r}") from None
    _need(isinstance(found, dict), "it should be one JSON object", found)
    return cast(dict[str, Any], found)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _number(found: Mapping[str, Any], key: str, *, maybe: bool = False) -> None:
    value = found.get(key)
    _need(_is_number(value) or (maybe and value is None), f"{key} should be a number", value)


def _split(found: Mapping[str, Any], key: str, *more: str) -> None:
    value = found.get(key)
    good = isinstance(value, dict) and all(_is_number(value.get(part)) for part in (*DIRECTIONS, *more))
    _need(good, f"{key} should have the numbers {', '.join((*DIRECTIONS, *more))}", value)


def _shares(found: dict[str, Any], key: str) -> None:
    """Shares of the target → a number or null; without a target there may be none."""
    value = found.setdefault(key, {})
    good = isinstance(value, dict) and all(_is_share(k) and (v is None or _is_number(v)) for k, v in value.items())
    _need(good, f"{key} should map shares of the target to numbers", value)


def _is_share(key: str) -> bool:
    try:
        return 0 < float(key) < math.inf
    except ValueError:
        return False
