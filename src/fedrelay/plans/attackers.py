"""Who attacks: drawn from the seed, by labels of its own, so that nothing else is drawn otherwise."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedrelay.errors import BadInput, within
from fedrelay.types import Chain, Hop

Groups = Sequence[Sequence[int]]


class Attackers(ABC):
    """Who attacks. A frozen dataclass: either clients that do so in the whole run, or whoever stands somewhere."""

    colluding: ClassVar[bool] = False
    """Whether they draw the same numbers."""

    def check(self, clients: int, /) -> None:
        """Refuse what cannot be among so many clients."""

    def drawn(self, groups: Groups, rng: np.random.Generator, /) -> tuple[int, ...]:
        """The clients that attack in the whole run; none where it depends on the chains of a round."""
        return ()

    def hops(self, chains: Sequence[Chain], drawn: Sequence[int], rng: np.random.Generator, /) -> list[tuple[int, ...]]:
        """Of every chain of a round, the places of the attackers."""
        evil = set(drawn)
        return [tuple(hop for hop, client in enumerate(chain.clients) if client in evil) for chain in chains]


@dataclass(frozen=True)
class InGroups(Attackers):
    """A share of the groups is malicious, and in these a share of the clients attacks (FedSeq journal 2024, L_S and L).
    Where clients are alone, the product of both is the share of all clients. At least one in a malicious group.

    Args:
        groups: the share of groups (L_S), rounded down.
        clients: the share of the clients in each of them (L), rounded down.
    """

    groups: float = 0.1
    clients: float = 0.1

    def __post_init__(self) -> None:
        within("groups", self.groups, above=0, most=1)
        within("clients", self.clients, above=0, most=1)

    def drawn(self, groups: Groups, rng: np.random.Generator, /) -> tuple[int, ...]:
        if all(len(group) == 1 for group in groups):
            return some_of(groups, self.groups * self.clients, "groups times clients", rng)
        count = whole(self.groups, len(groups), "groups", "malicious group")
        chosen = [sorted(groups[place]) for place in rng.choice(len(groups), count, replace=False)]
        found = [rng.choice(group, max(floor(self.clients, len(group)), 1), replace=False) for group in chosen]
        return tuple(sorted(int(client) for some in found for client in some))


@dataclass(frozen=True)
class Spread(Attackers):
    """A share of all clients, drawn at random: in a chain of n there is one with the probability 1 - (1 - share)^n.

    Args:
        share: of all clients, rounded down.
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        within("share", self.share, above=0, most=1)

    def check(self, clients: int, /) -> None:
        whole(self.share, clients, "share", "attacker")

    def drawn(self, groups: Groups, rng: np.random.Generator, /) -> tuple[int, ...]:
        return some_of(groups, self.share, "share", rng)


@dataclass(frozen=True)
class Few(Attackers):
    """So many of all clients, drawn at random.

    Args:
        count: how many.
    """

    count: int = 1

    def __post_init__(self) -> None:
        within("count", self.count, least=1)

    def check(self, clients: int, /) -> None:
        within(f"count, of {clients} clients,", self.count, most=clients)

    def drawn(self, groups: Groups, rng: np.random.Generator, /) -> tuple[int, ...]:
        everybody = sorted(client for group in groups for client in group)
        self.check(len(everybody))
        return tuple(sorted(rng.choice(everybody, self.count, replace=False).tolist()))


@dataclass(frozen=True)
class Named(Attackers):
    """These clients.

    Args:
        clients: their numbers, from 0.
    """

    clients: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.clients:
            raise BadInput("clients names nobody: expected numbers of clients, such as [0, 3]")
        if len(set(self.clients)) < len(self.clients):
            raise BadInput(f"clients names somebody twice: expected different numbers, not {list(self.clients)}")

    def check(self, clients: int, /) -> None:
        strange = next((client for client in self.clients if not 0 <= client < clients), None)
        if strange is not None:
            raise BadInput(f"there is no client {strange} to attack: there are clients 0 to {clients - 1}")

    def drawn(self, groups: Groups, rng: np.random.Generator, /) -> tuple[int, ...]:
        self.check(sum(map(len, groups)))
        return tuple(sorted(self.clients))


@dataclass(frozen=True)
class Position(Attackers):
    """Whoever stands at this place of a chain, in every round anew.

    Args:
        position: 0 is the first client of a chain, -1 the last, -2 the one before it. Shorter chains have no attacker.
        chains: in so many chains of a round, drawn at random; in all, unless it is said.
    """

    position: int = -1
    chains: int | None = None

    def __post_init__(self) -> None:
        if self.chains is not None:
            within("chains", self.chains, least=1)

    def hops(self, chains: Sequence[Chain], drawn: Sequence[int], rng: np.random.Generator, /) -> list[tuple[int, ...]]:
        places = {chain: place(self.position, len(one.clients)) for chain, one in enumerate(chains)}
        found: dict[int, tuple[int, ...]] = {chain: (hop,) for chain, hop in places.items() if hop is not None}
        return in_some(found, len(chains), self.chains, rng)


@dataclass(frozen=True)
class Neighbours(Attackers):
    """So many clients that follow one another in a chain, in every round anew. They collude: all draw the same numbers,
    so that noise adds up and random pairs of classes are the same.

    Args:
        count: how many.
        position: where the last of them stands, as `position` has it; anywhere, unless it is said.
        chains: in so many chains of a round, drawn at random; in all, unless it is said.
    """

    count: int = 2
    position: int | None = None
    chains: int | None = None
    colluding: ClassVar[bool] = True

    def __post_init__(self) -> None:
        within("count", self.count, least=2)
        if self.chains is not None:
            within("chains", self.chains, least=1)

    def hops(self, chains: Sequence[Chain], drawn: Sequence[int], rng: np.random.Generator, /) -> list[tuple[int, ...]]:
        found = {}
        for number, chain in enumerate(chains):
            length = len(chain.clients)
            last = int(rng.integers(0, length)) if self.position is None else place(self.position, length)
            if last is not None and length >= self.count:
                last = max(last, self.count - 1)
                found[number] = tuple(range(last - self.count + 1, last + 1))
        return in_some(found, len(chains), self.chains, rng)


ATTACKERS: dict[str, type[Attackers]] = {
    "groups": InGroups,
    "share": Spread,
    "count": Few,
    "clients": Named,
    "position": Position,
    "neighbours": Neighbours,
}
"""What `who = {name = …}` of an attack chooses from."""


def place(position: int, length: int) -> int | None:
    """The hop at this position, counted from the end if it is negative; None if the chain is too short."""
    hop = position + length if position < 0 else position
    return hop if 0 <= hop < length else None


def in_some(
    found: dict[int, tuple[int, ...]], chains: int, count: int | None, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """The places in all chains that have some, or in `count` of them."""
    able = sorted(found)
    if count is not None and count < len(able):
        able = rng.choice(able, count, replace=False).tolist()
    return [found[number] if number in able else () for number in range(chains)]


def hit(chains: Sequence[Chain], places: Sequence[tuple[int, ...]]) -> dict[Hop, int]:
    """The attackers of a round, each with the number of its chain."""
    return {
        (chain.clients[hop], hop): number
        for number, (chain, hops) in enumerate(zip(chains, places, strict=True))
        for hop in hops
    }


def some_of(groups: Groups, share: float, key: str, rng: np.random.Generator) -> tuple[int, ...]:
    """A share of all clients."""
    everybody = sorted(client for group in groups for client in group)
    count = whole(share, len(everybody), key, "attacker")
    return tuple(sorted(rng.choice(everybody, count, replace=False).tolist()))


def floor(share: float, count: int) -> int:
    """The share rounded down, unless rounding of the product itself has made it less."""
    return int(share * count + 1e-9)


def whole(share: float, count: int, key: str, what: str) -> int:
    """How many that is; a share that rounds to none is refused, with what would be one."""
    found = floor(share, count)
    if not found:
        enough = math.ceil(1e4 / count) / 1e4
        raise BadInput(
            f"{key} = {share:g} of {count} is {share * count:.3g}, which makes no {what}: {enough:g} makes one"
        )
    return found
