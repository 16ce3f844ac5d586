"""The files of a run folder: written here, and read here by whoever resumes, compares or shows a run.

config.toml says what was asked for, rounds.jsonl what every round did (one line each), summary.json how it ended.
What else is written at the end has modules of its own: `results` (how good it is) and `output` (the model).
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from filelock import FileLock, Timeout

from fedrelay import files
from fedrelay.errors import BadInput
from fedrelay.runs.costs import DIRECTIONS
from fedrelay.runs.log import Dropped, RoundLog, Summary, Undescribed, nothing

ROUNDS, SUMMARY, CONFIG = "rounds.jsonl", "summary.json", "config.toml"
CLIENTS, CLIENTS_TABLE, QUALITY = "clients.json", "clients.csv", "quality.json"
MODEL, MODEL_FACTS, CLIENT_MODELS, PREPARATION = "model.pt", "model.json", "client_models.pt", "preparation.json"
AT_THE_END = (SUMMARY, CLIENTS, CLIENTS_TABLE, QUALITY, MODEL, MODEL_FACTS, CLIENT_MODELS, PREPARATION)
"""What is written after the last round; the summary last of all, so a folder that has it has the others."""
MEASURED = ("accuracy", "loss")
"""Metrics that have a place of their own in a line; all others are together under `metrics`."""


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
    rounds = read_rounds(folder / ROUNDS)
    if summary is not None and summary.rounds > len(rounds):
        raise BadInput(
            f"{folder / ROUNDS} has {len(rounds)} whole lines, but {SUMMARY} counts {summary.rounds} "
            "rounds: lines were lost; run the experiment again into a new folder"
        )
    if summary is not None and summary.rounds < len(rounds):
        summary = None  # the run was taken up again for more rounds, and this is the summary of its first part
    return Run(folder.resolve().name, folder, config, rounds, summary)


# --- writing


def encode(log: RoundLog) -> bytes:
    """The line of a round."""
    line = asdict(log)
    for key in ("sampling", "undescribed", "kept"):
        if not line[key]:
            del line[key]
    metrics = line.pop("metrics")
    line |= {name: metrics.pop(name, None) for name in MEASURED}
    return (dumps(line | ({"metrics": metrics} if metrics else {})) + "\n").encode()


def write_rounds(path: Path, logs: list[RoundLog]) -> None:
    files.write(path, b"".join(map(encode, logs)))


def write_summary(path: Path, summary: Summary) -> None:
    files.write(path, (dumps(asdict(summary), indent=2) + "\n").encode())


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON as everybody reads it: numbers that are not finite become null."""

    def finite(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {key: finite(part) for key, part in item.items()}
        if isinstance(item, list | tuple):
            return [finite(part) for part in item]
        return None if isinstance(item, float) and not math.isfinite(item) else item

    return json.dumps(finite(value), indent=indent, allow_nan=False)


# --- reading


def read_rounds(path: Path) -> list[RoundLog]:
    """The whole lines; what follows the last line end is a line that is being written, or was when a run was killed."""
    raw = read(path, "no round has ended yet; wait for the first one, or run the experiment again")
    logs = []
    for number, line in enumerate(raw.split(b"\n")[:-1], start=1):
        try:
            logs.append(decoded(line, number))
        except Damaged as damage:
            raise BadInput(
                f"{path}, line {number}, is damaged ({damage}): run the experiment again into a new folder"
            ) from None
    return logs


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
    except Damaged as damage:
        raise BadInput(f"{path} is damaged ({damage}): {remedy}") from None
    return Summary(**{item.name: found[item.name] for item in fields(Summary)})


def read_config(path: Path) -> dict[str, Any]:
    raw = read(path, "every run folder has one; name a folder that `fedrelay run` has written")
    try:
        return tomllib.loads(raw.decode())
    except ValueError as error:
        raise BadInput(f"{path} is damaged ({error}): run the experiment again into a new folder") from None


def read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path} is missing: {remedy}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): {remedy}") from None


def decoded(line: bytes, number: int) -> RoundLog:
    """The round that a line tells of; it must be this one."""
    found = parsed(line)
    need(found.get("round") == number, f"round should be {number}", found.get("round"))
    # Lines of before there was a clock, relaying or groups have none of it.
    found = {"groups": found.get("chains"), "visits": found.get("clients")} | found
    found["metrics"] = measured(found)
    for item in fields(RoundLog):
        if item.name in found or item.default is item.default_factory is MISSING:
            ROUND_CHECKS[item.name](found.get(item.name), item.name)
    found["kept"] = tuple(found.get("kept", ()))
    found["drops"] = tuple(Dropped(**kept(Dropped, drop)) for drop in found.get("drops", ()))
    found["undescribed"] = tuple(Undescribed(**kept(Undescribed, one)) for one in found.get("undescribed", ()))
    return RoundLog(**kept(RoundLog, found))


def measured(found: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a line; none if it was not tested."""
    more = found.get("metrics", {})
    need(isinstance(more, dict), "metrics should be numbers by name", more)
    first: dict[str, Any] = {name: found[name] for name in MEASURED if found.get(name) is not None}
    return {**first, **more}


T = TypeVar("T")


def kept(record: type[T], found: Mapping[str, Any]) -> dict[str, Any]:
    """What the record knows of what was found."""
    return {item.name: found[item.name] for item in fields(cast(Any, record)) if item.name in found}


# --- what a file must hold


class Damaged(Exception):
    """What is wrong with a line or file; whoever knows its name turns it into BadInput."""


Check = Callable[[Any, str], None]
"""Refuse a value that this key cannot have."""


def need(good: bool, expected: str, found: object) -> None:
    if not good:
        raise Damaged(f"{expected}, found {json.dumps(found)[:60]}")


def parsed(raw: bytes) -> dict[str, Any]:
    try:
        # A loss that overflowed may stand there as NaN or Infinity: there is no point of the curve to draw.
        found = json.loads(raw.decode(), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        text = raw[:40].decode(errors="replace")
        raise Damaged(f"not JSON: it begins with {text!r}") from None
    need(isinstance(found, dict), "it should be one JSON object", found)
    return cast(dict[str, Any], found)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def number(value: Any, key: str) -> None:
    need(is_number(value), f"{key} should be a number", value)


def maybe(value: Any, key: str) -> None:
    need(value is None or is_number(value), f"{key} should be a number", value)


def text(value: Any, key: str) -> None:
    need(isinstance(value, str), f"{key} should be a text", value)


def truth(value: Any, key: str) -> None:
    need(isinstance(value, bool), f"{key} should be true or false", value)


def directions(*more: str) -> Check:
    """A number for every direction, and for these."""

    def check(value: Any, key: str) -> None:
        good = isinstance(value, dict) and all(is_number(value.get(part)) for part in (*DIRECTIONS, *more))
        need(good, f"{key} should have the numbers {', '.join((*DIRECTIONS, *more))}", value)

    return check


def part(value: Any, key: str) -> None:
    good = isinstance(value, dict) and is_number(value.get("bytes")) and is_number(value.get("messages", 0))
    need(good, f"{key} should say messages and bytes", value)


def numbers(value: Any, key: str) -> None:
    good = isinstance(value, dict) and all(item is None or is_number(item) for item in value.values())
    need(good, f"{key} should hold numbers", value)


def shares(value: Any, key: str) -> None:
    """Shares of the target → a number or null; without a target there may be none."""
    good = isinstance(value, dict) and all(is_share(k) and (v is None or is_number(v)) for k, v in value.items())
    need(good, f"{key} should map shares of the target to numbers", value)


def is_share(key: str) -> bool:
    try:
        return 0 < float(key) < math.inf
    except ValueError:
        return False


def lost(*numbered: str) -> Check:
    """A list of clients with these numbers and a reason."""

    def check(value: Any, key: str) -> None:
        need(isinstance(value, list), f"{key} should be a list", value)
        for one in value:
            good = isinstance(one, dict) and all(is_number(one.get(name)) for name in numbered)
            words = ", ".join(numbered)
            need(good and isinstance(one.get("reason"), str), f"{key} should say {words} and reason", one)

    return check


def listed(value: Any, key: str) -> None:
    need(isinstance(value, list) and all(map(is_number, value)), f"{key} should be a list of numbers", value)


ROUND_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("round", "clients", "chains", "depth", "examples", "seconds", "visits", "groups"), number),
    **dict.fromkeys(("train_loss", "simulated_seconds", "classes"), maybe),
    **dict.fromkeys(("messages", "bytes"), directions()),
    **dict.fromkeys(("relayed", "describing"), part),
    **dict.fromkeys(("sampling", "metrics"), numbers),
    "drops": lost("client", "chain", "hop"),
    "kept": listed,
    "undescribed": lost("client"),
}
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
    **dict.fromkeys(("estimates", "clients"), numbers),
    "calibration_error": maybe,
}
OLD_SUMMARY: dict[str, Any] = {
    **dict.fromkeys(("final_loss", "jump", "classes", "parallelism", "simulated_seconds", "calibration_error")),
    **{key: {} for key in ("rounds_to", "traffic_to", "time_to", "estimates", "clients")},
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


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Nobody else may write a run into this folder meanwhile; the lock ends with the process, however it ends."""
    (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "checkpoint" / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BadInput(
            f"{folder.resolve()} is in use by another process: wait for it, or choose another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()
