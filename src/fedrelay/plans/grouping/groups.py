"""Groups (superclients): who trains in one chain. Every client is placed exactly once, always."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import chain
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrelay.data.federation import Parts
from fedrelay.data.partitions.apportion import evenly
from fedrelay.errors import BadInput, within
from fedrelay.system.sequences import Integers, Long

Groups: TypeAlias = Sequence[tuple[int, ...]]
"""The clients of every group. Tuples will do; millions of clients need `Grouped` or `Alone`."""


@dataclass(frozen=True, eq=False, repr=False)
class Grouped(Long, Sequence[tuple[int, ...]]):
    """Groups in two arrays: group i is `members[starts[i]:starts[i + 1]]`."""

    members: Integers
    starts: Integers

    def __post_init__(self) -> None:
        if not len(self.starts) or self.starts[0] or self.starts[-1] != len(self.members):
            raise ValueError(f"{len(self.members)} members do not go with groups that begin at {self.starts}")

    @classmethod
    def of(cls, members: ArrayLike, sizes: ArrayLike) -> Grouped:
        """Members one group after another, and the size of every group; clients in order inside a group, groups in the
        order of their first client, so that groups of one are the clients."""
        parts = Parts.of_sizes(np.asarray(members, dtype=np.int64), np.asarray(sizes, dtype=np.int64)).sorted()
        first = np.argsort(parts.order[parts.starts[:-1]])
        sorted_sizes = parts.sizes[first]
        starts = np.concatenate([[0], np.cumsum(sorted_sizes)])
        places = np.repeat(parts.starts[first] - starts[:-1], sorted_sizes) + np.arange(starts[-1])
        return cls(Integers.of(parts.order[places]), Integers.of(starts))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, place: int, /) -> tuple[int, ...]: ...
    @overload
    def __getitem__(self, place: slice, /) -> tuple[tuple[int, ...], ...]: ...
    def __getitem__(self, place: int | slice, /) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
        chosen = range(len(self))[place]
        if not isinstance(chosen, int):
            return tuple(self[one] for one in chosen)
        first, last = self.starts.array[chosen : chosen + 2].tolist()
        return tuple(self.members.array[first:last].tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Grouped):
            return self is other or (self.starts == other.starts and self.members == other.members)
        return super().__eq__(other)

    __hash__ = Long.__hash__


@dataclass(frozen=True, eq=False, repr=False)
class Alone(Long, Sequence[tuple[int, ...]]):
    """Everybody alone: groups of one, of which only their number is kept."""

    length: int

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, place: int, /) -> tuple[int, ...]: ...
    @overload
    def __getitem__(self, place: slice, /) -> tuple[tuple[int, ...], ...]: ...
    def __getitem__(self, place: int | slice, /) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
        chosen = range(self.length)[place]
        return (chosen,) if isinstance(chosen, int) else tuple((one,) for one in chosen)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return ((client,) for client in range(self.length))

    def __eq__(self, other: object) -> bool:
        return self.length == other.length if isinstance(other, Alone) else super().__eq__(other)

    __hash__ = Long.__hash__


@dataclass(frozen=True)
class Limits:
    """When a group is complete: at `min_examples` examples or `max_clients` clients, whichever comes first; or, if a
    number of `groups` is given, when it has its even share of the clients."""

    min_examples: int | None = None
    max_clients: int | None = None
    groups: int | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if not given:
            raise BadInput("groups need min_examples, max_clients or a number of groups, to know when one is complete")
        if self.groups is not None and len(given) > 1:
            other = next(name for name in given if name != "groups")
            raise BadInput(f"groups = {self.groups} and {other} = {given[other]}: give one or the other")
        for name, value in given.items():
            within(name, value, least=1)

    def check(self, sizes: Sequence[int]) -> None:
        """Refuse limits that no grouping of these clients can meet."""
        if self.groups is not None and self.groups > len(sizes):
            raise BadInput(f"groups = {self.groups} but there are {len(sizes)} clients: at most that works")
        if self.min_examples is not None and self.min_examples > (total := sum(sizes)):
            raise BadInput(
                f"min_examples = {self.min_examples} but all clients together have {total}: at most that works"
            )

    def among(self, sizes: Sequence[int]) -> Limits:
        """The same limits for clients of whom others are yet to come, so that too few of them are no mistake."""
        fewer = None if self.groups is None else min(self.groups, len(sizes))
        return Limits(
            None if self.min_examples is None else min(self.min_examples, sum(sizes)), self.max_clients, fewer
        )

    def complete(self, number: int, clients: int, examples: int, total: int) -> bool:
        """Whether the group of this number (from 0), with so many clients and examples, takes no more of `total`."""
        if self.groups is not None:
            return clients >= total // self.groups + (number < total % self.groups)
        enough = self.min_examples is not None and examples >= self.min_examples
        return enough or (self.max_clients is not None and clients >= self.max_clients)

    def room(self, total: int) -> int:
        """How many clients a group can have, of `total`."""
        return total if self.max_clients is None else self.max_clients

    def cut(self, total: int) -> NDArray[np.int64]:
        """How many of `total` clients are in each group, where examples do not matter."""
        if self.groups is not None:
            return evenly(total, self.groups)
        most = self.room(total)
        return np.minimum(total - np.arange(0, total, most), most)

    def count(self, sizes: Sequence[int]) -> int:
        """How many groups of equally many clients come nearest to these limits; no group has too many clients."""
        if self.groups is not None:
            return self.groups
        most = len(sizes) if self.max_clients is None else min(self.max_clients, len(sizes))
        if self.min_examples is None:
            return -(-len(sizes) // most)
        needed = -(-self.min_examples * len(sizes) // sum(sizes))  # clients until the examples are expected to suffice
        return max(len(sizes) // needed, -(-len(sizes) // most), 1)


def limits_of(min_examples: int | None, max_clients: int | None, groups: int | None) -> Limits:
    """The limits that a recipe was given; groups of at most ten clients if it was given none."""
    if min_examples is None and max_clients is None and groups is None:
        return Limits(max_clients=10)
    return Limits(min_examples, max_clients, groups)


def random_groups(sizes: Sequence[int], limits: Limits, rng: np.random.Generator) -> Groups:
    """Clients in random order fill one group after another (FedSeq 2022, φ_rand)."""
    return fill(rng.permutation(len(sizes)), sizes, limits)


def fill(order: Sequence[int] | NDArray[np.int64], sizes: Sequence[int], limits: Limits) -> Groups:
    """Fill one group after another in this order, each until it is complete."""
    limits.check(sizes)
    clients = np.asarray(order, dtype=np.int64)
    if limits.min_examples is None and len(clients):  # then sizes do not matter
        return Grouped.of(clients, limits.cut(len(clients)))
    groups: list[list[int]] = [[]]
    examples = 0
    for client in clients.tolist():
        if groups[-1] and limits.complete(len(groups) - 1, len(groups[-1]), examples, len(order)):
            groups.append([])
            examples = 0
        groups[-1].append(client)
        examples += sizes[client]
    return finished(groups, sizes, limits)


def finished(groups: list[list[int]], sizes: Sequence[int], limits: Limits) -> Groups:
    """Groups that were filled one after another: if the last one stayed below `min_examples`, its clients go one by one
    to the group with the fewest examples that has room; those that find no room stay a (smaller) group of their own."""
    short = limits.min_examples is not None and examples_of(groups[-1], sizes) < limits.min_examples
    if short and len(groups) > 1:
        groups = distribute(groups[:-1], groups[-1], sizes, limits)
    return canonical(groups)


def topped_up(groups: list[list[int]], sizes: Sequence[int], limits: Limits) -> Groups:
    """Groups that were filled side by side: while one is below `min_examples`, the smallest is given up and spread."""
    least = 0 if limits.min_examples is None else limits.min_examples
    held = sorted(groups, key=lambda group: examples_of(group, sizes))
    while len(held) > 1 and examples_of(held[0], sizes) < least:
        smallest, others = held[0], held[1:]
        if sum(max(limits.room(len(sizes)) - len(group), 0) for group in others) < len(smallest):
            break  # somebody would find no room, so the small group has to stay
        held = sorted(distribute(others, smallest, sizes, limits), key=lambda group: examples_of(group, sizes))
    return canonical(held)


def distribute(
    groups: list[list[int]],
    left_over: Sequence[int],
    sizes: Sequence[int],
    limits: Limits,
) -> list[list[int]]:
    """Give every left-over client to the group with the fewest examples that has room for one more."""
    room = limits.room(len(sizes))
    open_groups = [(examples_of(group, sizes), number) for number, group in enumerate(groups) if len(group) < room]
    heapify(open_groups)
    for place, client in enumerate(left_over):
        if not open_groups:
            return [*groups, list(left_over[place:])]
        examples, number = open_groups[0]
        groups[number].append(client)
        if len(groups[number]) < room:
            heapreplace(open_groups, (examples + sizes[client], number))
        else:
            heappop(open_groups)
    return groups


def joined(sizes: Sequence[int]) -> Integers | range:
    """The numbers of the clients that have joined: who has no examples has not."""
    there = np.asarray(sizes) != 0
    return range(len(sizes)) if there.all() else Integers.of(np.flatnonzero(there))


def examples_of(group: Sequence[int], sizes: Sequence[int]) -> int:
    """The examples of a group."""
    return sum(sizes[client] for client in group)


def sizes_of(groups: Alone | Grouped, sizes: Sequence[int]) -> Integers:
    """The examples of every group."""
    mine = Integers.of(sizes)
    if isinstance(groups, Alone):
        return mine
    return Integers.of(np.add.reduceat(mine.array[groups.members.array], groups.starts.array[:-1], dtype=np.int64))


def canonical(groups: Sequence[Sequence[int]]) -> Grouped:
    """Clients in order inside a group, groups in the order of their first client: groups of one are the clients."""
    if isinstance(groups, Grouped):
        return groups
    sizes = [len(group) for group in groups]
    return Grouped.of(np.fromiter(chain.from_iterable(groups), dtype=np.int64, count=sum(sizes)), sizes)
