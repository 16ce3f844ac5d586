"""A client with data of its own: it joins a server, makes visits when asked, and comes back when it is cut off."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedrelay.engines.remote.messages import Request
from fedrelay.engines.remote.trees import Malformed
from fedrelay.errors import BadInput
from fedrelay.remote import keys
from fedrelay.remote.addresses import host_of, is_loopback
from fedrelay.remote.bringing import Bringing
from fedrelay.remote.grpc_client import Connection
from fedrelay.remote.participant import WELCOME, Belongings, Participant, make_private
from fedrelay.remote.policy import Policy
from fedrelay.remote.reception import need
from fedrelay.remote.refusals import told_of
from fedrelay.system import files

LOG = logging.getLogger("fedrelay")

GLANCE = 0.5
"""Seconds between two looks at whether somebody wants us to stop."""


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
        self._participant = Participant(
            Belongings(client.home, client.bringing, policy=client.policy, data_dir=client.data_dir)
        )
        self._told = ""

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
            if self._client.keys is not None:
                keys.check_client(self._client.keys)  # who has expired meanwhile is cut off without a word
            self._tell(f"not connected: {message['reason']}; trying again")
        elif kind == "back":
            self._tell("connected again")
        elif kind == "visit":
            self._visit(message)
        elif kind in ("welcome", "prepared"):
            try:
                self._described(message) if kind == "welcome" else self._ready(message)
            except (BadInput, Malformed, OSError) as error:
                self._connection.decline(told_of(error))
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
        self._connection.describe(self._participant.describe(self._welcome["name"], self._welcome["data"]))

    def _ready(self, message: Mapping[str, Any]) -> None:
        facts = self._participant.prepare(self._welcome, message)
        self._connection.ready(message["digest"], facts)
        self._tell(f"takes part as {self._welcome['name']}, with {facts['size']} examples{self._participant.beside}")

    def _visit(self, message: Mapping[str, Any]) -> None:
        request = Request.of(message)
        known = self._connection.begin(request.ticket)
        if known:
            self._connection.answer(known)
        elif self._participant.visitor is not None:
            self._connection.answer(self._participant.visit(request))
