"""The remote engine: clients keep their data and their memories; only batons and what they tell travel."""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrelay.data.federation import Sent
from fedrelay.engines.memory import Memory
from fedrelay.engines.relay import Context
from fedrelay.engines.remote.history import History
from fedrelay.engines.remote.messages import Held, Hop, Totals
from fedrelay.engines.remote.relaying import Pending, Relaying
from fedrelay.engines.remote.wire import Answered, Broken, Came, Event, Gone, Wire
from fedrelay.errors import BadInput, RunFailed, say_once, within
from fedrelay.system import files
from fedrelay.system.threads import operator_threads
from fedrelay.tasks import Task
from fedrelay.types import Chain, Engine, Outcome, Tree, Underway, Work

LOG = logging.getLogger("fedrelay")

GLANCE = 1.0
"""Seconds between two looks at who is there."""
SAYING = 10.0
"""Seconds between two lines that say how far the run is."""
ATTEMPTS = 4
"""At a round whose clients are all lost, and come back, and are lost again."""
MOST_IN_VAIN = 10
"""So many rounds in a row from which nothing comes, and the run stops."""
FIRST_IN_VAIN = 3
"""The same at the beginning of a run: where nothing has ever come back, something is wrong with all."""


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
        wait: a run that has begun waits so long for clients that are missing, and then stops, to be resumed.
    """

    deadline: float = 3600.0
    factor: float = 5.0
    least: float = 30.0
    grace: float = 10.0
    beginning: float = 1.0
    share: float = 0.5
    wait: float = 86400.0

    def __post_init__(self) -> None:
        within("deadline", self.deadline, above=0)
        within("factor", self.factor, least=1)
        within("least", self.least, above=0)
        within("grace", self.grace, least=0)
        within("beginning", self.beginning, least=0, most=1)
        within("share", self.share, least=0, most=1)
        within("wait", self.wait, above=0)


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
        self._passed_over = False
        """Whether the last round has asked nobody, because those it has drawn are all at an earlier visit, and others
        are not."""
        self._in_vain = self._last_in_vain = 0
        self._surveyed = set[str]()
        """What somebody has told in a survey: whoever joins later is not waited for by all others."""
        self._said = -math.inf

    def run(self, work: Work, chains: Sequence[Chain], shared: Tree, round: int, /) -> Iterator[Outcome]:
        self.memory.discard()
        self.hops.clear()
        self._gather()
        context = Context(work, shared, round, self._underway)
        self.chains = [chain.clients for chain in chains]
        name = self.name_of(work)
        newcomers = not round and (self.memory.round > 0 or name in self._surveyed)
        for attempt in range(ATTEMPTS):
            relaying = Relaying(self, name, context, chains)
            lost = yield from self._relayed(relaying)
            done = not relaying.in_vain or newcomers or attempt + 1 == ATTEMPTS
            if done or not self._one_is_back(relaying, round):
                break
        if not round and not relaying.in_vain:
            self._surveyed.add(name)
        self._passed_over = not relaying.asked and bool(self._free())
        yield from lost

    def _relayed(self, relaying: Relaying) -> Generator[Outcome, None, list[Outcome]]:
        """The outcomes of all chains, in order; those that are left when it ends are returned: all of them if all
        clients were lost, and it may be tried again."""
        early, self._early = self._early, []
        self.pending, lost = relaying.pending, list[Outcome]()
        with operator_threads(1):
            ready = relaying.begin(early)
        while True:
            for outcome in ready:
                lost.append(outcome)
                if any(one.reports for one in lost):
                    yield from lost
                    lost = []
            if relaying.ended:
                return lost
            with operator_threads(1):
                ready = relaying.go_on()

    def _free(self) -> set[int]:
        """Whoever can be asked."""
        return self.there - self.late.keys()

    def _one_is_back(self, relaying: Relaying, round: int) -> bool:
        """Wait until one can be asked of the clients that were not there, or are still at a visit: without any of them
        the round comes to nothing. If all are there nobody waits for long: not at all for who has just had its time,
        and for who is at an earlier visit as long as for a new one, or for `grace` if the next round may draw others.
        A survey is not followed by another, so it waits for these, too, until the stated share of them can be asked.
        """
        waited, survey = {**relaying.away, **relaying.busy}, not round
        if not waited or (relaying.asked and not relaying.away and not survey):
            return False
        least = max(math.ceil(self.patience.share * len(waited)), 1) if survey else 1
        why = "; ".join(f"{self.called(client)} {reason}" for client, reason in list(waited.items())[:10])
        if survey:
            LOG.warning(
                "the run waits before round 1: no client has described itself, until %d can be asked again (%s)",
                least,
                why,
            )
        else:
            LOG.warning(
                "round %d waits: all clients that it has drawn are lost, until one of them is back (%s)", round, why
            )
        began, seconds = time.monotonic(), self.patience.grace if self._free() else self.patience.deadline
        while len(self._free() & waited.keys()) < least:
            if relaying.away or survey:
                self._check_waited(began, round, f"all clients that it needs are lost ({why})")
            elif time.monotonic() >= began + seconds:
                return False
            events = self.heard(self.wire.wait(GLANCE))
            for event in events:
                if isinstance(event, Answered | Broken):  # nobody waits for it any more, but its client is free again
                    self.late.pop(event.client, None)
            self._early += events
        return True

    def _check_waited(self, began: float, round: int, why: str) -> None:
        """Stop a run that has waited for clients as long as it may; what is done of it is on the disk."""
        if time.monotonic() >= began + self.patience.wait:
            where = f"round {round}" if round else "before round 1"
            raise RunFailed(
                f"{where}: the run has waited for {self.patience.wait:g} seconds, and {why}: see to them, then "
                "--resume goes on from here (--wait says how long a run waits)"
            )

    def why_stop(self, round: int, /) -> str | None:
        if not self._passed_over:  # else the next one may draw those who can be asked
            self._in_vain = self._in_vain + 1 if self._last_in_vain == round - 1 else 1
        self._last_in_vain = round
        if self._in_vain >= (FIRST_IN_VAIN if self._in_vain == round else MOST_IN_VAIN):
            return f"{self._in_vain} rounds in a row came to nothing: see to these clients, then --resume goes on"
        LOG.warning("round %d came to nothing, and the run goes on with the model that it has", round)
        return None

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
        """Wait until enough clients are there, and say whom we wait for: without end for a run that has not begun."""
        told, began, round = -1, time.monotonic(), self.memory.round + 1
        self._early += self.heard(self.wire.wait(0.0))
        while (found := len(self.there)) < (least := self._least()):
            missing = [self.called(client) for client in range(len(self.sizes)) if client not in self.there]
            text = f"{found} of {len(self.sizes)} clients are there, at least {least} are needed "
            text += f"(missing: {', '.join(missing[:10])})"
            if found != told:
                LOG.warning("round %d waits: %s", round, text)
                told = found
            if self._asked or self.memory.round:
                self._check_waited(began, round, text)
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
        self._surveyed.clear()
        self.saved_memories = dict(self.memory.all())

    def saved(self, round: int, /) -> None:
        self.saved_memories = dict(self.memory.all())

    def close(self) -> None:
        self.wire.close()
