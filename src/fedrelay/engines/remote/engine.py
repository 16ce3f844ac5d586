"""The remote engine: clients keep their data and their memories; only batons and what they tell travel."""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrelay.data.federation import Sent
from fedrelay.engines.memory import Memory
from fedrelay.engines.relay import Context, operator_threads
from fedrelay.engines.remote.history import History
from fedrelay.engines.remote.messages import Held, Hop, Totals
from fedrelay.engines.remote.relaying import Pending, Relaying
from fedrelay.engines.remote.wire import Came, Event, Gone, Wire
from fedrelay.errors import BadInput, say_once, within
from fedrelay.system import files
from fedrelay.tasks import Task
from fedrelay.types import Chain, Engine, Outcome, Tree, Underway, Work

LOG = logging.getLogger("fedrelay")

GLANCE = 1.0
"""Seconds between two looks at who is there."""
SAYING = 10.0
"""Seconds between two lines that say how far the run is."""


@dataclass(frozen=True)
class Patience:
    """How long clients are waited for, in seconds.

    Args:
        deadline: the longest that a visit may take, and what the first one is given.
        factor: later ones are given so many times what the client has last needed,
        least: but never less than this.
        grace: a client that is lost may come back within this, and goes on.
        beginning: the run begins (or goes on) when at least this share of all clients is there,
        share: and every later round when at least this share of those who have joined so far is.
    """

    deadline: float = 3600.0
    factor: float = 5.0
    least: float = 30.0
    grace: float = 10.0
    beginning: float = 1.0
    share: float = 0.5

    def __post_init__(self) -> None:
        within("deadline", self.deadline, above=0)
        within("factor", self.factor, least=1)
        within("least", self.least, above=0)
        within("grace", self.grace, least=0)
        within("beginning", self.beginning, least=0, most=1)
        within("share", self.share, least=0, most=1)


class Deadlines:
    """How long a client may take, by what it has needed for the same work before."""

    RECENT = 5

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._needed: dict[tuple[int, str], deque[float]] = {}

    def note(self, client: int, work: str, seconds: float) -> None:
        """It has taken so long; or has not been done in so long, and is given more the next time."""
        self._needed.setdefault((client, work), deque(maxlen=self.RECENT)).append(seconds)

    def of(self, client: int, work: str) -> float:
        """Seconds for the next visit."""
        known, patience = self._needed.get((client, work)), self._patience
        if not known:
            return patience.deadline
        return min(patience.deadline, max(patience.least, patience.factor * max(known)))


class Remote(Engine):
    """Relays batons between clients that are elsewhere, over a wire.

    The server knows of a client's memory only by which name the client keeps it; so it can be committed, gone back to
    and noted in a checkpoint like any other, and never leaves the client.
    """

    def __init__(
        self,
        wire: Wire,
        task: Task,
        seed: int = 0,
        *,
        sizes: Sequence[int],
        works: Mapping[str, Work],
        names: Sequence[str] = (),
        prepared: Sent | None = None,
        patience: Patience = Patience(),
    ) -> None:
        self.wire, self.task, self.seed, self.sizes = wire, task, seed, tuple(sizes)
        self.prepared, self.patience = prepared, patience
        self.memory, self.deadlines = Memory(), Deadlines(patience)
        self.life = secrets.token_hex(4)
        """Names of tickets and memories begin with it: another process of the same run never gives one of them out."""
        self.saved_memories: Mapping[int, Tree] = {}
        self.there = set[int]()
        self.members = set[int]()
        """Clients that have been there, now or before."""
        self.absent: dict[int, float] = {}
        """Since when clients are lost that were there."""
        self.late: dict[int, str] = {}
        """Clients that have not answered in time and may still be at work, with the ticket."""
        self.held: dict[int, Held] = {}
        """What need not be sent to a client again."""
        self.pending: Mapping[int, Pending] = {}
        """The visits that are under way, by client."""
        self.hops: list[Hop] = []
        """Those of this round that are done."""
        self.chains: Sequence[tuple[int, ...]] = ()
        """The clients of every chain that is under way, or was last."""
        self.totals, self.history = Totals(), History()
        self.log: Path | None = None
        """Where the hops of every round are added, one a line."""
        self._works, self._names = works, tuple(names)
        self._underway: Underway | None = None
        self._early: list[Event] = []
        """What has happened between two rounds."""
        self._asked = 0
        self._said = -math.inf

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        self.memory.discard()
        self.hops.clear()
        self._gather()
        early, self._early = self._early, []
        relaying = Relaying(self, self.name_of(work), Context(work, shared, round, self._underway), chains)
        self.pending, self.chains = relaying.pending, [chain.clients for chain in chains]
        with operator_threads(1):
            ready = relaying.begin(early)
        while True:
            yield from ready
            if relaying.ended:
                return
            with operator_threads(1):
                ready = relaying.go_on()

    def note(self, hop: Hop) -> None:
        """A visit is done."""
        self.hops.append(hop)
        self.totals.add(hop)
        self.history.note(hop)

    def measured(self) -> Tree:
        return self.history.taken()

    def joined(self) -> Sequence[int]:
        self._gather()
        return [size if client in self.members else 0 for client, size in enumerate(self.sizes)]

    def name_of(self, work: Work) -> str:
        """By which name clients know this work."""
        name = next((name for name, known in self._works.items() if known is work or known == work), None)
        if name is None:
            raise BadInput(
                f"{type(work).__name__} is no work that clients elsewhere know by a name: it must be a part of the "
                "method, as its configuration says it"
            )
        return name

    def ticket(self) -> str:
        """A new one."""
        self._asked += 1
        return f"{self.life}-{self._asked}"

    def heard(self, events: Sequence[Event]) -> Sequence[Event]:
        """Note who is there, and since when others are not; a new connection knows nothing of what was sent before."""
        for event in events:
            self.history.hear(event.client)
            if isinstance(event, Came | Gone):
                self.held.pop(event.client, None)
                self.late.pop(event.client, None)
            if isinstance(event, Came):
                self.there.add(event.client)
                self.members.add(event.client)
                if event.size:
                    self.sizes = (*self.sizes[: event.client], event.size, *self.sizes[event.client + 1 :])
                LOG.info("%s is there", self.called(event.client))
            elif isinstance(event, Gone):
                self.there.discard(event.client)
                self.absent[event.client] = time.monotonic()
                LOG.warning("%s is lost: %s", self.called(event.client), event.reason)
        return events

    def _gather(self) -> None:
        """Wait until enough clients are there, and say whom we wait for."""
        told = -1
        self._early += self.heard(self.wire.wait(0.0))
        while (found := len(self.there)) < (least := self._least()):
            if found != told:
                missing = [self.called(client) for client in range(len(self.sizes)) if client not in self.there]
                LOG.warning(
                    "round %d waits: %d of %d clients are there, at least %d are needed (missing: %s)",
                    *(self.memory.round + 1, found, len(self.sizes), least, ", ".join(missing[:10])),
                )
                told = found
            self._early += self.heard(self.wire.wait(GLANCE))

    def _least(self) -> int:
        """How many clients a round needs."""
        share, clients = self.patience.beginning, len(self.sizes)
        if self._asked:
            share, clients = self.patience.share, len(self.members)
        return max(math.ceil(share * clients), 1)

    def called(self, client: int) -> str:
        """The name of a client."""
        return self._names[client] if self._names else f"client {client}"

    def keep_in(self, underway: Underway, /) -> None:
        self._underway = underway

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def commit(self, round: int, /) -> None:
        self.memory.commit(round)
        if time.monotonic() >= self._said + SAYING:
            self._said = time.monotonic()
            figures = (round, self.totals.count, self.totals.lost, len(self.there))
            LOG.info("round %d is done: %d visits so far, %d lost; %d clients are there", *figures)
        if self.log is not None:
            lines = [json.dumps({**vars(hop), "name": self.called(hop.client)}) + "\n" for hop in self.hops]
            try:
                if not self.log.exists():
                    files.write(self.log, b"", mode=files.PRIVATE)
                files.append(self.log, "".join(lines).encode(), sync=False)
            except OSError as error:  # a log is not worth a run
                say_once(f"what hops take cannot be noted in {self.log} ({error.strerror or error})")

    def back_to(self, round: int, /) -> None:
        self.memory.back_to(round)

    def memories(self) -> tuple[int, Mapping[int, Tree]]:
        """By which names clients keep what they keep; the memories themselves are theirs."""
        return self.memory.round, self.memory.all()

    def remember(self, round: int, memories: Mapping[int, Tree], /) -> None:
        self.memory.restore(memories, round)
        self.saved_memories = dict(self.memory.all())

    def saved(self, round: int, /) -> None:
        self.saved_memories = dict(self.memory.all())

    def close(self) -> None:
        self.wire.close()
