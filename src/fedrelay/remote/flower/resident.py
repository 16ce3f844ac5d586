"""A client's own process on a Flower federation: it has the data, the model and the memory, and answers messages.

It ends when its SuperNode has, or when nobody has asked for a while; the next message starts it again.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedrelay.engines.remote.messages import Request
from fedrelay.engines.remote.trees import Malformed, decode, encode
from fedrelay.errors import BadInput
from fedrelay.remote.bringing import Bringing
from fedrelay.remote.flower.calling import ADDRESS
from fedrelay.remote.flower.doorway import doorway, shut
from fedrelay.remote.flower.node import EXPERIMENT, Node
from fedrelay.remote.flower.records import KNOWN, Parcel
from fedrelay.remote.participant import RUN, Belongings, Participant, make_private
from fedrelay.remote.policy import Policy
from fedrelay.remote.proof import Asked, check_asked, proof_of
from fedrelay.remote.reception import ABOUT, environment, need
from fedrelay.remote.refusals import NotMeant, told_of
from fedrelay.system import files
from fedrelay.system.console import PlainLines

LOG = logging.getLogger("fedrelay")

IDLE = 900.0
"""Seconds after which a process that nobody asks ends."""
GLANCE = 1.0
GREETING: Mapping[str, type | tuple[type, ...]] = {**ABOUT, "data": dict, "clients": list, "challenge": str}
PREPARED = "prepared"
"""What a client was told of a run, in the folder of the run: whoever comes after this process goes on with it."""


class Attendant:
    """Answers the messages for one client."""

    def __init__(self, node: Node) -> None:
        self._node, self._home, self._digest = node, Path(node.home), ""
        make_private(self._home)
        policy = Policy.read(Path(node.policy)) if node.policy else Policy()
        bringing = None if node.data == EXPERIMENT else Bringing(node.data)
        data_dir = Path(node.data_dir) if node.data_dir else None
        self._participant = Participant(Belongings(self._home, bringing, policy=policy, data_dir=data_dir))
        self._last = ("", b"")

    def answer(self, parcel: Parcel) -> bytes:
        """What the client says."""
        try:
            self._check_server(parcel)
            tree = decode(parcel.message)
            kind = tree.get("is") if isinstance(tree, dict) else None
            if kind == "welcome":
                return self._hello(tree, parcel)
            if kind == "prepared":
                return self._ready(tree, parcel)
            if kind == "visit":
                return self._visit(Request.of(tree), parcel)
            if kind == "refused":
                LOG.error("the server does not let us in: %s", str(tree.get("reason"))[:1000])
                return bytes(encode({"is": "heard"}))
            raise Malformed(f"it is a {kind!r:.40}, and nothing we know")
        except (BadInput, Malformed, OSError) as error:
            LOG.error("this client cannot take part: %s", error)
            return bytes(encode({"is": "declined", "name": self._node.name, "reason": told_of(error)}))

    def _check_server(self, parcel: Parcel) -> None:
        """With keys, we listen to the server alone that has keys of the same authority, whatever it asks."""
        if self._node.keys:
            asked = Asked(parcel.origin, self._node.id, (parcel.run, parcel.digest), parcel.message)
            check_asked(Path(self._node.keys), parcel.proof, asked)

    def _hello(self, tree: Mapping[str, Any], parcel: Parcel) -> bytes:
        """Who we are, and what is to be told of our data, once we know that the run is for us."""
        welcome = need(tree, "welcome", GREETING)
        self._check_meant(welcome)
        name, challenge, proof = self._node.name, welcome["challenge"], {}
        if challenge and self._node.keys:
            proof = proof_of(Path(self._node.keys), challenge, name=name, node=self._node.id)
        told = self._participant.describe(name, welcome["data"])
        about = {"name": name, "instance": "", "working": "", "has": parcel.digest if self._has(parcel) else ""}
        return bytes(encode({"is": "hello", **environment(), **about, "told": told, "proof": proof}))

    def _check_meant(self, welcome: Mapping[str, Any]) -> None:
        """Refuse a run that we are not in, or whose server has another version: it learns nothing of our data."""
        name, ours = self._node.name, environment()
        if name not in welcome["clients"]:
            raise NotMeant(
                f"{name!r:.80} is no client of this run, which has {', '.join(welcome['clients'][:10])!s:.500}"
            )
        for key in ("protocol", "fedrelay"):
            if welcome[key] != ours[key]:
                raise NotMeant(
                    f"the server has {key} {welcome[key]!s:.40}, this client {ours[key]}: install the same version of "
                    "fedrelay on both"
                )

    def _ready(self, tree: Mapping[str, Any], parcel: Parcel) -> bytes:
        """Build what the run is, and keep what we were told of it."""
        if tree.get("prepared") == KNOWN and self._has(parcel):
            return bytes(encode({"is": "ready", **self._participant.facts}))
        facts = self._prepare(tree)
        files.write(self._home / tree["prepared"]["run"] / PREPARED, parcel.message, mode=files.PRIVATE)
        return bytes(encode({"is": "ready", **facts}))

    def _prepare(self, tree: Mapping[str, Any]) -> dict[str, int]:
        welcome, prepared = tree.get("welcome"), tree.get("prepared")
        if not isinstance(welcome, dict) or not isinstance(prepared, dict):
            raise Malformed("the server does not say what the run is")
        facts = self._participant.prepare(welcome, prepared)
        self._digest = str(prepared["digest"])
        return facts

    def _visit(self, request: Request, parcel: Parcel) -> bytes:
        """Make a visit; one that was made already is not made again."""
        if self._last[0] == request.ticket:
            return self._last[1]
        if not self._has(parcel):
            return bytes(encode({"is": "unknown"}))
        self._last = request.ticket, self._participant.visit(request)
        return self._last[1]

    def _has(self, parcel: Parcel) -> bool:
        """Whether what we were told of this run is there."""
        return bool(parcel.digest) and (self._digest == parcel.digest or self._remembered(parcel))

    def _remembered(self, parcel: Parcel) -> bool:
        """Whether this run could be built from what the client was told before."""
        if not RUN.fullmatch(parcel.run):
            return False
        try:
            tree = decode((self._home / parcel.run / PREPARED).read_bytes())
        except (OSError, Malformed):
            return False
        if not isinstance(tree, dict) or tree.get("prepared", {}).get("digest") != parcel.digest:
            return False
        self._prepare(tree)
        return True


@lru_cache(maxsize=1)
def attendant_of(node: Node) -> Attendant:
    """That of a simulated node: the last one is kept, and the next reads from its folder what it was told before."""
    return Attendant(node)


class Resident:
    """The process: one connection after another, each with one question."""

    def __init__(self, node: Node, parent: int) -> None:
        self._node, self._parent, self._asked = node, parent, time.monotonic()
        self._working: Connection[Any, Any] | None = None
        """For whom it is at work."""
        self._attendant = Attendant(node)
        self._path = Path(node.home) / ADDRESS
        self._address: object = None

    def serve(self) -> None:
        key = secrets.token_bytes(32)
        with doorway(Path(self._node.home)) as place, Listener(place, backlog=4, authkey=key) as listener:
            self._address = listener.address
            told = {"address": self._address, "key": key.hex(), "node": self._node.text}
            told |= {"parent": self._parent, "pid": os.getpid()}
            files.write(self._path, json.dumps(told).encode(), mode=files.PRIVATE)
            threading.Thread(target=self._watch, name="fedrelay-watch", daemon=True).start()
            while True:
                try:
                    connection = listener.accept()
                except (AuthenticationError, EOFError, OSError):
                    continue  # somebody without the key, or who has left
                with connection:
                    if not self._answered(connection):
                        return

    def _answered(self, connection: Connection[Any, Any]) -> bool:
        """Answer one question; whether to go on."""
        try:
            head = connection.recv_bytes(1 << 16)
            if not head:
                self._path.unlink(missing_ok=True)
                connection.send_bytes(b"")
                return False
            about = json.loads(head)
            texts = {name: str(about[name]) for name in ("run", "digest", "proof")}
            parcel = Parcel(connection.recv_bytes(), **texts, origin=int(about["origin"]))
            self._working = connection
            answer = self._attendant.answer(parcel)
            self._working = None
            connection.send_bytes(answer)
        except (EOFError, OSError, ValueError, KeyError, TypeError) as error:
            LOG.warning("a question could not be answered: %s", error)
        finally:
            self._asked, self._working = time.monotonic(), None
        return True

    def _watch(self) -> None:
        """End with the SuperNode, with a run that was stopped in the middle of a visit, or when nobody asks."""
        while True:
            time.sleep(GLANCE)
            working = self._working
            useless = time.monotonic() > self._asked + IDLE if working is None else left(working)
            if useless or not _alive(self._parent):
                self._path.unlink(missing_ok=True)
                shut(self._address, Path(self._node.home))
                os._exit(0)  # what a visit keeps is whole on the disk, or not there


def left(connection: Connection[Any, Any]) -> bool:
    """Whether nobody waits for the answer any more: who does says nothing."""
    try:
        return connection.poll()
    except OSError:  # it was answered just now
        return False


def _alive(pid: int) -> bool:
    """Whether a process is there; where that cannot be asked (Windows), it is taken to be."""
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(words: list[str]) -> int:
    handler = logging.StreamHandler()
    handler.setFormatter(PlainLines("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    node = Node(**json.loads(words[0]))
    os.umask(0o077)  # what it makes, its socket too, is its owner's alone, whoever may look into its home
    try:
        make_private(Path(node.home))
        lock = FileLock(Path(node.home) / ".lock", timeout=10, mode=files.PRIVATE)
        try:
            lock.acquire()
        except Timeout:
            raise BadInput(f"{node.home} is in use by another client: give every client a home=…") from None
        Resident(node, int(words[1])).serve()
    except BadInput as error:
        print(error, file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
