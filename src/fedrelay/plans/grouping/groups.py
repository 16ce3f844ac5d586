"""Groups (superclients): who trains in one chain. Every client is placed exactly once, always."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrelay.errors import BadInput, within

Groups = tuple[tuple[int, ...], ...]


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
        if self.min_examples is not None and self.min_examples > sum(sizes):
            raise BadInput(
                f"min_examples = {self.min_examples} but all clients together have {sum(sizes)}: at most that works"
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
    return fill(rng.permutation(len(sizes)).tolist(), sizes, limits)


def fill(order: Sequence[int], sizes: Sequence[int], limits: Limits) -> Groups:
    """Fill one group after another in this order, each until it is complete."""
    limits.check(sizes)
    groups: list[list[int]] = [[]]
    examples = 0
    for client in order:
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
    while limits.min_examples is not None and len(groups) > 1:
        groups = sorted(groups, key=lambda group: examples_of(group, sizes))
        if examples_of(groups[0], sizes) >= limits.min_examples:
            break
        after = distribute([list(group) for group in groups[1:]], groups[0], sizes, limits)
        if len(after) == len(groups):  # somebody found no room, so the small group has to stay
            break
        groups = after
    return canonical(groups)


def distribute(
    groups: list[list[int]], left_over: Sequence[int], sizes: Sequence[int], limits: Limits
) -> list[list[int]]:
    """Give every left-over client to the group with the fewest examples that has room for one more."""
    room = sum(map(len, groups)) + len(left_over) if limits.max_clients is None else limits.max_clients
    examples = [examples_of(group, sizes) for group in groups]
    homeless = []
    for client in left_over:
        open_groups = [number for number, group in enumerate(groups) if len(group) < room]
        if open_groups:
            number = min(open_groups, key=examples.__getitem__)
            groups[number].append(client)
            examples[number] += sizes[client]
        else:
            homeless.append(client)
    return [*groups, homeless] if homeless else groups


def joined(sizes: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the clients that have joined: who has no examples has not."""
    return tuple(client for client, size in enumerate(sizes) if size)


def examples_of(group: Sequence[int], sizes: Sequence[int]) -> int:
    """The examples of a group."""
    return sum(sizes[client] for client in group)


def canonical(groups: Sequence[Sequence[int]]) -> Groups:
    """Clients in order inside a group, groups in the order of their first client: groups of one are the clients."""
    return tuple(sorted(tuple(sorted(int(client) for client in group)) for group in groups))
