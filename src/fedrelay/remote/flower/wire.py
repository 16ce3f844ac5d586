"""The server's end of the Flower wire: messages are pushed to nodes, and replies pulled, over a Grid."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedrelay.engines.remote.trees import Malformed, decode, encode
from fedrelay.engines.remote.wire import Answered, Broken, Came, Event, Gone
from fedrelay.remote.flower.records import KNOWN, Parcel, packed, unpacked
from fedrelay.remote.hosting import Admitting
from fedrelay.remote.proof import Signing, new_challenge, proven
from fedrelay.remote.reception import Expected, Reception, Refused, environment

LOG = logging.getLogger("fedrelay")

POLL = 0.1
"""Seconds between two looks for replies; a hop takes Flower some seconds."""
LOOK = 3.0
"""Seconds between two looks at which nodes are there."""
AGAIN = 15.0
"""Seconds after which a node that was refused is asked again: it may have been mended, or the one before it is gone."""
UNREACHED = {
    3: "its message was not answered in time",
    4: "its answer was lost on the way",
    5: "its SuperNode is not there any more",
}
"""What Flower's codes of errors mean where nothing came of a message; all others are of the client's app."""
FAILED = {1: "its ClientApp could not be loaded", 7: "its app could not be installed", 8: "its ClientApp has crashed"}


@dataclass
class Node:
    """A node of the federation, and how far it has come."""

    id: int
    state: str = "new"
    """new, described, there, refused; asked while a reply is awaited before it is there."""
    number: int = -1
    again: float = 0.0
    reason: str = ""
    """Why it was refused."""
    challenge: str = ""
    """What it must sign to prove its name; empty: names are taken as they are said."""
    has: str = ""
    """Of which run it has what it was told."""
    certificate: tuple[str, str] | None = None
    """The name that it has proven, and by which certificate."""


@dataclass(frozen=True)
class Asked:
    """A message whose reply is awaited."""

    node: Node
    kind: str


class FlowerWire(Admitting):
    """Carries messages over a Grid. Flower's numbers of nodes are random: a client is who its --node-config names.

    Args:
        grid: what a ServerApp is given.
        seconds: how long Flower keeps a message, and waits for its reply.
        signing: signs every message; nodes must prove by their keys, too, who they are. None: nobody proves anything.
    """

    def __init__(self, grid: Grid, *, seconds: float, signing: Signing | None = None) -> None:
        self._grid, self._seconds, self._signing, self.largest = grid, seconds, signing, 1 << 25
        self._reception: Reception | None = None
        self._offer: Mapping[str, Any] = {}
        self._nodes: dict[int, Node] = {}
        self._asked: dict[str, Asked] = {}
        self._there: dict[int, Node] = {}
        """By the number of the client."""
        self._events: list[Event] = []
        self._looked = -LOOK

    # --- what the engine does

    def open(self, reception: Reception, /) -> None:
        self._reception = reception
        LOG.info("waiting for %s", ", ".join(reception.names))

    def offer(self, offer: Mapping[str, Any], expected: Expected, /) -> None:
        self._hosting.offer(offer, expected)
        self._offer = self._hosting.prepared()
        self._let_go()
        for node in list(self._nodes.values()):
            if node.state == "described":
                self._prepare(node)

    def attend(self, seconds: float, /) -> None:
        self._let_go()
        found = self.wait(seconds)
        self._events += found

    def _let_go(self) -> None:
        """Refuse those whose data does not go with the others'."""
        for node in list(self._nodes.values()):
            if node.state == "described":
                try:
                    self._hosting.check_agreed(node.number)
                except Refused as refusal:
                    self._refuse(node, str(refusal), tell=True)

    def send(self, client: int, message: bytes | bytearray, /) -> None:
        node = self._there.get(client)
        if node is not None:
            self._push(node, "visit", message)

    def wait(self, seconds: float, /) -> Sequence[Event]:
        until = time.monotonic() + seconds
        while True:
            self._look()
            self._pull()
            rest = until - time.monotonic()
            if self._events or rest <= 0:
                found, self._events = self._events, []
                return found
            time.sleep(min(POLL, rest))

    @property
    def remembers(self) -> bool:
        """A client's process may be another one at the next message."""
        return False

    def close(self, *, ended: bool = True) -> None:
        """Nothing: a run of Flower's ends by itself, and clients wait for the next one."""

    @property
    def _hosting(self) -> Reception:
        assert self._reception is not None
        return self._reception

    # --- who is there

    def _look(self) -> None:
        """Ask who is new, and forget who is gone."""
        now = time.monotonic()
        if now < self._looked + LOOK:
            return
        self._looked, present = now, set(self._grid.get_node_ids())
        for node in list(self._nodes.values()):
            revoked = None if node.certificate is None else self._hosting.why_not(*node.certificate)
            if node.id not in present:
                self._lose(node, UNREACHED[5])
            elif revoked is not None and node.state != "refused":
                self._lose(node, revoked)  # it is asked again who it is, and told
        for identity in sorted(present):
            node = self._nodes.setdefault(identity, Node(identity))
            if node.state == "new" or (node.state == "refused" and now > node.again):
                self._greet(node)

    def _greet(self, node: Node) -> None:
        node.state, node.challenge = "asked", "" if self._signing is None else new_challenge()
        told = {"data": self._hosting.data, "clients": list(self._hosting.names), "challenge": node.challenge}
        self._push(node, "welcome", encode({"is": "welcome", **environment(), **told}))

    def _prepare(self, node: Node) -> None:
        node.state = "asked"
        known = bool(node.has) and node.has == self._offer.get("digest")
        prepared = KNOWN if known else self._offer
        node.has = ""  # should it have lost it meanwhile, it is told all
        told = {"is": "prepared", "welcome": self._hosting.told(node.number), "prepared": prepared}
        self._push(node, "prepared", encode(told))

    def _lose(self, node: Node, reason: str) -> None:
        """A node is gone, and what was asked of it is not waited for."""
        self._nodes.pop(node.id, None)
        self._asked = {key: asked for key, asked in self._asked.items() if asked.node is not node}
        if self._there.get(node.number) is node:
            del self._there[node.number]
            self._events.append(Gone(node.number, reason))

    def _refuse(self, node: Node, reason: str, *, tell: bool = False) -> None:
        """A node does not take part (yet), which is said once."""
        node.state, node.number, node.again = "refused", -1, time.monotonic() + AGAIN
        if reason == node.reason:
            return
        node.reason = reason
        LOG.warning("node %d does not take part: %s", node.id, reason)
        if tell:
            self._push(node, "refused", encode(Refused(reason).tree()))

    # --- messages

    def _push(self, node: Node, kind: str, message: bytes | bytearray) -> None:
        content, run, digest = bytes(message), str(self._offer.get("run", "")), str(self._offer.get("digest", ""))
        proof = "" if self._signing is None else self._signing(node.id, content, run, digest)
        parcel = Parcel(content, run=run, digest=digest, proof=proof)
        sort = MessageType.TRAIN if kind == "visit" else MessageType.QUERY
        made = Message(packed(parcel), dst_node_id=node.id, message_type=sort, ttl=self._seconds)
        for identity in self._grid.push_messages([made]):
            if identity:
                self._asked[identity] = Asked(node, kind)
                return
        self._lose(node, "Flower did not take a message for it")

    def _pull(self) -> None:
        if not self._asked:
            return
        for reply in self._grid.pull_messages(list(self._asked)):
            asked = self._asked.pop(reply.metadata.reply_to_message_id, None)
            if asked is None:
                continue
            if reply.has_error():
                self._failed(asked, reply.error.code, str(reply.error.reason or ""))
            else:
                self._take(asked, reply)

    def _failed(self, asked: Asked, code: int, reason: str) -> None:
        """An error in place of a reply: Flower names neither the client nor always the cause."""
        node = asked.node
        if code in UNREACHED:
            self._lose(node, UNREACHED[code])
        elif asked.kind == "visit":
            text = FAILED.get(code, "its ClientApp has failed")
            self._events.append(Broken(node.number, f"{text}: {reason[:500]}" if reason else text))
            self._events.append(Came(node.number))  # whatever it was at, it is free again
        elif asked.kind != "refused":
            self._refuse(node, f"{FAILED.get(code, 'its ClientApp has failed')}: {reason[:500]}")

    def _take(self, asked: Asked, reply: Message) -> None:
        node = asked.node
        try:
            parcel = unpacked(reply.content)
            if len(parcel.message) > self.largest:
                raise Malformed(f"sent {len(parcel.message):,} bytes at once, and {self.largest:,} are the most")
            if parcel.declined:
                raise Refused(parcel.declined[:500])
            if asked.kind == "visit":
                self._visited(node, parcel.message)
            elif asked.kind != "refused":
                self._came_nearer(asked, decode(parcel.message))
        except Refused as refusal:
            self._decline(asked, str(refusal))
        except (Malformed, ValueError) as error:
            self._decline(asked, f"its reply cannot be taken: {error}")

    def _decline(self, asked: Asked, reason: str) -> None:
        if asked.kind == "visit":
            self._events.append(Broken(asked.node.number, reason))
        else:
            self._refuse(asked.node, reason)

    def _visited(self, node: Node, message: bytes) -> None:
        """An answer; a client that has lost what it was told of the run is told again."""
        if len(message) < SHORT and isinstance(tree := decode(message), dict):
            if tree.get("is") == "unknown":
                del self._there[node.number]
                self._events.append(Gone(node.number, "it has lost what it was told of the run"))
                self._prepare(node)
                return
            if tree.get("is") == "declined":
                self._events.append(Broken(node.number, str(tree.get("reason"))[:500]))
                return
        self._events.append(Answered(node.number, message))

    def _came_nearer(self, asked: Asked, tree: Any) -> None:
        """What a node says before it is there."""
        if not isinstance(tree, dict):
            raise Malformed(f"it is a {type(tree).__name__}, and no reply")
        node, kind = asked.node, tree.get("is")
        if kind == "declined":
            self._refuse(node, f"{tree.get('name')!s:.80}: {tree.get('reason')!s:.500}")
            return
        try:
            if asked.kind == "welcome":
                certificate = proven(tree.get("proof"), node.challenge, node=node.id) if node.challenge else None
                node.number, _ = self._hosting.welcome(tree, certificate)
                node.certificate = certificate
                node.has = str(tree["has"])
                self._check_alone(node)
                self._hosting.describe(node.number, {"is": "described", "data": tree.get("told")})
                node.state = "described"
                if self._offer:
                    self._prepare(node)
            else:
                size = self._hosting.admit(node.number, tree)
                self._check_alone(node)
                node.state, self._there[node.number] = "there", node
                self._events.append(Came(node.number, size=size))
        except Refused as refusal:
            self._refuse(node, str(refusal), tell=True)

    def _check_alone(self, node: Node) -> None:
        """Two nodes with one name would spoil one another's memory."""
        others = [one for one in self._nodes.values() if one is not node and one.number == node.number]
        if any(one.state in ("described", "there", "asked") for one in others):
            name = self._hosting.names[node.number]
            raise Refused(f"another node takes part as {name!r} already: every SuperNode needs a name of its own")


SHORT = 1 << 16
"""Bytes of what is no answer with a model; longer ones are read by the engine alone."""
