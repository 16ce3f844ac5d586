"""A wire whose clients are in this process: every message is bytes on its way there and back, as on any other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from fedrelay import Federation, Task
from fedrelay.engines.remote import Answered, Came, Event, Remote, Wire
from fedrelay.engines.remote.messages import Request
from fedrelay.engines.remote.trees import decode
from fedrelay.engines.remote.visitor import MemoryFolder, Visitor
from fedrelay.remote.works import works_of
from fedrelay.types import Algorithm


class InProcess(Wire):
    """Answers come in the order in which clients were asked, the last one first if `backwards`."""

    def __init__(self, visitors: Sequence[Visitor], *, backwards: bool = False) -> None:
        self.visitors, self.backwards = visitors, backwards
        self.asked: deque[tuple[int, bytes]] = deque()
        self.events: list[Event] = [Came(number) for number in range(len(visitors))]
        self.sent = 0

    def send(self, client: int, message: bytes | bytearray, /) -> None:
        self.asked.append((client, bytes(message)))
        self.sent += len(message)

    def wait(self, seconds: float, /) -> Sequence[Event]:
        if self.events or not self.asked:
            events, self.events = self.events, []
            return events
        client, message = self.asked.pop() if self.backwards else self.asked.popleft()
        return [Answered(client, self.visitors[client].answer(Request.of(decode(message))).encoded())]


def remote(
    algorithm: Algorithm, federation: Federation, task: Task, folder: Path, *, backwards: bool = False
) -> Remote:
    """An engine whose clients have nothing in common with the server but bytes."""
    visitors = []
    for number in range(len(federation)):
        home = folder / f"client-{number}"
        home.mkdir(parents=True)
        visitors.append(Visitor(federation.client(number), task, 1, works_of(algorithm), MemoryFolder(home)))
    wire = InProcess(visitors, backwards=backwards)
    return Remote(wire, task, 1, sizes=federation.sizes, works=works_of(algorithm), names=federation.names)
