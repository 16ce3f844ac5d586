"""How messages reach clients that are elsewhere: who has come, send to one, what came back, who was lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Came:
    """A client is there (again): its process is new, or it is still at work for this ticket, or has the answer.
    `size` is the number of its examples, where only it knows; 0: as the server knows."""

    client: int
    working: str = ""
    size: int = 0


@dataclass(frozen=True)
class Gone:
    """A client is not there any more, and why."""

    client: int
    reason: str


@dataclass(frozen=True)
class Answered:
    """A message of a client."""

    client: int
    message: bytes | bytearray


@dataclass(frozen=True)
class Broken:
    """A message of a client could not be taken, and why: whatever it was the answer to has failed."""

    client: int
    reason: str


Event: TypeAlias = Came | Gone | Answered | Broken


class Wire(ABC):
    """Carries messages to clients and back. Clients have the numbers 0, 1, 2, …, whenever they come; a client is there
    from `Came` to `Gone`.

    What is sent to a client that is lost meanwhile is lost: whoever sends hears of it by `Gone`, or never.
    """

    @abstractmethod
    def send(self, client: int, message: bytes | bytearray, /) -> None:
        """Send to one client; returns at once."""

    @abstractmethod
    def wait(self, seconds: float, /) -> Sequence[Event]:
        """What has happened since the last time, in order; if nothing has, what happens within so many seconds."""

    @property
    def remembers(self) -> bool:
        """Whether what a client was sent is still in its process at the next message, as long as it is there."""
        return True

    def close(self) -> None:
        """Tell all clients that there is nothing more to do, and let them go."""
