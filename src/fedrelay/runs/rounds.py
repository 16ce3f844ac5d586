"""rounds.jsonl: one line for every round, and a running fingerprint of them all, which every checkpoint notes.

Promised: on resume a line that a checkpoint has counted is exactly the one that was written, or the run is refused;
whatever stands after it is written anew. Checkpoints of before there was a fingerprint are taken up without one, and
what a line has more than we know, or lacks because it is older, is no damage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from fedrelay.errors import BadInput
from fedrelay.runs.json_files import (
    Check,
    Damaged,
    chains,
    directions,
    dumps,
    listed,
    lost,
    maybe,
    need,
    number,
    numbered,
    numbers,
    parsed,
    part,
    pool,
    read,
    wire,
)
from fedrelay.runs.log import Dropped, Hit, RoundLog, Undescribed, nothing
from fedrelay.system import files

MEASURED = ("accuracy", "loss")
"""Metrics that have a place of their own in a line; all others are together under `metrics`."""


@dataclass(frozen=True)
class Noted:
    """What a checkpoint notes of rounds.jsonl: how many lines it counts, and the fingerprints they may have (two while
    the last one is being changed)."""

    lines: int
    sha256: tuple[str, ...]

    def fits(self, lines: Sequence[bytes]) -> bool:
        """Whether these begin with the lines that were noted."""
        counted = lines[: self.lines]
        return len(counted) == self.lines and fingerprint(counted) in self.sha256


def fingerprint(lines: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(lines)).hexdigest()


class Lines:
    """rounds.jsonl while a run writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self._digest = hashlib.sha256()

    def restart(self, lines: Sequence[bytes]) -> None:
        """Let the file hold these and nothing else."""
        content = b"".join(lines)
        files.write(self._path, content, mode=files.PRIVATE)
        self._count, self._digest = len(lines), hashlib.sha256(content)

    def append(self, log: RoundLog) -> None:
        """Its line is on disk before a checkpoint can count it."""
        line = encode(log)
        files.append(self._path, line)
        self._digest.update(line)
        self._count += 1

    def noted(self) -> Noted:
        return Noted(self._count, (self._digest.hexdigest(),))


# --- writing


def encode(log: RoundLog) -> bytes:
    """The line of a round."""
    line = asdict(log)
    optional = ("sampling", "undescribed", "kept", "joined", "wire", "pool", "over_clients", "attacked", "defence")
    for key in (*optional, "privacy", "order"):
        if not line[key]:
            del line[key]
    metrics = line.pop("metrics")
    line |= {name: metrics.pop(name, None) for name in MEASURED}
    return (dumps(line | ({"metrics": metrics} if metrics else {})) + "\n").encode()


# --- reading


def whole_lines(path: Path) -> list[bytes]:
    """With their line ends; what follows the last one is being written, or was when a run was killed."""
    raw = read(path, "no round has ended yet; wait for the first one, or run the experiment again")
    return [line + b"\n" for line in raw.split(b"\n")[:-1]]


def counted_lines(path: Path, round: int, noted: Noted | None) -> list[bytes]:
    """The lines that a checkpoint of this round has counted, as they were written; what follows does not matter."""
    lines = whole_lines(path)
    if noted is None:  # of an older version
        return lines[:round]
    if not noted.fits(lines):
        raise changed(path, noted)
    return lines[: noted.lines]


def changed(path: Path, noted: Noted) -> BadInput:
    return BadInput(
        f"{path.resolve()} was changed or damaged: its first {noted.lines} lines are not those that the checkpoint has "
        "counted; nothing was overwritten: put back an intact copy, or run the experiment again into a new folder"
    )


def read_rounds(path: Path, noted: Noted | None = None) -> list[RoundLog]:
    """What every whole line tells; those that a checkpoint has noted must be as they were written."""
    lines = whole_lines(path)
    if noted is not None and not noted.fits(lines):
        raise changed(path, noted)
    return logs_of(path, lines)


def logs_of(path: Path, lines: Sequence[bytes]) -> list[RoundLog]:
    """What these lines of the file tell; a damaged one is refused by its number."""
    logs = []
    for place, line in enumerate(lines, start=1):
        try:
            logs.append(decoded(line, place))
        except Damaged as damage:
            raise BadInput(
                f"{path}, line {place}, is damaged ({damage}): run the experiment again into a new folder"
            ) from None
    return logs


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
    for name in ("relayed", "describing"):
        found[name] = nothing() | found.get(name, {})
    for name in ("kept", "joined"):
        found[name] = tuple(found.get(name, ()))
    found["order"] = tuple(map(tuple, found.get("order", ())))
    found["drops"] = tuple(Dropped(**kept(Dropped, drop)) for drop in found.get("drops", ()))
    found["attacked"] = tuple(Hit(**kept(Hit, one)) for one in found.get("attacked", ()))
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


ROUND_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("round", "clients", "chains", "depth", "examples", "seconds", "visits", "groups"), number),
    **dict.fromkeys(("train_loss", "simulated_seconds", "classes"), maybe),
    **dict.fromkeys(("messages", "bytes"), directions()),
    **dict.fromkeys(("relayed", "describing"), part),
    **dict.fromkeys(("sampling", "metrics", "over_clients", "defence", "privacy"), numbers),
    "order": chains,
    "drops": lost("client", "chain", "hop"),
    **dict.fromkeys(("kept", "joined"), listed),
    "undescribed": lost("client"),
    "attacked": numbered("client", "chain", "hop"),
    "pool": pool,
    "wire": wire,
}
