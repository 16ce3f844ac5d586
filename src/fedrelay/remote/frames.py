"""Messages in pieces: so that one of any length goes through limits that are made for short ones."""

from __future__ import annotations

from collections.abc import Iterator

PIECE = 1 << 20
MORE, LAST = b"\0", b"\1"
METHOD = "/fedrelay.Relay/Join"
"""One call for every client, as long as it is there: pieces of messages in both directions."""

SECONDS = 10_000
OPTIONS = (
    ("grpc.max_receive_message_length", PIECE + 1024),
    ("grpc.max_send_message_length", PIECE + 1024),
    ("grpc.keepalive_time_ms", SECONDS),
    ("grpc.keepalive_timeout_ms", SECONDS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
"""Either side notices within twenty seconds that the other has gone without a word."""


def frames(message: bytes | bytearray) -> Iterator[bytes]:
    """The pieces of a message; the first byte of each says whether more follow."""
    view = memoryview(message)
    for start in range(0, max(len(view), 1), PIECE):
        last = start + PIECE >= len(view)
        yield b"".join(((LAST if last else MORE), view[start : start + PIECE]))


class TooLong(Exception):
    """A message is longer than it may be; it has been left out, and the next one can follow."""


class Assembler:
    """Puts pieces together again, and never holds more than `limit` bytes of what is not finished."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, frame: bytes) -> bytes | None:
        """The message, if this is its last piece."""
        self._size += max(len(frame) - 1, 0)
        if self._size <= self._limit:
            self._parts.append(frame[1:])
        else:
            self._parts.clear()
        if frame[:1] != LAST:
            return None
        size, parts = self._size, self._parts
        self._size, self._parts = 0, []
        if size > self._limit:
            raise TooLong(f"sent {size:,} bytes at once, and {self._limit:,} are the most")
        return parts[0] if len(parts) == 1 else b"".join(parts)
