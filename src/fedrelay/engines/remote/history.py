"""What visits to clients elsewhere have taken: for the line of a round, and for whoever watches."""

from __future__ import annotations

import time
from collections import Counter, deque
from statistics import median
from typing import Any

from fedrelay.engines.remote.messages import Hop

RECENT = 50
"""Of every client, the visits whose seconds are remembered."""
DIGITS = 6
"""Of seconds in a line: microseconds."""


class History:
    """Hops since the last line, and of every client how often it was visited, how long that took, and when it was last
    heard of."""

    def __init__(self) -> None:
        self.visits: Counter[int] = Counter()
        self.seen: dict[int, float] = {}
        self._seconds: dict[int, deque[float]] = {}
        self._hops: list[Hop] = []
        self._lost: Counter[int] = Counter()

    def note(self, hop: Hop) -> None:
        self._hops.append(hop)
        self.visits[hop.client] += 1
        self._seconds.setdefault(hop.client, deque(maxlen=RECENT)).append(hop.seconds)

    def note_lost(self, client: int, sent: int) -> None:
        """So many bytes were sent for nothing."""
        self._lost[client] += sent

    def hear(self, client: int) -> None:
        """It has said something, or was heard to have gone."""
        self.seen[client] = time.monotonic()

    def usual(self, client: int) -> float | None:
        """The median of what its last visits took, from request to answer."""
        known = self._seconds.get(client)
        return median(known) if known else None

    def taken(self) -> dict[str, Any]:
        """All since the last time, as the line of a round has it; nothing if nothing was sent."""
        hops, lost = self._hops, self._lost
        self._hops, self._lost = [], Counter()
        clients = sorted({hop.client for hop in hops} | set(lost))
        if not clients:
            return {}
        each = [of_client(client, [hop for hop in hops if hop.client == client], lost[client]) for client in clients]
        totals = {way: sum(one[way] for one in each) for way in ("sent", "received")}
        return {**totals, "clients": each, "hops": [times_of(hop) for hop in hops]}


def of_client(client: int, hops: list[Hop], lost: int) -> dict[str, int]:
    """Bytes to and from a client, those among them that nothing came of, and its visits."""
    sent = lost + sum(hop.sent for hop in hops)
    return {"client": client, "visits": len(hops), "sent": sent, "received": sum(hop.received for hop in hops)}


def times_of(hop: Hop) -> dict[str, Any]:
    """Where the seconds of a hop went: until its client could be asked, at work, and all else, which is the way."""
    where = {"chain": hop.chain, "hop": hop.hop, "client": hop.client, "work": hop.work}
    parts = {"waiting": hop.waiting, "transfer": max(hop.seconds - hop.working, 0.0), "training": hop.working}
    return where | {name: round(value, DIGITS) for name, value in parts.items()}
