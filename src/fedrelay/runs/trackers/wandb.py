"""Weights & Biases, offline: files in the run's folder, nothing is sent; `wandb sync` sends them, if you want to."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedrelay.runs.folder import keep
from fedrelay.runs.trackers.tracker import Figures, Tracker, named, plain, required

PROJECT, FOLDER, NOTE = "fedrelay", "wandb", "wandb.json"
QUIET = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
WITHOUT = ("disable_git", "disable_code", "x_disable_stats", "x_disable_meta", "x_disable_machine_info")
SETTINGS = {"mode": "offline", "console": "off", "silent": True, **dict.fromkeys(WITHOUT, True)}
"""Nothing of the machine, its programs or what is printed is kept either."""
BLOCK, HEAD, WHOLE, FIRST, LAST = 32768, 7, 1, 2, 4
"""Of its files: lengths of a block and of what is before a piece of a record, and kinds of pieces (LevelDB's log)."""


class Wandb(Tracker):
    """Every part of a run is a folder `wandb/offline-run-…`; they have one name, so they are one run when synced."""

    def __init__(self, folder: Path) -> None:
        os.environ.update(QUIET)
        self._wandb = required("wandb", "--wandb", "wandb")
        plain(folder / FOLDER)
        self._folder, self._run = folder, None
        self._note: dict[str, Any] = {"run": secrets.token_hex(4), "round": 0}

    def begin(self, settings: Mapping[str, str]) -> int:
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads((self._folder / NOTE).read_bytes())
            self._note = {"run": str(found["run"]), "round": int(found["round"])}
        self._note["round"] = max(self._note["round"], last_round(self._folder / FOLDER, self._note["run"]))
        self._run = self._wandb.init(
            project=PROJECT,
            name=named(self._folder),
            id=self._note["run"],
            dir=str(self._folder),
            config=dict(settings),
            settings=self._wandb.Settings(**SETTINGS),
        )
        self._keep()  # now: a process that is killed does not come to its end
        return int(self._note["round"])

    def write(self, round: int, figures: Figures) -> None:
        self._opened.log(dict(figures), step=round, commit=True)  # else it waits for the next round
        self._note["round"] = round

    def end(self, summary: Figures | None) -> None:
        for name, value in (summary or {}).items():
            self._opened.summary[name] = value
        self._opened.finish(exit_code=0 if summary is not None else 130)
        self._keep()

    def _keep(self) -> None:
        """Which run it is, and up to which round its files are surely whole: those may be gone once they were sent."""
        keep(self._folder / NOTE, json.dumps(self._note))

    @property
    def _opened(self) -> Any:
        assert self._run is not None  # it has begun
        return self._run


def last_round(folder: Path, run: str) -> int:
    """The last round that files of this run have. W&B writes every few seconds: who is killed has lost some."""
    record = required("wandb.proto.wandb_internal_pb2", "--wandb", "wandb").Record
    steps = [0]
    for path in sorted(folder.glob(f"offline-run-*-{run}/*.wandb")):
        for raw in records(path.read_bytes()):
            items = record.FromString(raw).history.item
            steps += [int(item.value_json) for item in items if "_step" in (item.key, *item.nested_key)]
    return max(steps)


def records(raw: bytes) -> Iterator[bytes]:
    """The records of a file, as far as they are whole. Each piece of one has a checksum (4 bytes), its length (2) and
    its kind (1) before it; where a block has no room for those, it is filled up."""
    place, found = HEAD, b""  # the file has a head of its own
    while place + HEAD <= len(raw):
        room = BLOCK - place % BLOCK
        if room < HEAD:
            place += room
            continue
        end = place + HEAD + int.from_bytes(raw[place + 4 : place + 6], "little")
        kind = raw[place + 6]
        if end > len(raw) or not WHOLE <= kind <= LAST:
            return
        found = raw[place + HEAD : end] if kind in (WHOLE, FIRST) else found + raw[place + HEAD : end]
        if kind in (WHOLE, LAST):
            yield found
        place = end
