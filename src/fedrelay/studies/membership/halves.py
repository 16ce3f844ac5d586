"""Who is asked about: some clients, half of whose examples are held out, so that members and others are of one kind.

Each example of such a client is held out or not by chance, class by class. So a model that never saw the client cannot
tell the halves apart, whatever classes the client has: had the others come from elsewhere, another mix of classes (or
another hand) would look like membership.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.data.examples import Store
from fedrelay.data.federation import Federation, Rows
from fedrelay.errors import BadInput, within

FEWEST = 5
"""Of members, and of others: with fewer an AUC says nothing."""
MOST_VICTIMS = 10
"""So many clients are asked about, unless it is said."""


@dataclass(frozen=True)
class Halves:
    """Examples of a client that it trains on, and as many of each class that nobody does."""

    members: Store
    others: Store


def victims_of(federation: Federation, *, named: Sequence[int] | None, count: int | None, seed: int) -> list[int]:
    """The clients that are asked about: these, or so many drawn from the seed among those with enough examples."""
    pairs = [pairs_of(federation.client(client).rows.numpy(), federation) for client in range(len(federation))]
    if named is not None:
        for client in named:
            federation.client(client)  # one that is not there is refused
            if pairs[client] < FEWEST:
                raise BadInput(
                    f"client {client} has {pairs[client]} pairs of examples of one class: one of each is held out, and "
                    f"at least {FEWEST} are needed, so name clients with more examples"
                )
        return sorted(set(named))
    able = [client for client, some in enumerate(pairs) if some >= FEWEST]
    if not able:
        raise BadInput(
            f"no client has {FEWEST} pairs of examples of one class, of which one is held out to compare with: the "
            f"most are {max(pairs)}; fewer clients have more"
        )
    if count is not None:
        within(f"victims, of {len(able)} clients with at least {FEWEST} pairs,", count, least=1, most=len(able))
    few = min(count or MOST_VICTIMS, len(able))
    return sorted(seeds.rng(seed, "membership", "who").choice(able, few, replace=False).tolist())


def pairs_of(rows: Rows, federation: Federation) -> int:
    """How many pairs of one class these examples make; without classes, any two are one."""
    train = federation.source.train
    return int((np.bincount(train.labels[rows]) // 2).sum()) if train.classified else len(rows) // 2


def held_out(federation: Federation, victims: Sequence[int], seed: int) -> tuple[Federation, dict[int, Halves]]:
    """The federation without the held-out examples of these clients, and both halves of each."""
    train = federation.source.train
    rows: list[Rows] = [federation.client(client).rows.numpy() for client in range(len(federation))]
    found = {}
    for client in victims:
        members, others = cut(rows[client], train, seeds.rng(seed, "membership", client))
        rows[client] = rows[client][~np.isin(rows[client], others)]
        found[client] = Halves(*(train.picked(torch.from_numpy(some)) for some in (members, others)))
    left = Federation.of(federation.source, rows)
    return replace(federation, order=left.order, starts=left.starts), found


def cut(rows: Rows, train: Store, draw: np.random.Generator) -> tuple[Rows, Rows]:
    """Two halves by chance, with as many examples of every class. The odd one of a class is in neither: it is trained
    on, and nobody asks for it."""
    order = draw.permutation(rows)
    labels = train.labels[order] if train.classified else np.zeros(len(order), np.int64)
    several = [order[labels == label] for label in np.unique(labels)]
    members, others = (np.concatenate([some[place : len(some) // 2 * 2 : 2] for some in several]) for place in (0, 1))
    return members, others
