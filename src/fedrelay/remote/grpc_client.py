"""A client's end of the gRPC wire: it joins, and joins again by itself whenever it is cut off."""

from __future__ import annotations

import logging
import queue
import random
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from fedrelay.engines.remote.trees import Malformed, decode, encode
from fedrelay.remote.frames import METHOD, OPTIONS, Assembler, TooLong, frames
from fedrelay.remote.reception import environment

LOG = logging.getLogger("fedrelay")

FIRST, LONGEST = 0.2, 5.0
"""Seconds until a client tries again: at first, and at most."""
SERVER_LIMIT = 1 << 34
"""Bytes of a message of the server's: whoever we have chosen to trust with our training may be large."""


@dataclass
class Outgoing:
    """What a call is to send; None ends it."""

    waiting: queue.SimpleQueue[bytes | bytearray | None] = field(default_factory=queue.SimpleQueue)

    def pieces(self) -> Iterator[bytes]:
        while (message := self.waiting.get()) is not None:
            yield from frames(message)


class Connection:
    """Keeps a call to the server open in a thread of its own, so that training never cuts it off.

    What the server says comes out of `next`. The answer to the last visit is sent again over a new call: the server
    takes it if it still waits for it.
    """

    def __init__(self, server: str, *, credentials: Any | None, name: str) -> None:
        self._server, self._credentials, self._name = server, credentials, name
        self._instance = secrets.token_hex(8)
        self._inbox: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._outgoing: Outgoing | None = None
        self._described, self._ready = b"", ("", b"")
        self._working, self._answer = "", b""
        self._let_in = False
        """Whether the server has told us of its run in this call."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._stay, name="fedrelay-wire", daemon=True)
        self._thread.start()

    # --- what the client does

    def next(self, seconds: float) -> Mapping[str, Any] | None:
        """The next message for us; None if none comes within so many seconds."""
        try:
            return self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None

    def describe(self, data: Mapping[str, Any]) -> None:
        """What we tell of our data; from now on that is said at every new call."""
        with self._lock:
            self._described = bytes(encode({"is": "described", "data": data}))
            self._send(self._described)

    def ready(self, digest: str, facts: Mapping[str, Any]) -> None:
        """We can take part in the run with this configuration; from now on that is said at every new call."""
        with self._lock:
            self._ready = digest, bytes(encode({"is": "ready", **facts}))
            self._send(self._ready[1])

    def decline(self, reason: str) -> None:
        """We do not take part."""
        with self._lock:
            self._send(bytes(encode({"is": "declined", "reason": reason})))

    def begin(self, ticket: str) -> bytes:
        """We are at this visit now; if its answer is there already, it is this."""
        with self._lock:
            if self._working == ticket:
                return self._answer
            self._working, self._answer = ticket, b""
            return b""

    def answer(self, message: bytes) -> None:
        """What came of it."""
        with self._lock:
            self._answer = message
            self._send(message)

    def close(self) -> None:
        """Leave."""
        self._ended.set()
        with self._lock:
            if self._outgoing is not None:
                self._outgoing.waiting.put(None)
        self._thread.join(timeout=5)

    def _send(self, message: bytes) -> None:
        if self._outgoing is not None:
            self._outgoing.waiting.put(message)

    # --- what the thread does

    def _stay(self) -> None:
        """One call after another, until we leave or are refused."""
        pause = FIRST
        while not self._ended.is_set():
            self._let_in = False
            reason = self._call()
            if reason is None:
                return
            pause = FIRST if self._let_in else pause
            self._inbox.put({"is": "lost", "reason": reason})
            self._ended.wait(pause * random.uniform(0.5, 1.0))  # so that not all come back in the same moment
            pause = min(2 * pause, LONGEST)

    def _call(self) -> str | None:
        """A call from its beginning to its end: why it ended, None if there shall be no other."""
        outgoing, assembler = Outgoing(), Assembler(SERVER_LIMIT)
        channel = open_channel(self._server, self._credentials)
        try:
            with self._lock:
                hello = {"name": self._name, "instance": self._instance, "working": self._working}
                hello["has"] = self._ready[0]
                self._outgoing = outgoing
                self._send(bytes(encode({"is": "hello", **environment(), **hello})))
            for frame in channel.stream_stream(METHOD)(outgoing.pieces()):
                message = assembler.add(frame)
                if message is not None and not self._take(decode(message)):
                    return None
            return "the server has ended the connection"
        except grpc.RpcError as error:
            return words(error)
        except (Malformed, TooLong) as error:
            return f"the server said something that cannot be read: {error}"
        finally:
            with self._lock:
                self._outgoing = None
            outgoing.waiting.put(None)
            channel.close()

    def _take(self, tree: Any) -> bool:
        """Pass on what the server says; what we have answered before is answered at once. Whether to stay."""
        kind = tree.get("is") if isinstance(tree, dict) else None
        self._let_in |= kind == "prepared"
        with self._lock:
            if kind == "welcome" and self._described:
                self._send(self._described)
                return True
            if kind == "prepared" and self._ready[1] and tree.get("digest") == self._ready[0]:
                self._send(self._ready[1])
                if self._answer:
                    self._send(self._answer)
                self._inbox.put({"is": "back"})
                return True
        self._inbox.put(tree if isinstance(tree, dict) else {})
        if kind == "refused":
            return float(tree.get("again", 0.0)) > 0
        return kind != "end"


def open_channel(server: str, credentials: Any | None) -> Any:
    """A way to the server; nothing is sent before there is a call."""
    options = [*OPTIONS, ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    if credentials is None:
        return grpc.insecure_channel(server, options)
    return grpc.secure_channel(server, credentials, options)


def words(error: Any) -> str:
    """What went wrong with a call, in words for whoever runs the client."""
    details = str(error.details() if hasattr(error, "details") else error)
    for sign, text in SIGNS.items():
        if sign in details:
            return text
    return f"the server cannot be reached ({details[:300]})"


STRANGE = "the server's certificate is not of the authority in our keys: are these the keys of this federation?"
PLAIN = "the server speaks plain text, and we come with keys: leave --keys out, or start it with its keys"
NO_WAY = "there is no way to this address from here: check --server, and this machine's network"
NOWHERE = "there is no machine of this name: check --server"
SIGNS = {
    "certificate has expired": "the server's certificate has expired, or this machine's clock is wrong: "
    "`fedrelay keys renew` at the server makes a new one",
    "certificate is not yet valid": "the server's certificate is not valid yet: this machine's clock is wrong",
    "unable to get local issuer certificate": STRANGE,
    "self-signed certificate": STRANGE,
    "self signed certificate": STRANGE,
    "Hostname Verification Check failed": "the server's certificate is not for this address: use the name or address "
    "that its keys were made for (`fedrelay keys list` at the server shows it)",
    "WRONG_VERSION_NUMBER": PLAIN,
    "wrong version number": PLAIN,
    "Connection refused": "nobody listens at this address: is the server running, and is the port right?",
    "Connection timed out": "nobody answers at this address: it is wrong, or a firewall drops what is sent",
    "Network is unreachable": NO_WAY,
    "No route to host": NO_WAY,
    "DNS resolution failed": NOWHERE,
    "errors resolving": NOWHERE,
    "Failed parsing HTTP/2": "something else than fedrelay answers there: check the port in --server, or whether a "
    "proxy is in between",
    "HTTP proxy returned": "this machine's proxy (https_proxy) does not let us through: ask for this address and port "
    "there, or name the server in no_proxy",
    "Socket closed": "the connection was closed: the server has gone, or it asks for keys (--keys), or a proxy cuts "
    "long calls",
}
"""Parts of gRPC's own words, and ours."""
