"""Arithmetic that the partitions share: Dirichlet draws, whole numbers from shares, and dealing rows to clients."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Parts, Rows, Source
from fedrelay.errors import BadInput
from fedrelay.system.sequences import narrow

Counts = NDArray[np.int64]
"""How many examples of each class go to each client: (clients, classes)."""

SMALLEST_ALPHA = 1e-100
"""Below it nothing changes: one entry takes everything in double precision long before. It avoids an overflow."""
LARGEST_ALPHA = 1e300
"""Beyond it a gamma variate overflows; from a million or so a Dirichlet split has no skew worth the name anyway."""

BLOCK = 1000
"""How many clients' mixes are drawn at once: enough to be quick, few enough to need little memory."""


def checked(clients: int | None, examples: int, per_client: int = 1) -> int:
    """The number of clients, refused when there are too few examples for each to have `per_client`."""
    if clients is None:
        raise BadInput("this partition must be told the number of clients (only the natural one knows it)")
    if clients < 1:
        raise BadInput(f"the number of clients must be at least 1, found {clients}")
    most = examples // per_client
    if clients > most:
        each = "one example" if per_client == 1 else f"{per_client} examples"
        raise BadInput(
            f"{clients} clients cannot share {examples} examples with at least {each} each: "
            f"the largest number of clients that works is {most}"
        )
    return clients


def owners_of(source: Source) -> tuple[Rows, Rows]:
    """The owners that have training examples, in order, and for every example the place of its owner among them."""
    if source.owners is None:
        raise BadInput(f"{source.name} does not say who made its examples: use another partition than a natural one")
    if len(source.owners) != len(source.train):
        raise BadInput(
            f"{source.name} names owners for {len(source.owners)} examples but has {len(source.train)} to train on"
        )
    owners, owner_of = np.unique(source.owners, return_inverse=True)
    return owners, owner_of.astype(np.int64)


def grouped(client_of: Rows, clients: int) -> Parts:
    """The rows of every client, in order, from the client of every row."""
    return Parts.of_sizes(np.argsort(narrow(client_of), kind="stable"), np.bincount(client_of, minlength=clients))


def evenly(examples: int, parts: int) -> Rows:
    """Sizes that differ by at most one, the larger ones first."""
    return examples // parts + (np.arange(parts) < examples % parts)


def log_weights(alphas: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """A Dirichlet draw (or rows of them) as logarithms of weights not yet normalised; a parameter of 0 weighs nothing.

    In logarithms, because for a small alpha every gamma variate underflows to 0 and the usual way divides 0 by 0:
    Gamma(alpha) has the distribution of Gamma(alpha + 1) · U^(1 / alpha).
    """
    positive = np.maximum(alphas, SMALLEST_ALPHA)
    logs: NDArray[np.float64] = (
        np.log(rng.standard_gamma(positive + 1)) - rng.standard_exponential(alphas.shape) / positive
    )
    logs[alphas == 0] = -np.inf
    return logs


def shares(logs: NDArray[np.float64], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The weights of the allowed entries, of which there must be one, normalised."""
    kept = np.where(allowed, logs, -np.inf)
    weights = np.exp(kept - kept.max())
    result: NDArray[np.float64] = weights / weights.sum()
    return result


def cut(examples: int, proportions: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers of examples that add up to `examples`, within one of the proportions and equal to them on average.

    One random offset before rounding down; without it the last entries would always get what rounding leaves.
    """
    ends = np.floor(np.cumsum(proportions) * examples + rng.random()).astype(np.int64)
    # Rounding may leave the last sum below one: what is missing belongs to the last entry that has a share at all.
    ends[np.flatnonzero(proportions)[-1] :] = examples
    return np.diff(np.minimum(ends, examples), prepend=0)


def spread_of_sizes(counts: Counts) -> float:
    """The standard deviation of the client sizes."""
    return float(counts.sum(axis=1).std())


def fill_up(counts: Counts, smallest: int) -> Counts:
    """Nobody below `smallest`: examples move, one at a time, from the largest client's commonest class."""
    counts = counts.copy()
    sizes = counts.sum(axis=1)
    largest = [(-int(size), client) for client, size in enumerate(sizes) if size > smallest]
    heapq.heapify(largest)
    for client in np.flatnonzero(sizes < smallest):
        for _ in range(smallest - int(sizes[client])):
            size, donor = largest[0]
            label = counts[donor].argmax()
            counts[donor, label] -= 1
            counts[client, label] += 1
            if -size - 1 > smallest:
                heapq.heapreplace(largest, (size + 1, donor))
            else:
                heapq.heappop(largest)
    return counts


def deal(labels: Rows, counts: Counts, rng: np.random.Generator) -> Parts:
    """Random rows of every class to the clients, as many as `counts` says; nobody shares one, some may be left over."""
    clients, classes = counts.shape
    client_of = np.full(len(labels), clients)  # one more than there are: nobody
    for label in range(classes):
        rows = rng.permutation(np.flatnonzero(labels == label))
        client_of[rows[: counts[:, label].sum()]] = np.repeat(np.arange(clients), counts[:, label])
    return grouped(client_of, clients + 1)[:clients]


def one_class_each(labels: Rows, clients: int, rng: np.random.Generator) -> Parts:
    """Exactly one class per client; which client has which class is random."""
    classes, stock = np.unique(labels, return_counts=True)
    if clients < len(classes):
        raise BadInput(
            f"one class per client (alpha = 0) needs a client for each of the {len(classes)} classes, found {clients} "
            f"clients: the smallest number of clients that works is {len(classes)}"
        )
    class_of = rng.permutation(np.repeat(np.arange(len(classes)), seats(stock, clients)))
    client_of = np.empty(len(labels), dtype=np.int64)
    for place, label in enumerate(classes):
        holders = np.flatnonzero(class_of == place)
        rows = rng.permutation(np.flatnonzero(labels == label))
        client_of[rows] = np.repeat(holders, evenly(len(rows), len(holders)))
    return grouped(client_of, clients)


def seats(stock: NDArray[np.int64], clients: int, least: int = 1) -> NDArray[np.int64]:
    """Clients handed to groups in proportion to their stock by largest remainder, at least `least` to each group."""
    quota = stock * (clients / stock.sum())
    result: NDArray[np.int64] = np.maximum(stock * clients // stock.sum(), least)
    while result.sum() < clients:
        result[np.argmax(quota - result)] += 1
    while result.sum() > clients:
        result[np.argmax(np.where(result > least, result - quota, -np.inf))] -= 1
    return result


def draw_mixes(
    stock: NDArray[np.int64], sizes: NDArray[np.int64], alphas: NDArray[np.float64], rng: np.random.Generator
) -> Counts:
    """A class mix for every client, as whole numbers of examples that the stock of each class allows.

    Clients draw in random order, so that what is left over in the end does not always go to the last ones.
    """
    left = stock.copy()
    counts = np.zeros((len(sizes), len(stock)), dtype=np.int64)
    order = rng.permutation(len(sizes))
    for start in range(0, len(order), BLOCK):
        block = order[start : start + BLOCK]
        logs = log_weights(np.tile(alphas, (len(block), 1)), rng)
        done = 0
        while done < len(block):
            # As many at once as find all they want; whoever comes to the end of a class has turns of its own.
            taken = together(sizes[block[done:]], logs[done:], left, rng)
            if len(taken):
                counts[block[done : done + len(taken)]] = taken
            else:
                taken = alone(int(sizes[block[done]]), logs[done], left, rng)[None]
                counts[block[done]] = taken[0]
            left -= taken.sum(axis=0)
            done += len(taken)
    return counts


def together(
    wanted: NDArray[np.int64], logs: NDArray[np.float64], left: NDArray[np.int64], rng: np.random.Generator
) -> Counts:
    """What the first of these clients take, one after another, as long as no class comes to its end; perhaps nobody."""
    before = rng.bit_generator.state
    kept = np.where(left > 0, logs, -np.inf)
    weights = np.exp(kept - kept.max(axis=1, keepdims=True))
    proportions = weights / weights.sum(axis=1, keepdims=True)
    ends = np.floor(np.cumsum(proportions, axis=1) * wanted[:, None] + rng.random(len(wanted))[:, None])
    places = np.arange(proportions.shape[1])
    last = np.where(proportions > 0, places, -1).max(axis=1)
    ends = np.where(places >= last[:, None], wanted[:, None], np.minimum(ends, wanted[:, None])).astype(np.int64)
    taken: Counts = np.diff(ends, prepend=0, axis=1)
    enough = ((left > 0) <= (np.cumsum(taken, axis=0) < left)).all(axis=1)
    count = len(taken) if enough.all() else int(np.argmin(enough))
    rng.bit_generator.state = before
    rng.random(count)  # as if only they had drawn
    return taken[:count]


def alone(
    wanted: int, logs: NDArray[np.float64], left: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """What one client takes, in as many turns as it needs: another one only comes when a class has run out."""
    taken = np.zeros_like(left)
    while wanted:
        turn = np.minimum(cut(wanted, shares(logs, left > taken), rng), left - taken)
        taken += turn
        wanted -= int(turn.sum())
    return taken
