"""The server's end of the gRPC wire: one call for every client, which lasts as long as the client is there."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from fedrelay.engines.remote.trees import Malformed, decode, encode
from fedrelay.engines.remote.wire import Answered, Broken, Came, Event, Gone
from fedrelay.errors import BadInput
from fedrelay.remote.addresses import host_of
from fedrelay.remote.frames import METHOD, OPTIONS, Assembler, TooLong, frames
from fedrelay.remote.hosting import Admitting
from fedrelay.remote.reception import Expected, Reception, Refused

LOG = logging.getLogger("fedrelay")

OPENING = 30.0
"""Seconds in which a client must say who it is; building its model may take longer."""
ENDING = 5.0
"""Seconds in which clients are told that a run has ended."""
DESCRIPTION = 1 << 25
"""Bytes that a client may send before it is let in."""
AGAIN = 2.0
"""Seconds after which the list of known clients is read again."""
GLANCE = 0.2
"""Seconds between two looks at whether a client that waits is refused."""
TWICE = 30.0
"""Seconds in which a client that was cut off without a word is noticed to have gone."""


@dataclass
class Connection:
    """A client's call."""

    number: int
    instance: str
    certificate: tuple[str, str] | None
    outbox: asyncio.Queue[bytes | bytearray | None] = field(default_factory=asyncio.Queue)

    def tell_the_end(self) -> None:
        self.outbox.put_nowait(encode({"is": "end", "reason": "the run has ended"}))
        self.outbox.put_nowait(None)


class GrpcWire(Admitting):
    """Listens on an address (port 0: any that is free). `credentials` are those of gRPC; None is plain text."""

    def __init__(self, address: str, *, credentials: Any | None) -> None:
        self._address, self._credentials = address, credentials
        self.largest = DESCRIPTION
        """Bytes of a message of a client."""
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._connections: dict[int, Connection] = {}
        self._loop = asyncio.new_event_loop()
        self._server: Any = None
        self._reception: Reception | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="fedrelay-wire", daemon=True)
        self._offered = asyncio.Event()
        self._coming, self._ended = 0, False
        self._watch: asyncio.Future[None]
        self.port = 0

    def open(self, reception: Reception, /) -> None:
        """Begin to listen; a port that is in use is refused."""
        self._reception = reception
        self._thread.start()
        self._do(self._open())
        LOG.info("listening on %s:%d for %s", host_of(self._address), self.port, ", ".join(reception.names))

    def attend(self, seconds: float, /) -> None:
        time.sleep(seconds)  # a thread of its own hears clients

    def offer(self, offer: Mapping[str, Any], expected: Expected, /) -> None:
        """Let clients in: this is the run, and what they must have."""
        assert self._reception is not None
        self._reception.offer(offer, expected)
        self._loop.call_soon_threadsafe(self._offered.set)

    async def _open(self) -> None:
        # Without so_reuseport=0 two servers would share a port, and clients would find either.
        self._server = grpc.aio.server(options=[*OPTIONS, ("grpc.so_reuseport", 0), *STRIKES])
        handler = grpc.stream_stream_rpc_method_handler(self._join)
        service, _, method = METHOD.strip("/").partition("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        try:
            if self._credentials is None:
                self.port = self._server.add_insecure_port(self._address)
            else:
                self.port = self._server.add_secure_port(self._address, self._credentials)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise BadInput(
                f"cannot listen on {self._address}: the port is in use, or the address is not this machine's; name "
                "another with --listen"
            )
        await self._server.start()
        self._watch = asyncio.ensure_future(self._let_go())

    # --- what the engine does

    def send(self, client: int, message: bytes | bytearray, /) -> None:
        connection = self._connections.get(client)
        if connection is not None:
            self._loop.call_soon_threadsafe(connection.outbox.put_nowait, message)

    def wait(self, seconds: float, /) -> Sequence[Event]:
        found: list[Event] = []
        try:
            found.append(self._events.get(timeout=max(seconds, 0.0)))
            while True:
                found.append(self._events.get_nowait())
        except queue.Empty:
            return found

    def close(self, *, ended: bool = True) -> None:
        """Stop listening. If the run has ended, clients are told so; else they wait for the server to come back."""
        if not self._thread.is_alive():
            self._loop.close()
            return
        self._do(self._close(ended))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self, ended: bool) -> None:
        self._ended = ended
        for connection in list(self._connections.values()) if ended else ():
            connection.tell_the_end()
        if self._server is not None and self.port:
            self._watch.cancel()
            until = time.monotonic() + ENDING
            while ended and (self._connections or self._coming) and time.monotonic() < until:
                await asyncio.sleep(0.01)
            await self._server.stop(0.2)

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # --- what a client does

    async def _join(self, _: Any, context: Any) -> None:
        """The life of a call."""
        assembler = Assembler(DESCRIPTION)
        self._coming += 1
        try:
            connection, came = await self._let_in(context, assembler)
        except Refused as refusal:
            LOG.warning("a client was refused: %s", refusal)
            await _write(context, encode(refusal.tree()))
            return
        except (TooLong, Malformed, TimeoutError, Left) as error:
            LOG.info("somebody came and was no client: %s", error)
            return
        finally:
            self._coming -= 1
        self._connections[connection.number] = connection
        if self._ended:  # while it was let in
            connection.tell_the_end()
        self._events.put(came)
        sender = asyncio.ensure_future(self._send(context, connection))
        reader = asyncio.ensure_future(self._read(context, connection, Assembler(self.largest)))
        reason = "its connection was lost"
        try:
            await asyncio.wait([sender, reader], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sender, reader):
                task.cancel()
            if self._connections.get(connection.number) is connection:
                del self._connections[connection.number]
                self._events.put(Gone(connection.number, reason))

    async def _let_in(self, context: Any, assembler: Assembler) -> tuple[Connection, Came]:
        """The connection of a client that may take part, and what there is to say of it."""
        assert self._reception is not None
        hello = decode(await asyncio.wait_for(_message(context, assembler), OPENING))
        number, welcome = self._reception.welcome(hello, certificate_of(context))
        self._check_alone(number, hello["instance"])
        await _write(context, encode(welcome))
        self._reception.describe(number, await self._said(context, assembler, welcome["name"]))
        await self._agreed(number)
        await _write(context, encode(self._reception.prepared(hello["has"])))
        size = self._reception.admit(number, await self._said(context, assembler, welcome["name"]))
        self._check_alone(number, hello["instance"])
        connection = Connection(number, hello["instance"], certificate_of(context))
        return connection, Came(number, hello["working"], size)

    async def _agreed(self, number: int) -> None:
        """Wait until all have agreed on their data; a client that does not go with the others is refused."""
        assert self._reception is not None
        while not self._offered.is_set():
            self._reception.check_agreed(number)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._offered.wait(), GLANCE)
        self._reception.check_agreed(number)

    async def _said(self, context: Any, assembler: Assembler, name: str) -> Any:
        """What a client says, if it does not decline."""
        tree = decode(await _message(context, assembler))
        if isinstance(tree, dict) and tree.get("is") == "declined":
            LOG.warning("%s does not take part: %s", name, str(tree.get("reason"))[:500])
            raise Left("it declined")
        return tree

    def _check_alone(self, number: int, instance: str) -> None:
        """Two processes with one name would spoil one another's memory."""
        other = self._connections.get(number)
        if other is not None and other.instance != instance:
            assert self._reception is not None
            raise Refused(
                f"another process takes part as {self._reception.names[number]!r} already: every client needs a name "
                "and a key of its own",
                again=TWICE,
            )

    async def _let_go(self) -> None:
        """Cut off whoever may not take part any more: keys are revoked while a run goes on, too."""
        assert self._reception is not None
        while True:
            await asyncio.sleep(AGAIN)
            for connection in list(self._connections.values()):
                reason = None if connection.certificate is None else self._reception.why_not(*connection.certificate)
                if reason is not None:
                    LOG.warning("%s is cut off: %s", self._reception.names[connection.number], reason)
                    connection.outbox.put_nowait(encode(Refused(reason).tree()))
                    connection.outbox.put_nowait(None)

    async def _send(self, context: Any, connection: Connection) -> None:
        while (message := await connection.outbox.get()) is not None:
            await _write(context, message)

    async def _read(self, context: Any, connection: Connection, assembler: Assembler) -> None:
        while True:
            try:
                message = await _message(context, assembler)
            except TooLong as error:
                self._events.put(Broken(connection.number, str(error)))
            except Left:
                return
            else:
                self._events.put(Answered(connection.number, message))


STRIKES = (("grpc.http2.min_recv_ping_interval_without_data_ms", 1000), ("grpc.http2.max_ping_strikes", 0))
"""Clients may ask whether we are there as often as they like."""


class Left(Exception):
    """The client has ended its call."""


async def _message(context: Any, assembler: Assembler) -> bytes:
    """The next whole message of a client."""
    while True:
        frame = await context.read()
        if frame is grpc.aio.EOF:
            raise Left("it left before it had said all")
        message = assembler.add(frame)
        if message is not None:
            return message


async def _write(context: Any, message: bytes | bytearray) -> None:
    for frame in frames(message):
        await context.write(frame)


def certificate_of(context: Any) -> tuple[str, str] | None:
    """The name in a client's certificate, and the certificate (PEM); None in plain text."""
    found = context.auth_context()
    if "x509_pem_cert" not in found:
        return None
    names = found.get("x509_common_name") or [b""]
    return names[0].decode(errors="replace"), found["x509_pem_cert"][0].decode(errors="replace")
