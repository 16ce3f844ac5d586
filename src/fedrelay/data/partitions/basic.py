"""How a data set is cut into clients: one array of training rows per client, deterministic from the generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Parts, Rows, Source
from fedrelay.data.partitions.apportion import (
    LARGEST_ALPHA,
    SMALLEST_ALPHA,
    Counts,
    checked,
    cut,
    deal,
    draw_mixes,
    evenly,
    fill_up,
    grouped,
    log_weights,
    one_class_each,
    owners_of,
    shares,
    spread_of_sizes,
)
from fedrelay.errors import BadInput, within

MOST_DRAWS = 20_000_000
"""Gamma variates for one split. Tens of thousands of clients times many classes use fewer draws than asked, so that
a run starts in seconds; between such large draws the sizes hardly differ."""


@dataclass(frozen=True)
class Iid:
    """Everything shuffled and cut into equal parts (sizes differ by at most one)."""

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Parts:
        examples = len(source.train)
        client_count = checked(clients, examples)
        return Parts.of_sizes(rng.permutation(examples), evenly(examples, client_count)).sorted()


@dataclass(frozen=True)
class Dirichlet:
    """Clients of equal sizes, each with a class mix of its own from Dir(alpha) (FedSeq 2022, Sec. IV; journal 2024).

    Nobody gets an example twice; when a class runs out, a client takes more of the other classes of its mix. `alpha` =
    0 is exactly one class per client. With `deal` = "classes" every class is dealt to the clients by a draw from
    Dir(alpha), and sizes are unequal: a client that already holds its even share of the examples gets nothing of the
    next class; of `draws` splits the one with the most even sizes is kept; a client that would hold fewer than
    `smallest` examples is given some of the largest client's (FedELMY 2024 and the published code of FedSeq 2022).
    """

    alpha: float = 0.5
    draws: int = 100
    smallest: int = 1
    deal: Literal["clients", "classes"] = "clients"

    def __post_init__(self) -> None:
        within("alpha of a Dirichlet split", self.alpha, least=0, most=LARGEST_ALPHA)
        within("draws of a Dirichlet split", self.draws, least=1)
        within("the smallest client of a Dirichlet split", self.smallest, least=1)
        if self.deal not in ("clients", "classes"):
            raise BadInput(f'deal of a Dirichlet split must be "clients" or "classes", not {self.deal!r}')

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Parts:
        labels = source.train.labels
        client_count = checked(clients, len(labels), self.smallest)
        if self.alpha == 0:
            return self._one_class_each(labels, client_count, rng)
        stock = np.bincount(labels, minlength=source.classes)
        if self.deal == "clients":
            sizes = np.diff(np.arange(client_count + 1) * len(labels) // client_count)
            alphas = np.where(stock > 0, max(self.alpha, SMALLEST_ALPHA), 0.0)
            return deal(labels, draw_mixes(stock, sizes, alphas, rng), rng)
        draws = max(1, min(self.draws, MOST_DRAWS // (client_count * len(stock))))
        best = min((self._draw(stock, client_count, rng) for _ in range(draws)), key=spread_of_sizes)
        return deal(labels, fill_up(best, self.smallest), rng)

    def _one_class_each(self, labels: Rows, clients: int, rng: np.random.Generator) -> Parts:
        rows = one_class_each(labels, clients, rng)
        if rows.sizes.min() < self.smallest:
            raise BadInput(
                f"one class per client (alpha = 0) leaves a client with {rows.sizes.min()} examples instead of "
                f"{self.smallest}: ask for fewer than {clients} clients or a smaller `smallest`"
            )
        return rows

    def _draw(self, stock: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Counts:
        share, alphas = stock.sum() / clients, np.full(clients, self.alpha)
        counts = np.zeros((clients, len(stock)), dtype=np.int64)
        sizes = np.zeros(clients, dtype=np.int64)
        for label in np.flatnonzero(stock):
            # Before the last example is dealt somebody is always below the even share, so there is somebody to deal to.
            below = sizes < share
            counts[:, label] = cut(stock[label], shares(log_weights(alphas, rng), below), rng)
            sizes += counts[:, label]
        return counts


@dataclass(frozen=True)
class Shards:
    """Sorted by label, cut into `per_client` shards for every client, and dealt at random (McMahan et al. 2017)."""

    per_client: int = 2

    def __post_init__(self) -> None:
        within("shards per client", self.per_client, least=1)

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Parts:
        labels = source.train.labels
        client_count = checked(clients, len(labels), self.per_client)
        order = rng.permutation(len(labels))
        order = order[np.argsort(labels[order], kind="stable")]
        sizes = evenly(len(labels), client_count * self.per_client)
        client_of = np.empty(len(sizes), dtype=np.int64)
        client_of[rng.permutation(len(sizes))] = np.repeat(np.arange(client_count), self.per_client)
        owner = np.empty(len(labels), dtype=np.int64)
        owner[order] = np.repeat(client_of, sizes)
        return grouped(owner, client_count)


@dataclass(frozen=True)
class Natural:
    """Everybody who made examples is a client; with `clients` given, only the first so many of them."""

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Parts:
        owners, owner_of = owners_of(source)
        client_count = len(owners) if clients is None else clients
        if not 1 <= client_count <= len(owners):
            raise BadInput(
                f"{source.name} was made by {len(owners)} owners, so it cannot be {client_count} natural clients: "
                f"ask for 1 to {len(owners)}"
            )
        return grouped(owner_of, len(owners))[:client_count]
