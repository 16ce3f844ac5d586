"""Splits that start from the client: each has a size and a class mix of its own, or a part of a domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Parts, Rows, Source
from fedrelay.data.partitions.apportion import (
    LARGEST_ALPHA,
    SMALLEST_ALPHA,
    checked,
    cut,
    deal,
    draw_mixes,
    evenly,
    grouped,
    log_weights,
    one_class_each,
    owners_of,
    seats,
    shares,
)
from fedrelay.errors import BadInput, within


@dataclass(frozen=True)
class DirichletClients:
    """Every client draws its class mix from a Dirichlet around the mix of all data; sizes are equal (Hsu et al. 2019).

    Paper: the parameters are alpha times the prior class mix, so for ten even classes alpha = 1 here is 0.1 per class.
    Nobody gets an example twice; when a class runs out, a client takes more of the other classes of its mix.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        within("alpha of a Dirichlet split", self.alpha, least=0, most=LARGEST_ALPHA)

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Sequence[Rows]:
        labels = source.train.labels
        client_count = checked(clients, len(labels))
        if self.alpha == 0:
            return one_class_each(labels, client_count, rng)
        stock = np.bincount(labels, minlength=source.classes)
        sizes = np.diff(np.arange(client_count + 1) * len(labels) // client_count)
        return deal(labels, draw_mixes(stock, sizes, self.alpha * stock / len(labels), rng), rng)


@dataclass(frozen=True)
class QuantitySkew:
    """Clients of a few given sizes, each with a class mix drawn from Dir(alpha) (clustered sampling 2021, Sec. 6).

    The first clients are of the first size. With another number of clients than `clients_each` adds up to, the sizes
    are handed out in the same proportions. Paper: "partition" is read as nobody sharing an example; `repeat` = True
    draws with replacement, as the published code does. `alpha` = 0 is one class per client, as far as it lasts.
    """

    alpha: float = 0.1
    sizes: tuple[int, ...] = (100, 250, 500, 750, 1000)
    clients_each: tuple[int, ...] = (10, 30, 30, 20, 10)
    repeat: bool = False

    def __post_init__(self) -> None:
        within("alpha of a quantity skew", self.alpha, least=0, most=LARGEST_ALPHA)
        if not self.sizes or len(self.sizes) != len(self.clients_each):
            raise BadInput(
                f"a quantity skew needs one number of clients for each size, "
                f"found {len(self.sizes)} sizes and {len(self.clients_each)} numbers"
            )
        within("the smallest size of a quantity skew", min(self.sizes), least=1)
        within("the largest size of a quantity skew", max(self.sizes), most=2**40)
        within("the smallest number of clients of one size", min(self.clients_each), least=1)

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Sequence[Rows]:
        labels = source.train.labels
        client_count = sum(self.clients_each) if clients is None else clients
        within("the number of clients", client_count, least=1)
        stock = np.bincount(labels, minlength=source.classes)
        sizes = self.sizes_of(client_count)
        alphas = np.where(stock > 0, max(self.alpha, SMALLEST_ALPHA), 0.0)
        if self.repeat:
            return self._with_replacement(labels, sizes, alphas, rng)
        if sizes.sum() > len(labels):
            self._refuse(sizes, len(labels))
        return deal(labels, draw_mixes(stock, sizes, alphas, rng), rng)

    def sizes_of(self, clients: int) -> NDArray[np.int64]:
        """The size of every client, the first sizes first."""
        return np.repeat(np.array(self.sizes), seats(np.array(self.clients_each), clients, least=0))

    def _with_replacement(
        self, labels: Rows, sizes: NDArray[np.int64], alphas: NDArray[np.float64], rng: np.random.Generator
    ) -> Sequence[Rows]:
        rows = [np.flatnonzero(labels == label) for label in range(len(alphas))]
        parts = []
        for size in sizes:
            counts = cut(size, shares(log_weights(alphas, rng), alphas > 0), rng)
            parts.append(np.sort(np.concatenate([rng.choice(rows[c], counts[c]) for c in np.flatnonzero(counts)])))
        return parts

    def _refuse(self, sizes: NDArray[np.int64], examples: int) -> None:
        most = len(sizes) - 1
        while most and self.sizes_of(most).sum() > examples:
            most -= 1
        works = f"the largest number of clients that works is {most}" if most else "use smaller sizes"
        raise BadInput(
            f"{len(sizes)} clients of sizes {', '.join(map(str, self.sizes))} need {sizes.sum()} examples and there "
            f"are {examples}: {works}, or repeat = true draws with replacement"
        )


@dataclass(frozen=True)
class OneClass:
    """Client i has `size` examples of class i, i + 1, …, round and round (clustered sampling 2021, MNIST study).

    Paper: 100 clients of one digit with 500 training examples each, so 10 clients of each digit. With `order` =
    "by_class" the clients of a class follow one another, as in the authors' code: there the sampler `by_size`, which
    fills its urns in the order of clients of equal size, sees all ten digits in a round (Fig. 1).
    """

    size: int = 500
    order: Literal["in_turn", "by_class"] = "in_turn"

    def __post_init__(self) -> None:
        within("the size of a client of one class", self.size, least=1)
        if self.order not in ("in_turn", "by_class"):
            raise BadInput(f'order of clients of one class must be "in_turn" or "by_class", not {self.order!r}')

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Sequence[Rows]:
        labels = source.train.labels
        client_count = checked(clients, len(labels))
        classes, stock = np.unique(labels, return_counts=True)
        place = np.arange(client_count) % len(classes)
        short = np.flatnonzero(np.bincount(place, minlength=len(classes)) * self.size > stock)
        if len(short):
            most = int((stock // self.size * len(classes) + np.arange(len(classes))).min())
            raise BadInput(
                f"class {classes[short[0]]} has {stock[short[0]]} examples, too few for its share of {client_count} "
                f"clients of {self.size} examples each: the largest number of clients that works is {most}"
            )
        decks = np.concatenate([rng.permutation(np.flatnonzero(labels == label)) for label in classes])
        turn = np.arange(client_count) // len(classes)
        if self.order == "by_class":
            sorted_by_class = np.argsort(place, kind="stable")
            place, turn = place[sorted_by_class], turn[sorted_by_class]
        first = (np.cumsum(stock) - stock)[place] + turn * self.size
        rows = decks[first[:, None] + np.arange(self.size)]
        return Parts.of_sizes(rows.ravel(), np.full(client_count, self.size)).sorted()


@dataclass(frozen=True)
class Domains:
    """Each domain cut into equal parts, dealt in turn: A, B, C, D, A, B, C, D, … (FedELMY 2024, Tables 4 and 6).

    `order` names the domains in the order of the clients (the paper: photo, art_painting, cartoon, sketch); those that
    it leaves out are not used. Without it, the order of the source.
    """

    order: tuple[str, ...] = ()

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Sequence[Rows]:
        present, owner_of = owners_of(source)
        decks = grouped(owner_of, len(present))
        chosen = [decks[place] for place in self._places(source, present)]
        client_count = len(chosen) if clients is None else clients
        if client_count < len(chosen):
            raise BadInput(
                f"{len(chosen)} domains cannot be {client_count} clients: "
                f"the smallest number of clients that works is {len(chosen)}"
            )
        most = min(len(deck) * len(chosen) + number for number, deck in enumerate(chosen))
        if client_count > most:
            raise BadInput(
                f"{client_count} clients are too many for the smallest of {len(chosen)} domains: "
                f"the largest number of clients that works is {most}"
            )
        client_of = np.full(len(owner_of), client_count)  # one more than there are: nobody
        for number, deck in enumerate(chosen):
            mine = np.arange(number, client_count, len(chosen))
            client_of[rng.permutation(deck)] = np.repeat(mine, evenly(len(deck), len(mine)))
        return grouped(client_of, client_count + 1)[:client_count]

    def _places(self, source: Source, present: Rows) -> list[int]:
        """Where the domains asked for are among those present, in the order asked for."""
        if not self.order:
            return list(range(len(present)))
        names = {
            source.owner_names[owner] if owner < len(source.owner_names) else str(owner): place
            for place, owner in enumerate(present.tolist())
        }
        unknown = [name for name in self.order if name not in names]
        if unknown or len(set(self.order)) < len(self.order):
            wrong = f"there is no {unknown[0]!r}" if unknown else f"{', '.join(self.order)} names one of them twice"
            raise BadInput(f"the order of the domains of {source.name}: {wrong}; they are {', '.join(names)}")
        return [names[name] for name in self.order]
