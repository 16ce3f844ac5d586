"""A client in a run, however messages reach it: it describes its data, builds its model, and makes visits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedrelay import config
from fedrelay.config.experiment import Experiment
from fedrelay.data import Federation
from fedrelay.data.holdout import own_test_part
from fedrelay.data.own.brought import Brought
from fedrelay.engines.remote.messages import Failed, Request
from fedrelay.engines.remote.trees import Malformed
from fedrelay.engines.remote.visitor import MemoryFolder, Visitor
from fedrelay.errors import BadInput, say_once
from fedrelay.remote.bringing import Bringing
from fedrelay.remote.exemplars import received
from fedrelay.remote.policy import Policy, SentLog
from fedrelay.remote.reception import EXPERIMENT, need
from fedrelay.remote.works import works_of
from fedrelay.system import files
from fedrelay.types import Tree

WELCOME = {"number": int, "name": str, "data": dict, "own": bool}
PREPARED: Mapping[str, type | tuple[type, ...]] = {
    "run": str,
    "digest": str,
    "tables": dict,
    "agreed": dict,
    "clients": int,
    "exemplars": dict,
    "hold_out": (int, float),
}
RUN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Belongings:
    """What a client has, and what it takes part in; no server can change any of it.

    Args:
        home: where it keeps what it keeps between visits.
        bringing: its own data; None: its part of the data set that the experiment names.
        policy: what it refuses.
        data_dir: where data sets lie that experiments name.
    """

    home: Path
    bringing: Bringing | None = None
    policy: Policy = Policy()
    data_dir: Path | None = None


class Participant:
    """One client, from what it tells of its data to its last visit."""

    def __init__(self, belongings: Belongings) -> None:
        self._has = belongings
        self._brought: Brought | None = None
        self._log = SentLog(belongings.home)
        self.visitor: Visitor | None = None

    def describe(self, name: str, data: Mapping[str, Any]) -> Tree:
        """What is told of its data, which it reads as the server's [data] says."""
        if self._has.bringing is not None:
            self._brought = self._has.bringing.open(name, data)
        told = {"kind": EXPERIMENT} if self._brought is None else self._brought.told()
        self._has.policy.check_told(told)
        self._log.described(told)
        return told

    def prepare(self, welcome: Mapping[str, Any], prepared: Mapping[str, Any]) -> dict[str, int]:
        """Build what the configuration says with its own software and its own data: the size of both."""
        need(welcome, "welcome", WELCOME)
        need(prepared, "prepared", PREPARED)
        if not RUN.fullmatch(prepared["run"]):
            raise Malformed("the run has no name of ours")
        if not 0 <= prepared["hold_out"] < 1:
            raise Malformed(f"{prepared['hold_out']} is no share of our data to hold out")
        self._has.policy.check_run(prepared["tables"])
        if self._has.bringing is not None and self._brought is None:  # it was described by another process
            self._brought = self._has.bringing.open(welcome["name"], welcome["data"])
        self.visitor = self._built(welcome["number"], prepared)
        return self.facts

    @property
    def facts(self) -> dict[str, int]:
        """The size of its data, and of the model."""
        assert self.visitor is not None
        layout = self.visitor.task.layout
        return {"size": self.visitor.data.size, "parameters": layout.size, "trainable": layout.trainable}

    def _built(self, number: int, prepared: Mapping[str, Any]) -> Visitor:
        home = self._has.home / prepared["run"]
        make_private(home)
        tables = {**prepared["tables"], "engine": {"name": "inline"}}
        if self._brought is None:
            experiment = _experiment(json.dumps(tables), self._has.data_dir)
            data = experiment.federation.client(number)
        else:
            source = self._brought.prepared(prepared["agreed"])
            source = replace(source, public=received(prepared["exemplars"], source.train))
            federation = Federation.of(source, [np.arange(len(source.train))])
            experiment = config.build(tables, self._has.data_dir, federation=federation)
            data = federation.client(0)
        works, seed = works_of(experiment.algorithm), int(experiment.tables["seed"])
        data, share = replace(data, id=number), float(prepared["hold_out"])
        data = own_test_part(data, share, seed=seed) if share else data
        # Noise that the server could compute would hide nothing from it.
        return Visitor(data, experiment.task, seed, works, MemoryFolder(home), secretly=True)

    @property
    def beside(self) -> str:
        """What it has beside the examples that it trains on, in words."""
        held = None if self.visitor is None else self.visitor.data.held_out
        return "" if held is None else f" to train on and {len(held)} to test on"

    def visit(self, request: Request) -> bytes:
        """Make a visit: the answer, as it is sent. What cannot be noted in the log does not leave."""
        assert self.visitor is not None
        refused = self._has.policy.why_not(request, self.visitor.works.get(request.work))
        answer = self.visitor.answer(request) if refused is None else Failed(request.ticket, refused)
        encoded = bytes(answer.encoded())
        try:
            self._log.answered(request, answer, len(encoded))
        except OSError as error:
            reason = f"cannot note what it sends ({error.strerror or error})"
            say_once(reason)
            return bytes(Failed(request.ticket, reason).encoded())
        return encoded


@lru_cache(maxsize=1)
def _experiment(tables: str, data_dir: Path | None) -> Experiment:
    """The experiment of a configuration; where many clients are simulated in a process, it is built once."""
    return config.build(json.loads(tables), data_dir)


def make_private(folder: Path) -> None:
    """A folder for its owner only."""
    try:
        folder.mkdir(mode=files.PRIVATE_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror or error}): name another --home") from None
