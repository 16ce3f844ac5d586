"""Urns of tickets: the distributions that clustered sampling draws from, in exact whole numbers.

With M examples in all and m draws, client i owns m · n_i tickets, and each of the m urns holds exactly M of them. One
ticket is drawn from every urn. Both conditions for an unbiased scheme (clustered sampling 2021, Eqs. 7 and 8) are then
equalities between whole numbers, which no rounding can break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from fedrelay.plans.sampling.sampler import Draw, checked

Whole = NDArray[np.int64]
Tickets = dict[int, int]
"""How many tickets of one urn are whose."""


@dataclass(frozen=True, eq=False)
class Urn:
    """Whose tickets are inside: those of `owners[j]` end before number `ends[j]`."""

    owners: Whole
    ends: Whole

    @classmethod
    def of(cls, tickets: Tickets) -> Urn:
        owners = np.fromiter(tickets, dtype=np.int64, count=len(tickets))
        return cls(owners, np.cumsum(np.fromiter(tickets.values(), dtype=np.int64, count=len(tickets))))

    @cached_property
    def tickets(self) -> Whole:
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True, eq=False)
class Urns:
    """The m distributions over n clients (or groups): urn k gives client i with chance r_{k,i} = tickets / `total`."""

    clients: int
    total: int
    urns: tuple[Urn, ...]

    def draw(self, rng: np.random.Generator) -> list[Draw]:
        """One ticket from every urn. Who is drawn several times is one draw of that many times 1 / m."""
        numbers = rng.integers(0, self.total, size=len(self.urns))
        drawn = Counter(
            int(urn.owners[np.searchsorted(urn.ends, number, side="right")])
            for urn, number in zip(self.urns, numbers, strict=True)
        )
        return [Draw(index, times / len(self.urns)) for index, times in drawn.items()]

    def fractions(self) -> tuple[tuple[Fraction, ...], ...]:
        """Every r_{k,i}, exactly."""
        rows = []
        for urn in self.urns:
            row = [Fraction(0)] * self.clients
            for owner, tickets in zip(urn.owners.tolist(), urn.tickets.tolist(), strict=True):
                row[owner] = Fraction(tickets, self.total)
            rows.append(tuple(row))
        return tuple(rows)

    def variances(self) -> tuple[Fraction, ...]:
        """The variance of every client's weight in the merge, exactly (Eq. 16; for equal urns it is Eq. 14)."""
        squares = [0] * self.clients
        sums = [0] * self.clients
        for urn in self.urns:
            for owner, tickets in zip(urn.owners.tolist(), urn.tickets.tolist(), strict=True):
                sums[owner] += tickets
                squares[owner] += tickets * tickets
        whole = (self.total * len(self.urns)) ** 2
        return tuple(Fraction(self.total * s - q, whole) for s, q in zip(sums, squares, strict=True))

    def chances(self) -> tuple[Fraction, ...]:
        """The probability of every client to be drawn at all, exactly (Eq. 22; for equal urns it is Eq. 20)."""
        missed = [1] * self.clients
        urns_of = [0] * self.clients
        for urn in self.urns:
            for owner, tickets in zip(urn.owners.tolist(), urn.tickets.tolist(), strict=True):
                missed[owner] *= self.total - tickets
                urns_of[owner] += 1
        return tuple(1 - Fraction(a, self.total**k) for a, k in zip(missed, urns_of, strict=True))

    @cached_property
    def variance(self) -> float:
        """The sum of all variances, in double precision."""
        return float(sum(np.sum(share * (1 - share)) for share in self._shares)) / len(self.urns) ** 2

    @cached_property
    def distinct(self) -> float:
        """How many different clients are expected in a draw: the sum of all chances, in double precision."""
        missed = np.ones(self.clients)
        for urn, share in zip(self.urns, self._shares, strict=True):
            missed[urn.owners] *= 1 - share
        return float(np.sum(1 - missed))

    @property
    def _shares(self) -> list[NDArray[np.float64]]:
        return [urn.tickets / self.total for urn in self.urns]


def multinomial(sizes: Sequence[int], count: int) -> Urns:
    """The same urn `count` times, everybody with the tickets of their size: MD sampling (Li et al. 2018)."""
    return _multinomial(checked(sizes, count), int(count))


@lru_cache(maxsize=8)
def _multinomial(sizes: tuple[int, ...], count: int) -> Urns:
    return Urns(len(sizes), sum(sizes), (Urn.of(dict(enumerate(sizes))),) * count)


def by_size(sizes: Sequence[int], count: int) -> Urns:
    """Fill one urn after another, large clients first (clustered sampling 2021, Alg. 1)."""
    return _by_size(checked(sizes, count), int(count))


@lru_cache(maxsize=8)
def _by_size(sizes: tuple[int, ...], count: int) -> Urns:
    own, rest, total = set_apart(sizes, count)
    order = sorted(range(len(sizes)), key=lambda client: -sizes[client])
    urns: list[Tickets] = [{} for _ in range(count - len(own))]
    pour(urns, [(client, rest[client]) for client in order], total)
    return Urns(len(sizes), total, tuple(Urn.of(tickets) for tickets in (*own, *urns)))


def by_clusters(tree: Whole, sizes: Sequence[int], count: int) -> Urns:
    """An urn for each of the heaviest clusters of a tree; the others fill what is left (Alg. 2, lines 3 to 20).

    `tree` has one row per merge, the two nodes that become one; nodes below n are clients, node n + j is row j.
    """
    sizes, count = checked(sizes, count), int(count)
    own, rest, total = set_apart(sizes, count)
    clusters = heaviest_first(cut(tree, rest, total), rest)
    urns: list[Tickets] = [{client: rest[client] for client in cluster} for cluster in clusters[: count - len(own)]]
    # Paper: line 6 leaves the order open; cluster after cluster keeps alike clients in one urn as far as there is room.
    pour(urns, [(client, rest[client]) for cluster in clusters[count - len(own) :] for client in cluster], total)
    return Urns(len(sizes), total, tuple(Urn.of(tickets) for tickets in (*own, *urns)))


def set_apart(sizes: Sequence[int], count: int) -> tuple[list[Tickets], list[int], int]:
    """Urns that belong to one client alone, ⌊m p_i⌋ of client i; the tickets left to each, fewer than an urn holds; and
    what an urn holds (proof of Theorem 3, and the end of Section 5)."""
    total = sum(sizes)
    own: list[Tickets] = []
    rest = []
    for client, size in enumerate(sizes):
        whole, left = divmod(count * size, total)
        own += [{client: total}] * whole
        rest.append(left)
    return own, rest, total


def pour(urns: Sequence[Tickets], tickets: Iterable[tuple[int, int]], total: int) -> None:
    """Put tickets into the first urn that has room, in this order; who does not fit goes on in the next."""
    place = 0
    room = total - sum(urns[0].values()) if urns else 0
    for client, left in tickets:
        while left:
            while not room:
                place += 1
                room = total - sum(urns[place].values())
            put = min(left, room)
            urns[place][client] = put
            left -= put
            room -= put


def cut(tree: Whole, masses: Sequence[int], most: int) -> list[list[int]]:
    """The largest branches of a tree that weigh at most `most`, which every leaf must: its clusters."""
    leaves = len(masses)
    weights = list(masses)
    parent = list(range(2 * leaves - 1))
    for node, (left, right) in enumerate(tree.tolist(), start=leaves):
        weights.append(weights[left] + weights[right])
        if weights[node] <= most:  # then so do its branches
            parent[left] = parent[right] = node
    for node in range(2 * leaves - 2, -1, -1):  # from the root down: everyone's topmost branch
        parent[node] = parent[parent[node]]
    clusters: dict[int, list[int]] = {}
    for leaf in range(leaves):
        clusters.setdefault(parent[leaf], []).append(leaf)
    return list(clusters.values())


def heaviest_first(clusters: Iterable[list[int]], masses: Sequence[int]) -> list[list[int]]:
    """Clusters that have tickets left, in order of decreasing weight; of equals, the one of the lowest number first."""
    weighed = [(sum(masses[client] for client in cluster), cluster) for cluster in clusters]
    return [[c for c in cluster if masses[c]] for mass, cluster in sorted(weighed, key=lambda w: (-w[0], w[1])) if mass]
