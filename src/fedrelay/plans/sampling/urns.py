"""Urns of tickets: the distributions that clustered sampling draws from, in exact whole numbers.

With M examples in all and m draws, client i owns m · n_i tickets, and each of the m urns holds exactly M of them. One
ticket is drawn from every urn. Both conditions for an unbiased scheme (clustered sampling 2021, Eqs. 7 and 8) are then
equalities between whole numbers, which no rounding can break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from fedrelay.plans.sampling.sampler import Draw, checked, once, sums
from fedrelay.system.sequences import Integers

Whole = NDArray[np.int64]
Tickets = tuple[Whole, Whole]
"""Who has tickets, one after another, and how many; those of very many examples are Python's own whole numbers."""


@dataclass(frozen=True, eq=False)
class Urn:
    """Whose tickets are inside: those of `owners[j]` end before number `ends[j]`."""

    owners: Whole
    ends: Whole

    @classmethod
    def of(cls, owners: Whole, tickets: Whole) -> Urn:
        return cls(owners, np.cumsum(tickets.astype(np.int64)))

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
        return float(sum(np.sum(share * (1 - share)) for share in self._shares())) / len(self.urns) ** 2

    @cached_property
    def distinct(self) -> float:
        """How many different clients are expected in a draw: the sum of all chances, in double precision."""
        missed = np.ones(self.clients)
        for urn, share in zip(self.urns, self._shares(), strict=True):
            missed[urn.owners] *= 1 - share
        return float(np.sum(1 - missed))

    def _shares(self) -> Iterator[NDArray[np.float64]]:
        """Of each urn, one after another: all at once may be more than memory holds."""
        before: Urn | None = None
        for urn in self.urns:
            if urn is not before:
                before, share = urn, urn.tickets / self.total
            yield share


def multinomial(sizes: Sequence[int], count: int) -> Urns:
    """The same urn `count` times, everybody with the tickets of their size: MD sampling (Li et al. 2018)."""
    known, count = checked(sizes, count), int(count)
    return once(sizes, ("md", count), partial(_multinomial, known, count))


def _multinomial(sizes: Integers, count: int) -> Urns:
    return Urns(len(sizes), sums(sizes).total, (Urn.of(np.arange(len(sizes)), sizes.array),) * count)


def by_size(sizes: Sequence[int], count: int) -> Urns:
    """Fill one urn after another, large clients first (clustered sampling 2021, Alg. 1)."""
    known, count = checked(sizes, count), int(count)
    return once(sizes, ("by size", count), partial(_by_size, known, count))


def _by_size(sizes: Integers, count: int) -> Urns:
    own, rest, total = set_apart(sizes, count)
    order = np.argsort(-sizes.array, kind="stable")
    urns = poured([np.empty(0, dtype=np.int64)] * (count - len(own)), order, rest, total)
    return Urns(len(sizes), total, tuple(Urn.of(*tickets) for tickets in (*own, *urns)))


def by_clusters(tree: Whole, sizes: Sequence[int], count: int) -> Urns:
    """An urn for each of the heaviest clusters of a tree; the others fill what is left (Alg. 2, lines 3 to 20).

    `tree` has one row per merge, the two nodes that become one; nodes below n are clients, node n + j is row j.
    """
    known, count = checked(sizes, count), int(count)
    own, rest, total = set_apart(known, count)
    masses = rest.tolist()
    clusters = [np.array(cluster) for cluster in heaviest_first(cut(tree, masses, total), masses)]
    whole, others = clusters[: count - len(own)], clusters[count - len(own) :]
    # Paper: line 6 leaves the order open; cluster after cluster keeps alike clients in one urn as far as there is room.
    urns = poured(whole, np.concatenate([np.empty(0, dtype=np.int64), *others]), rest, total)
    return Urns(len(known), total, tuple(Urn.of(*tickets) for tickets in (*own, *urns)))


def set_apart(sizes: Integers, count: int) -> tuple[list[Tickets], Whole, int]:
    """Urns that belong to one client alone, ⌊m p_i⌋ of client i; the tickets left to each, fewer than an urn holds; and
    what an urn holds (proof of Theorem 3, and the end of Section 5)."""
    total = sums(sizes).total
    tickets = sizes.array.astype(np.int64 if count * total < 2**63 else object) * count
    whole, rest = tickets // total, tickets % total
    holders = np.repeat(np.arange(len(sizes)), whole.astype(np.int64))
    return [(np.array([client]), np.array([total])) for client in holders.tolist()], rest, total


def poured(clusters: Sequence[Whole], others: Whole, tickets: Whole, total: int) -> list[Tickets]:
    """An urn for every cluster; the tickets of the others go into the first one that has room, in this order, and who
    does not fit goes on in the next."""
    room = np.array([total - sum(tickets[cluster].tolist()) for cluster in clusters], dtype=tickets.dtype)
    ends_of_urns, ends_of_others = np.cumsum(room), np.cumsum(tickets[others])
    # Urns and clients side by side: every piece between two ends belongs to one urn and one client.
    ends = np.sort(np.concatenate([ends_of_others, ends_of_urns]), kind="stable")  # two that are sorted: a merge
    ends = ends[np.diff(ends, prepend=0) > 0]
    starts = np.concatenate([ends[:0], [0], ends[:-1]])[: len(ends)]
    urn_of = np.searchsorted(ends_of_urns, starts, side="right")
    owners = others[np.searchsorted(ends_of_others, starts, side="right")]
    cuts = np.searchsorted(urn_of, np.arange(len(clusters) + 1))
    pieces = ends - starts
    return [
        (
            np.concatenate([cluster, owners[cuts[number] : cuts[number + 1]]]),
            np.concatenate([tickets[cluster], pieces[cuts[number] : cuts[number + 1]]]),
        )
        for number, cluster in enumerate(clusters)
    ]


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
