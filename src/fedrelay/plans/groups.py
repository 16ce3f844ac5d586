"""Groups (superclients): who trains in one chain. Every grouper places every client exactly once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrelay.errors import BadInput, within

Groups = tuple[tuple[int, ...], ...]


def random_groups(
    sizes: Sequence[int], rng: np.random.Generator, *, min_examples: int | None, max_clients: int | None
) -> Groups:
    """Clients in random order fill one group after another (FedSeq 2022, φ_rand)."""
    return fill(rng.permutation(len(sizes)).tolist(), sizes, min_examples=min_examples, max_clients=max_clients)


def fill(order: Sequence[int], sizes: Sequence[int], *, min_examples: int | None, max_clients: int | None) -> Groups:
    """Fill groups in this order; one is closed at `min_examples` examples or `max_clients` clients, whichever is first.

    If the last group stays below `min_examples`, its clients go one by one to the group with the fewest examples that
    has room; those that find no room stay a (smaller) group of their own.
    """
    check_constraints(sizes, min_examples=min_examples, max_clients=max_clients)
    enough = float("inf") if min_examples is None else min_examples
    room = len(sizes) if max_clients is None else max_clients
    groups: list[list[int]] = [[]]
    for client in order:
        if groups[-1] and (held(groups[-1], sizes) >= enough or len(groups[-1]) >= room):
            groups.append([])
        groups[-1].append(client)
    if min_examples is not None and len(groups) > 1 and held(groups[-1], sizes) < min_examples:
        groups = spread(groups[:-1], groups[-1], sizes, room)
    return canonical(groups)


def spread(groups: list[list[int]], left_over: list[int], sizes: Sequence[int], room: int) -> list[list[int]]:
    """Give every left-over client to the group with the fewest examples that has room for one more."""
    homeless = []
    for client in left_over:
        open_groups = [group for group in groups if len(group) < room]
        if open_groups:
            min(open_groups, key=lambda group: held(group, sizes)).append(client)
        else:
            homeless.append(client)
    return [*groups, homeless] if homeless else groups


def held(group: Sequence[int], sizes: Sequence[int]) -> int:
    """The examples of a group."""
    return sum(sizes[client] for client in group)


def canonical(groups: Sequence[Sequence[int]]) -> Groups:
    """Clients in order inside a group, groups in the order of their first client: groups of one are the clients."""
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def check_constraints(sizes: Sequence[int], *, min_examples: int | None, max_clients: int | None) -> None:
    """Refuse constraints that no grouping can meet."""
    if min_examples is None and max_clients is None:
        raise BadInput("groups need min_examples or max_clients, to know when a group is complete")
    if max_clients is not None:
        within("max_clients", max_clients, least=1)
    if min_examples is not None:
        within("min_examples", min_examples, least=1)
        if min_examples > sum(sizes):
            raise BadInput(
                f"min_examples = {min_examples} but all clients together have {sum(sizes)}: at most that works"
            )


__all__ = ["Groups", "canonical", "fill", "held", "random_groups"]
