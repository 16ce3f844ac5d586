"""What others see of a client: the models that went into its visits and came out, kept while a run goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedrelay.errors import BadInput
from fedrelay.system.devices import CPU, placed
from fedrelay.types import Algorithm, Baton, Result, Tree, Vector, Visit
from fedrelay.visits.around import Around

WATCHED = "watched"
"""In the memory of a client that is watched: its visits of the last round in which it had some."""


@dataclass(frozen=True)
class Seen:
    """One visit, as those around it see it: the model that went in, and the one that came out."""

    client: int
    round: int
    hop: int
    received: Vector
    sent: Vector


@dataclass(frozen=True)
class Watched(Around):
    """Work at clients of which some are watched. Nobody trains or sends otherwise than without it, to the bit."""

    clients: frozenset[int]

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        return self.left(baton, visit, self.work(baton, unwatched(visit)))

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> list[Result]:
        after = self.work.together(batons, [unwatched(visit) for visit in visits])
        return [self.left(*each) for each in zip(batons, visits, after, strict=True)]

    def left(self, baton: Baton, visit: Visit, result: Result) -> Result:
        """The result, with what was to be seen of the visit in the client's memory."""
        if visit.client.id not in self.clients:
            return result
        after, memory, report = result
        earlier: tuple[Tree, ...] = visit.memory.get(WATCHED, ())
        now = {"round": visit.round, "hop": visit.hop, "received": baton.params, "sent": after.params}
        kept = (*(one for one in earlier if one["round"] == visit.round), now)
        return after, {**memory, WATCHED: kept}, report


def unwatched(visit: Visit) -> Visit:
    """The visit as the client finds it when nobody watches."""
    if WATCHED not in visit.memory:
        return visit
    return replace(visit, memory={key: value for key, value in visit.memory.items() if key != WATCHED})


def watching(algorithm: Algorithm, clients: Sequence[int], *, who: str) -> Algorithm:
    """The same method, with these clients watched; `who` wants to, in words."""
    if algorithm.pooled:
        raise BadInput(f"{who} of clients, and the centralised reference has none: take another method")
    return replace(algorithm, update=Watched(algorithm.update, frozenset(clients)))


def seen_in(memories: Mapping[int, Tree], clients: Sequence[int], round: int) -> list[Seen]:
    """The visits of this round to these clients, in main memory, where they are looked at."""
    return [
        Seen(client, **placed(one, CPU))
        for client in clients
        for one in memories.get(client, {}).get(WATCHED, ())
        if one["round"] == round
    ]
