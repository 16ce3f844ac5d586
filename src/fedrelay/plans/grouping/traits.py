"""Traits (ψ) on the server: what it knows of every client's data, gathered once by a survey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.errors import BadInput, RunFailed
from fedrelay.plans.grouping.distances import Floats
from fedrelay.tasks import Task
from fedrelay.types import Drop, Report, Survey, Trait, Tree

BLOCK = 2**22
"""How many numbers of a wide matrix are turned into double precision at a time."""
MOST_NUMBERS = 1 << 20
"""Of a trait, or as many as the model has, if that is more: a server holds one of every client."""


@dataclass(frozen=True)
class Traits:
    """One row of numbers per client. `classes` is the task's number of classes; `missing` says which clients could not
    be described and why: each has borrowed the row of a random other one, so that it is grouped at random."""

    rows: Floats
    classes: int
    missing: tuple[tuple[int, str], ...] = ()

    def tree(self) -> Tree:
        """As plain data, for a memo."""
        return {"rows": torch.from_numpy(self.rows), "classes": self.classes, "missing": self.missing}

    @classmethod
    def of(cls, tree: Tree) -> Traits:
        """Back from plain data."""
        return cls(tree["rows"].numpy(), tree["classes"], tree["missing"])


def gather(trait: Trait, survey: Survey, clients: int, rng: np.random.Generator) -> Traits:
    """Describe every client; those that fail are given a random place, and named."""
    trait.check(survey.task)
    (collected,) = collect(survey(trait), clients, most=longest(survey.task))
    return complete(trait, collected, survey.task.classes, rng)


@dataclass
class Collected:
    """The vectors that came in, one row per client (None if there are none), and why which clients have none."""

    most: int = MOST_NUMBERS
    """How long a vector may be."""
    rows: NDArray[np.float32] | None = None
    missing: dict[int, str] = field(default_factory=dict)
    _told: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    def add(self, client: int, told: object) -> None:
        if not isinstance(told, torch.Tensor) or told.dim() != 1 or told.is_complex() or not len(told):
            self.missing[client] = "sent no vector as its trait"
        elif len(told) > self.most:
            self.missing[client] = f"sent a trait of {len(told):,} numbers, and {self.most:,} are the most"
        elif not np.isfinite(vector := np.array(told.float().cpu().numpy())).all():
            self.missing[client] = "sent a trait that is not finite (a smaller lr may help)"
        else:
            self._told[client] = vector

    def settle(self, clients: int) -> None:
        """Put into rows what is as long as most vectors are (of two lengths as common, the first client's): nobody
        alone decides for the others."""
        if not self._told:
            return
        ((width, _),) = Counter(map(len, self._told.values())).most_common(1)
        self.rows = np.zeros((clients, width), dtype=np.float32)
        for client in list(self._told):
            vector = self._told.pop(client)  # all of them twice may be too much
            if len(vector) == width:
                self.rows[client] = vector
            else:
                self.missing[client] = f"sent a trait of {len(vector)} numbers, most others {width}"
        self.missing = dict(sorted(self.missing.items()))


def collect(
    found: Iterator[Report | Drop], clients: int, keys: Sequence[str] = ("trait",), *, most: int = MOST_NUMBERS
) -> list[Collected]:
    """The vectors of these names in what every client sends, none longer than `most`."""
    result = [Collected(most) for _ in keys]
    for client, report in enumerate(found):
        for key, one in zip(keys, result, strict=True):
            if isinstance(report, Drop):
                one.missing[client] = report.reason
            else:
                one.add(client, report.uplink.get(key))
    for one in result:
        one.settle(clients)
    return result


def longest(task: Task) -> int:
    """How many numbers a trait may have: as many as the model, and never few."""
    return max(task.layout.size, MOST_NUMBERS)


def without_negatives(trait: Trait, collected: Collected) -> dict[int, str]:
    """Who is missing, with those who tell less than nothing where something is counted or shared out."""
    rows, missing = collected.rows, collected.missing
    if rows is None or trait.kind not in ("counts", "shares"):
        return missing
    negative = dict.fromkeys(np.flatnonzero((rows < 0).any(axis=1)).tolist(), "sent a trait with numbers below zero")
    return dict(sorted({**missing, **negative}.items()))


def complete(trait: Trait, collected: Collected, classes: int, rng: np.random.Generator) -> Traits:
    """What came in, in the form that groupers take: fewer numbers where the trait says so, and nobody left out."""
    rows, missing = collected.rows, without_negatives(trait, collected)
    if rows is None or len(missing) == len(rows):
        raise RunFailed(f"no client could be described: {reasons(missing)}")
    clients = len(rows)
    known = np.setdiff1d(np.arange(clients), list(missing))
    told = rows[known] if missing else rows
    if len(told) > 1 and all(np.array_equal(row, told[0]) for row in told):
        raise BadInput(
            f"all {len(known)} clients have the same {type(trait).__name__}, so it does not tell who is unlike whom: "
            "train longer before describing, choose another trait, or group at random"
        )
    if trait.variance < 1:
        found = principal(told, trait.variance, standardise=trait.standardise)
    else:
        found = told.astype(np.float64)
    # A client of which nothing is known looks like somebody: so it fills a random place, within the same limits.
    places = np.zeros(clients, dtype=np.int64)
    places[known] = np.arange(len(known))
    places[list(missing)] = rng.integers(len(known), size=len(missing))
    return Traits(found[places], classes, tuple(missing.items()))


def reasons(missing: dict[int, str]) -> str:
    """Clients by reason, the same reason once."""
    by: dict[str, list[int]] = {}
    for client, reason in missing.items():
        by.setdefault(reason, []).append(client)
    return "; ".join(
        f"client{'s' if len(who) > 1 else ''} {', '.join(map(str, who[:10]))}{' …' if len(who) > 10 else ''}: {reason}"
        for reason, who in by.items()
    )


def principal(rows: NDArray[np.float32], variance: float, *, standardise: bool = False) -> Floats:
    """The rows in as few principal components as hold this share of the variance (FedSeq 2022, Section IV-B2)."""
    count, width = rows.shape
    if count > width:
        centred = deviations(rows, standardise=standardise)
        values, axes = np.linalg.eigh(centred.T @ centred)
        scores = centred @ axes
    else:
        # Of a few vectors with very many numbers the small matrix of inner products says the same: a classifier of
        # 690,000 weights is not decomposed whole, nor held twice.
        values, axes = np.linalg.eigh(inner_products(rows, standardise=standardise))
        scores = axes * np.sqrt(np.maximum(values, 0))
    kept = components(values[::-1], variance)
    scores = scores[:, ::-1][:, :kept]
    signs = np.sign(scores[np.abs(scores).argmax(axis=0), np.arange(kept)])  # a component has no sign of its own
    result: Floats = scores * signs
    return result


def components(values: Floats, variance: float) -> int:
    """How many of these variances, the largest first, it takes to hold the share."""
    shares = np.cumsum(np.maximum(values, 0))
    return min(int(np.searchsorted(shares, variance * shares[-1], side="right")) + 1, len(values))


def deviations(rows: NDArray[np.float32], *, standardise: bool = False) -> Floats:
    """From the mean over clients, in double precision; divided by the deviation over clients if asked for."""
    wide = rows.astype(np.float64)
    centred: Floats = wide - wide.mean(axis=0)
    if standardise:
        deviation = centred.std(axis=0)
        centred /= np.where(deviation > 0, deviation, 1.0)
    return centred


def inner_products(rows: NDArray[np.float32], *, standardise: bool = False, centre: bool = True) -> Floats:
    """Of every two rows (of their deviations from the mean, unless told otherwise), block after block of columns."""
    count, width = rows.shape
    step = max(BLOCK // count, 1)
    total = np.zeros((count, count))
    for start in range(0, width, step):
        piece = rows[:, start : start + step]
        block = deviations(piece, standardise=standardise) if centre else piece.astype(np.float64)
        total += block @ block.T
    return total


def similarity(rows: NDArray[np.float32]) -> Floats:
    """The cosine of every two rows: the similarity matrix of the pre-training analysis (FedSeq 2022, Section IV-B1)."""
    products = inner_products(rows, centre=False)
    lengths = np.sqrt(np.diagonal(products))
    result: Floats = products / np.outer(lengths, lengths)
    return result
