"""A Flower federation in one process: a Grid whose nodes answer at once, or fail as Flower says that they have."""

from __future__ import annotations

import json
import logging
import tomllib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from scenes import NAMES

from fedrelay import config
from fedrelay.errors import DroppedClients
from fedrelay.remote.flower import client, server, wire
from fedrelay.remote.flower.records import unpacked
from fedrelay.remote.flower.resident import Attendant

NODE_UNAVAILABLE, APP_RAISED = 5, 2
RUN = 71
"""Flower's number of the run."""


@dataclass
class Grid1(Grid):
    """Nodes by Flower's number of each."""

    configs: dict[int, dict[str, str | int]]
    settings: dict[str, str | bool | float]
    fail: Callable[[int, str], int] = lambda node, kind: 0
    """The code of the error with which a message of a kind (query, train) to a node ends; 0: it does not."""
    sent: list[tuple[int, str, str]] = field(default_factory=list)
    """Node, kind, and what was asked or answered."""
    _replies: dict[str, Message] = field(default_factory=dict)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.configs)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for message in messages:
            identity = message.metadata.__dict__["_message_id"] = message.object_id
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            self.sent.append((node, kind, unpacked(message.content).run))
            code = self.fail(node, kind)
            if code:
                reply = Message(Error(code, "<class 'ZeroDivisionError'>"), reply_to=message)
            else:
                reply = self._answered(node, message)
            self._replies[identity] = reply
            yield identity

    def _answered(self, node: int, message: Message) -> Message:
        context = Context(RUN, node, self.configs[node], RecordDict(), self.settings)
        return client.app(message, context)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(one) for one in message_ids if one in self._replies]

    def set_run(self, run: object) -> None:
        raise NotImplementedError

    @property
    def run(self) -> object:
        raise NotImplementedError

    def create_message(self, *args: object, **kwargs: object) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError


def at_once(monkeypatch) -> None:
    """Clients answer in this process; all that is not on the disk is new at every message, as in new processes."""
    for name in ("_task_id", "_run_id", "_node_id"):  # which Flower sets in the process of an app
        monkeypatch.setattr(TaskIdentity, name, 1)

    def asked(node, parcel):
        Path(node.home).mkdir(parents=True, exist_ok=True)
        return Attendant(node).answer(parcel)

    monkeypatch.setattr(client, "asked", asked)


FILE = """
rounds = 3
seed = 1
[data]
name = "digits"
clients = 4
partition = { name = "dirichlet", alpha = 0.5 }
[model]
name = "mlp"
hidden = [16]
[algorithm]
name = "fedseq+scaffold"
groups = 2
[local]
lr = 0.1
batch = 16
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    at_once(monkeypatch)
    monkeypatch.setattr(wire, "LOOK", 0.0)
    monkeypatch.setattr(wire, "POLL", 0.001)
    monkeypatch.setattr(logging.getLogger("fedrelay"), "propagate", True)


def tables(text: str = FILE) -> config.Tables:
    return tomllib.loads(text)


def expected(told: config.Tables, folder: Path) -> str:
    recorder = config.build({**told, "engine": {"name": "inline"}}).record(folder / "simulated")
    list(recorder.run())
    return recorder.summary().params_sha256


def grid_of(folder: Path, names: tuple[str, ...] = NAMES, **settings) -> Grid1:
    """Flower numbers nodes at random: here against the order of the names."""
    nodes = {100 - place: {"name": name, "home": str(folder / name)} for place, name in enumerate(names)}
    told = {"clients": ",".join(names), "out": str(folder / "run"), "grace": 0.0, "beginning": 0.5, **settings}
    return Grid1(nodes, told)


def run(grid: Grid1, told: config.Tables):
    host = server.host_of(grid, grid.settings, told, run=RUN)
    recorder = host.open()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedClients)
        list(recorder.run())
    return host, recorder


def lines_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
