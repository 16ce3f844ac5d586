"""One round under way: which chain is at which client, and what is done when one does not answer.

Chains go on independently of one another: as soon as a client answers, the next one of its chain is asked.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fedrelay.engines.guard import bounded, spoiled
from fedrelay.engines.relay import Context, Runner
from fedrelay.engines.remote.forms import check_told
from fedrelay.engines.remote.messages import SAME, Done, Failed, Held, Hop, Request, answer_of, baton_of
from fedrelay.engines.remote.trees import Malformed
from fedrelay.engines.remote.wire import Answered, Broken, Came, Event, Gone
from fedrelay.types import Baton, Chain, Drop, Outcome, Place, Report, Result, Tree

if TYPE_CHECKING:
    from fedrelay.engines.remote.engine import Remote

LOG = logging.getLogger("fedrelay")

GLANCE = 1.0
"""Seconds after which deadlines are looked at, whatever happens."""
TRIES = 3
"""A client that is lost at a visit and comes back is asked again, so often at most."""
VERSION = "version"
"""All that the server keeps of a client's memory: by which name the client has it."""


@dataclass
class Pending:
    """A visit that a client is to make, has been asked to make, or was at when it was lost."""

    chain: int
    client: int
    hop: int
    ticket: str
    memory: Tree
    seconds: float
    """How long it may take, from each request on, whether its client is cut off meanwhile or not."""
    since: float
    """When it was asked, or lost."""
    begun: float
    """When its turn came."""
    due: float = math.inf
    """When it must be answered."""
    asked: bool = False
    tries: int = 0
    sent: int = 0
    """Bytes."""
    reason: str = "is not there"
    """Why it is not asked."""


class Relaying:
    """The chains of a round, from the first request to the last answer."""

    def __init__(self, engine: Remote, work: str, context: Context, chains: Sequence[Chain]) -> None:
        self._engine, self._work, self._context, self._chains = engine, work, context, chains
        self._runners = [Runner(chain) for chain in chains]
        self._places: list[Place | None] = [context.place(chain, engine.seed) for chain in chains]
        self._specimen = context.work.specimen(engine.task)
        self._hops = [0] * len(chains)
        self.pending: dict[int, Pending] = {}  # by client: nobody is in two chains
        self.away: dict[int, str] = {}
        """Clients that were lost because they were not there, and why."""
        self.busy: dict[int, str] = {}
        """Clients that are there and still at this visit, or an earlier one, though their time is over."""
        self.asked = False
        """Whether anybody was."""
        self._found: dict[int, Outcome] = {}
        self._following = 0

    @property
    def ended(self) -> bool:
        """Whether every chain has an outcome."""
        return self._following == len(self._chains)

    @property
    def in_vain(self) -> bool:
        """Whether every chain has lost all its clients."""
        return self.ended and not any(runner.trained for runner in self._runners)

    def begin(self, early: Sequence[Event] = ()) -> list[Outcome]:
        """Ask the first client of every chain: those outcomes that are there already, in order. What has happened
        `early` is of rounds before."""
        for event in early:
            self._take(event)
        for number, runner in enumerate(self._runners):
            self._hops[number] = runner.resume(self._places[number], self._engine.memory)
            self._next(number)
        return list(self._ready())

    def go_on(self) -> list[Outcome]:
        """Wait for something to happen, and do what follows from it: the outcomes that are next in order."""
        for event in self._engine.heard(self._engine.wire.wait(self._rest())):
            self._take(event)
        self._give_up(time.monotonic())
        return list(self._ready())

    def _ready(self) -> Iterator[Outcome]:
        while self._following in self._found:
            yield self._found.pop(self._following)
            self._following += 1

    # --- asking

    def _next(self, number: int) -> None:
        """Ask the next client of a chain; those that cannot be reached are lost at once."""
        chain, runner, place = self._chains[number], self._runners[number], self._places[number]
        while self._hops[number] < len(chain.clients):
            hop = self._hops[number]
            client = chain.clients[hop]
            if place is not None:
                place.tell("hop", hop + 1, len(chain.clients))
            lost = self._unreachable(client)
            if lost is None:
                seconds = self._engine.deadlines.of(client, self._work)
                memory, ticket, now = self._engine.memory.get(client), self._engine.ticket(), time.monotonic()
                self.pending[client] = Pending(number, client, hop, ticket, memory, seconds, now, now)
                self._ask(self.pending[client])
                return
            self._engine.totals.lost += 1
            (self.busy if client in self._engine.late else self.away)[client] = lost
            runner.take(Drop(client, hop, lost), self._engine.memory, client=client, before={})
            self._hops[number] += 1
        self._found[number] = runner.outcome()

    def _unreachable(self, client: int) -> str | None:
        """Why there is no use in asking a client; None if there is."""
        engine = self._engine
        if client in engine.late:
            return "is still at a visit that it has not answered in time"
        if client in engine.there:
            return None
        gone = engine.absent.get(client)
        return None if gone is not None and time.monotonic() < gone + engine.patience.grace else "is not there"

    def _ask(self, pending: Pending) -> None:
        """Send a request, if the client is there; else it is sent when the client comes back."""
        engine = self._engine
        pending.since = time.monotonic()
        if pending.client not in engine.there:
            pending.asked, pending.since = False, engine.absent.get(pending.client, pending.since)
            return
        message = self._request(pending).encoded()
        self.asked = pending.asked = True
        pending.tries, pending.sent = pending.tries + 1, len(message)
        pending.due = pending.since + pending.seconds
        engine.wire.send(pending.client, message)

    def _request(self, pending: Pending) -> Request:
        engine, context, baton = self._engine, self._context, self._runners[pending.chain].baton
        held = engine.held.setdefault(pending.client, Held()) if engine.wire.remembers else Held()
        params = baton.params if context.work.reads_model else None
        request = Request(
            ticket=pending.ticket,
            work=self._work,
            round=context.round,
            hop=pending.hop,
            weight=baton.weight,
            params=SAME if params is not None and params is held.params else params,
            shared=SAME if held.shared is context.shared else context.shared,
            memory=pending.memory.get(VERSION),
            becomes=f"{pending.ticket}-{context.round}-{pending.hop}",
            keep=self._versions(pending),
        )
        held.params, held.shared = params if params is not None else held.params, context.shared
        return request

    def _versions(self, pending: Pending) -> tuple[str, ...]:
        """The memories of a client that may still be asked for: those of now, and of the last checkpoint."""
        engine = self._engine
        kept = engine.memory.all().get(pending.client, {})
        trees = (pending.memory, kept, engine.saved_memories.get(pending.client, {}))
        return tuple(dict.fromkeys(tree[VERSION] for tree in trees if VERSION in tree))

    # --- what comes back

    def _take(self, event: Event) -> None:
        if isinstance(event, Answered):
            self._answered(event)
            return
        pending = self.pending.get(event.client)
        if isinstance(event, Broken):
            self._engine.late.pop(event.client, None)  # it has answered, if badly
            if pending is not None:
                self._end(pending, event.reason)
        elif isinstance(event, Gone):
            if pending is not None:
                pending.asked, pending.since, pending.reason = False, time.monotonic(), event.reason
        elif isinstance(event, Came):
            if pending is not None and event.working == pending.ticket:
                pending.asked, pending.since = True, time.monotonic()
                if pending.since > pending.due:  # whoever is cut off again and again has no more time than others
                    self._too_late(pending)
            elif pending is not None and pending.tries < TRIES:
                self._ask(pending)
            elif pending is not None:
                self._end(pending, f"was lost {TRIES} times at this visit")

    def _answered(self, event: Answered) -> None:
        """Go on with what a client says; one that nobody waits for any more is not listened to."""
        engine, pending = self._engine, self.pending.get(event.client)
        try:
            answer = answer_of(event.message)
        except Malformed as error:
            engine.late.pop(event.client, None)
            if pending is not None:
                self._end(pending, f"sent an answer that cannot be read: {error}")
            return
        if engine.late.get(event.client) == answer.ticket:
            del engine.late[event.client]
        if pending is None or answer.ticket != pending.ticket:
            LOG.info("an answer of %s came too late and is ignored", engine.called(event.client))
            engine.held.pop(event.client, None)  # it has a model now that nobody has taken
            return
        if isinstance(answer, Failed):
            self._end(pending, answer.reason, forgotten=answer.forgotten)
        else:
            self._done(pending, answer, len(event.message))

    def _done(self, pending: Pending, answer: Done, received: int) -> None:
        engine, baton, client = self._engine, self._runners[pending.chain].baton, pending.client
        seconds = time.monotonic() - pending.since
        try:
            after = self._baton(baton, answer)
        except Malformed as error:
            self._end(pending, str(error))
            return
        if after.params is not baton.params:
            engine.held.setdefault(client, Held()).params = after.params
        engine.deadlines.note(client, self._work, seconds)
        where = (self._context.round, pending.chain, pending.hop, client, self._work)
        waiting = pending.since - pending.begun
        engine.note(Hop(*where, seconds, float(answer.seconds), pending.sent, received, waiting))
        memory = (
            {VERSION: f"{pending.ticket}-{self._context.round}-{pending.hop}"} if answer.changed else pending.memory
        )
        report = Report(client, answer.examples, answer.metrics, answer.uplink)
        # What the client holds is what it sent; others get it no farther from what it got than allowed.
        trainable = engine.task.layout.trainable
        self._advance(pending, bounded(self._context.work, baton, (after, memory, report), trainable))

    def _baton(self, received: Baton, answer: Done) -> Baton:
        """The baton that a client sends on, if it may be used."""
        context, layout = self._context, self._engine.task.layout
        if isinstance(answer.params, str):
            params = received.params
        else:
            params = baton_of(answer.params, 0.0).params
            if len(params) != len(received.params):
                raise Malformed(f"sent a model of {len(params)} numbers, and it should have {len(received.params)}")
            if reason := spoiled(context.work, received.params, params, layout.trainable):
                raise Malformed(reason)
        check_told(answer.uplink, self._specimen)
        return baton_of(params, answer.weight)

    def _give_up(self, now: float) -> None:
        """Whoever has had its time is lost."""
        patience = self._engine.patience
        for pending in list(self.pending.values()):
            if not pending.asked and now >= pending.since + patience.grace:
                self._end(pending, pending.reason, away=True)
            elif pending.asked and now > pending.due:
                self._too_late(pending)

    def _too_late(self, pending: Pending) -> None:
        """A client has had its time; until it has answered it is not asked again."""
        self._engine.late[pending.client] = pending.ticket
        self._engine.deadlines.note(pending.client, self._work, pending.seconds)
        self.busy[pending.client] = f"has not answered within {pending.seconds:.3g} seconds"
        self._end(pending, self.busy[pending.client])

    def _rest(self) -> float:
        """Seconds until the next deadline."""
        now, grace = time.monotonic(), self._engine.patience.grace
        ends = [one.due if one.asked else one.since + grace for one in self.pending.values()]
        return min([GLANCE, *(max(end - now, 0.0) + 0.001 for end in ends)])

    def _end(self, pending: Pending, reason: str, *, forgotten: bool = False, away: bool = False) -> None:
        """A client is lost from its chain; `away`: because it is not there."""
        if away:
            self.away[pending.client] = reason
        self._engine.totals.lost += 1
        self._engine.history.note_lost(pending.client, pending.sent)
        self._engine.held.pop(pending.client, None)  # it may have a model that nobody has taken
        if forgotten:  # it begins with nothing the next time
            self._engine.memory.stage(pending.client, {})
        self._advance(pending, Drop(pending.client, pending.hop, reason))

    def _advance(self, pending: Pending, result: Result | Drop) -> None:
        """Go on with a chain after a visit, whatever came of it."""
        memory, number = self._engine.memory, pending.chain
        runner, place = self._runners[number], self._places[number]
        del self.pending[pending.client]
        runner.take(result, memory, client=pending.client, before=pending.memory)
        self._hops[number] += 1
        if place is not None and runner.trained:
            place.keep("hops", partial(runner.saved, self._hops[number], memory))
        self._next(number)
