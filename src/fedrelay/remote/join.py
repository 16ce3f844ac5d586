"""A client with data of its own: it joins a server, makes visits when asked, and comes back when it is cut off."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from fedrelay import config
from fedrelay.data import Federation
from fedrelay.data.own.brought import Brought
from fedrelay.engines.remote.messages import Failed, Request
from fedrelay.engines.remote.trees import Malformed
from fedrelay.engines.remote.visitor import MemoryFolder, Visitor
from fedrelay.errors import BadInput
from fedrelay.remote import keys
from fedrelay.remote.addresses import host_of, is_loopback
from fedrelay.remote.bringing import Bringing
from fedrelay.remote.grpc_client import Connection
from fedrelay.remote.policy import Policy, SentLog
from fedrelay.remote.reception import EXPERIMENT, need
from fedrelay.remote.works import works_of
from fedrelay.system import files

LOG = logging.getLogger("fedrelay")

GLANCE = 0.5
"""Seconds between two looks at whether somebody wants us to stop."""
WELCOME = {"number": int, "name": str, "data": dict, "own": bool}
PREPARED = {"run": str, "digest": str, "tables": dict, "agreed": dict, "clients": int}
RUN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Client:
    """Who takes part, and with what.

    Args:
        server: `HOST:PORT`.
        home: where it keeps what it keeps between visits.
        name: what it is called, where it has no keys.
        keys: the folder of its keys.
        plain_text: without keys, although others can listen in.
        bringing: its own data; None: its part of the data set that the experiment names.
        policy: what it refuses.
        data_dir: where data sets lie that experiments name.
    """

    server: str
    home: Path
    name: str = ""
    keys: Path | None = None
    plain_text: bool = False
    bringing: Bringing | None = None
    policy: Policy = Policy()
    data_dir: Path | None = None

    def __post_init__(self) -> None:
        host = host_of(self.server)
        if self.keys is None and not self.name:
            raise BadInput("who is this client? --keys DIR proves it, --name says it")
        if self.keys is None and not self.plain_text and not is_loopback(host):
            raise BadInput(f"{self.server} is another machine: --keys DIR is needed, or --plain-text does without")

    def take_part(self) -> str:
        """Until the server says that the run has ended: what it said."""
        secrets, name = (None, self.name) if self.keys is None else keys.client_credentials(self.keys)
        make_private(self.home)
        lock = FileLock(self.home / ".lock", timeout=0, mode=files.PRIVATE)
        try:
            lock.acquire()
        except Timeout:
            raise BadInput(f"{self.home.resolve()} is in use by another client: give every client a --home") from None
        connection = Connection(self.server, credentials=secrets, name=name)
        try:
            return Membership(self, connection).stay()
        finally:
            connection.close()
            lock.release()


class Membership:
    """A client in a run, or on its way into one."""

    def __init__(self, client: Client, connection: Connection) -> None:
        self._client, self._connection = client, connection
        self._welcome: Mapping[str, Any] = {}
        self._brought: Brought | None = None
        self._visitor: Visitor | None = None
        self._told = ""
        self._log = SentLog(client.home)

    def stay(self) -> str:
        """Do what the server says until it says that this was all."""
        while True:
            message = self._connection.next(GLANCE)
            if message is None:
                continue
            if message.get("is") == "end":
                return str(message.get("reason", ""))[:500]
            self._do(message)

    def _do(self, message: Mapping[str, Any]) -> None:
        kind = message.get("is")
        if kind == "refused":
            self._refused(message)
        elif kind == "lost":
            self._tell(f"not connected: {message['reason']}; trying again")
        elif kind == "back":
            self._tell("connected again")
        elif kind == "visit":
            self._visit(message)
        elif kind in ("welcome", "prepared"):
            try:
                self._described(message) if kind == "welcome" else self._ready(message)
            except (BadInput, Malformed) as error:
                self._connection.decline(str(error))
                raise BadInput(f"this client cannot take part: {error}") from None

    def _tell(self, text: str) -> None:
        """Say what has changed, once."""
        if text != self._told:
            self._told = text
            LOG.warning("%s", text)

    def _refused(self, message: Mapping[str, Any]) -> None:
        reason = str(message.get("reason", ""))[:1000]
        if not message.get("again"):
            raise BadInput(f"the server {self._client.server} does not let us in: {reason}")
        self._tell(f"the server does not let us in yet: {reason}")

    def _described(self, message: Mapping[str, Any]) -> None:
        """Look at our data as the server says it is read, and tell what is to be told of it."""
        self._welcome = need(message, "welcome", WELCOME)
        bringing = self._client.bringing
        if bringing is not None:
            self._brought = bringing.open(self._welcome["name"], self._welcome["data"])
        told = {"kind": EXPERIMENT} if self._brought is None else self._brought.told()
        self._client.policy.check_told(told)
        self._log.described(told)
        self._connection.describe(told)

    def _ready(self, message: Mapping[str, Any]) -> None:
        """Build what the configuration says with our own software and our own data."""
        prepared = need(message, "prepared", PREPARED)
        if not RUN.fullmatch(prepared["run"]):
            raise Malformed("the run has no name of ours")
        self._client.policy.check_run(prepared["tables"])
        self._visitor = visitor = self._built(prepared)
        layout = visitor.task.layout
        facts = {"size": visitor.data.size, "parameters": layout.size, "trainable": layout.trainable}
        self._connection.ready(prepared["digest"], facts)
        self._tell(f"takes part as {self._welcome['name']}, with {visitor.data.size} examples")

    def _built(self, prepared: Mapping[str, Any]) -> Visitor:
        home, number, federation = self._client.home / prepared["run"], self._welcome["number"], None
        make_private(home)
        if self._brought is not None:
            source = self._brought.prepared(prepared["agreed"])
            federation = Federation.of(source, [np.arange(len(source.train))])
        tables = {**prepared["tables"], "engine": {"name": "inline"}}
        experiment = config.build(tables, self._client.data_dir, federation=federation)
        data = experiment.federation.client(number if federation is None else 0)
        works, seed = works_of(experiment.algorithm), int(experiment.tables["seed"])
        return Visitor(replace(data, id=number), experiment.task, seed, works, MemoryFolder(home))

    def _visit(self, message: Mapping[str, Any]) -> None:
        request = Request.of(message)
        known = self._connection.begin(request.ticket)
        if known:
            self._connection.answer(known)
        elif self._visitor is not None:
            refused = self._client.policy.why_not(request, self._visitor.works.get(request.work))
            answer = self._visitor.answer(request) if refused is None else Failed(request.ticket, refused)
            encoded = bytes(answer.encoded())
            self._log.answered(request, answer, len(encoded))
            self._connection.answer(encoded)


def make_private(folder: Path) -> None:
    """A folder for its owner only."""
    try:
        folder.mkdir(mode=files.PRIVATE_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror or error}): name another --home") from None
