"""What a sampler is, and the three moments at which a plan uses one: at the start, before and after a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from operator import index
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from fedrelay.errors import BadInput, within
from fedrelay.plans.grouping.groups import Groups
from fedrelay.system.sequences import Integers
from fedrelay.types import Outcome, Survey, Tree

T = TypeVar("T")
NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw: the index of a client or group, and the weight of its chain in the merge (None: by examples)."""

    index: int
    weight: float | None = None


class Distributions(Protocol):
    """What one round draws from, with its closed forms."""

    def draw(self, rng: np.random.Generator) -> list[Draw]:
        """Nobody twice: who was drawn again counts more instead."""
        ...

    @property
    def distinct(self) -> float:
        """How many different candidates are drawn in expectation: the sum of their chances."""
        ...

    @property
    def variance(self) -> float | None:
        """E Σ (weight − p)² over all candidates: for an unbiased scheme the sum of the variances of the weights. None
        where there is no closed form."""
        ...


class Sampler(ABC):
    """Decides which `count` of the candidates (clients or groups, of these sizes) head chains. A frozen dataclass.

    One that knows more than sizes keeps it in a memo from round to round.
    """

    @abstractmethod
    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Distributions:
        """What is drawn from."""

    def init(self, survey: Survey, /) -> Tree:
        """What is known of the clients before the first round."""
        return {}

    def grown(self, memo: Tree, survey: Survey, /) -> Tree:
        """The memo when clients have joined since: as it was, unless the sampler asks clients."""
        return memo

    def begin(self, memo: Tree, groups: Groups, /) -> tuple[Tree, Future[Any] | None]:
        """Before a round among these groups: the memo that `distributions` needs, and what is computed beside the round
        until `learn`."""
        return memo, None

    def learn(self, memo: Tree, outcomes: Sequence[Outcome], coming: Future[Any] | None, /) -> Tree:
        """After the round: what its outcomes teach, and what was computed beside it, as plain data."""
        return memo


@dataclass(frozen=True)
class Drawn:
    """The draws of a round, what the sampler remembers of it, and what there is to say of it in the record."""

    memo: Tree
    draws: list[Draw]
    said: Tree
    coming: Mapping[str, Future[Any]] = field(default_factory=dict)


def check(sampler: object) -> None:
    """Refuse what is no sampler: a name, or a class where an object is wanted."""
    if not isinstance(sampler, Sampler):
        raise BadInput(f"sampler must be a sampler, such as BySize(), not {sampler!r}")


def draw(
    sampler: Sampler, memo: Tree, groups: Groups, sizes: Sequence[int], count: int, rng: np.random.Generator
) -> Drawn:
    """Draw among these groups (of these sizes)."""
    memo, coming = sampler.begin(memo, groups)
    distributions = sampler.distributions(sizes, count, memo)
    draws = distributions.draw(rng)
    measured = {"distinct": len(draws), "spread": weight_variance(draws, sizes)}
    expected = {"expected_distinct": distributions.distinct, "expected_spread": distributions.variance}
    return Drawn(memo, draws, measured | expected, {} if coming is None else {"sampler": coming})


def weight_variance(drawn: Sequence[Draw], sizes: Sequence[int]) -> float:
    """Σ (weight − p)² over all candidates: how far this round's weights are from those of full participation."""
    known = sums(sizes)
    those = known.sizes.array[[one.index for one in drawn]].tolist()
    found, held = known.squares / known.total**2, sum(those)  # found: if nobody were drawn
    for one, size in zip(drawn, those, strict=True):
        p = size / known.total
        weight = size / held if one.weight is None else one.weight
        found += (weight - p) ** 2 - p**2
    return found


FEW = 20
"""With so few clients everybody takes part in every round, unless the user says otherwise."""


@dataclass(frozen=True)
class Usually:
    """The fraction that nobody has given: this one, and everybody where there are few clients."""

    fraction: float = 0.2

    def among(self, clients: int) -> float:
        return 1.0 if clients <= FEW else self.fraction


def check_fraction(fraction: float | Usually) -> None:
    """Refuse what is no share of the clients."""
    within("fraction", fraction.fraction if isinstance(fraction, Usually) else fraction, above=0, most=1)


def taking_part(fraction: float | Usually, groups: Groups) -> int:
    """How many of these groups take part. It is the number of clients that is few, not that of groups, so that methods
    with groups and without have the same fraction unless they are told."""
    if isinstance(fraction, Usually):
        fraction = fraction.among(len(groups) if len(groups) > FEW else sum(map(len, groups)))
    return share(fraction, len(groups))


def share(fraction: float, total: int) -> int:
    """max(⌊fraction · total⌋, 1): how many of `total` take part."""
    # The small term keeps 0.29 * 100 at 29: the papers mean the number, not its rounding in binary.
    return max(int(fraction * total + 1e-9), 1)


def checked(sizes: Sequence[int], count: int) -> Integers:
    """The sizes as whole numbers; what no scheme can draw from is refused."""
    if not isinstance(count, Integral):
        raise BadInput(f"the number of draws must be a whole number, not {count!r}")
    if not len(sizes):
        raise BadInput("there are no clients or groups to draw from: give the size of at least one")
    if count < 1:
        raise BadInput(f"the number of draws must be at least 1, not {count}: 1 to {len(sizes)} works")
    if count > len(sizes):
        raise BadInput(f"{count} draws from {len(sizes)} clients or groups: at most {len(sizes)} works")
    known = sums(sizes)
    if known.smallest < 1:
        place = int(np.argmax(known.sizes.array < 1))
        raise BadInput(f"client or group {place} has no examples, so it cannot be drawn by size: leave it out")
    check_total(known.total)
    return known.sizes


def check_total(total: int) -> None:
    if total >= 2**63:
        raise BadInput(f"the sizes add up to {total} examples: below 2^63 works")


class Sums(NamedTuple):
    """What draws need of the sizes of all candidates together, found once: a round must not take longer because there
    are more clients."""

    sizes: Integers
    total: int
    squares: int
    smallest: int
    largest: int


_KNOWN: dict[tuple[int, Hashable], tuple[Sequence[int], Any]] = {}
MOST_KNOWN = 8


def once(sizes: Sequence[int], what: Hashable, find: Callable[[], T]) -> T:
    """What is found of sizes that cannot change; of the last few it is kept, and they are known again by being the same
    object."""
    if not isinstance(sizes, tuple | Integers):
        return find()
    known = _KNOWN.get((id(sizes), what))
    if known is None or known[0] is not sizes:
        while len(_KNOWN) >= MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
        known = _KNOWN[id(sizes), what] = sizes, find()
    found: T = known[1]
    return found


def sums(sizes: Sequence[int]) -> Sums:
    """The sums over all sizes."""
    return once(sizes, "sums", partial(_sums, sizes))


def _sums(sizes: Sequence[int]) -> Sums:
    whole = whole_numbers(sizes)
    array = whole.array
    smallest, largest = (int(array.min()), int(array.max())) if len(whole) else (0, 0)
    fits = max(abs(smallest), largest) ** 2 * len(whole) < 2**63
    squares = int(np.square(array, dtype=np.int64).sum()) if fits else sum(size * size for size in whole)
    return Sums(whole, whole.total, squares, smallest, largest)


def whole_numbers(sizes: Sequence[int]) -> Integers:
    """Whatever holds whole numbers (a list, an array); anything else is refused."""
    if isinstance(sizes, Integers):
        return sizes
    try:
        return Integers.of(
            sizes if isinstance(sizes, np.ndarray) and sizes.dtype.kind in "iu" else [*map(index, sizes)]
        )
    except (TypeError, OverflowError) as error:
        if isinstance(error, OverflowError):
            check_total(sum(map(index, sizes)))
        raise BadInput(f"sizes must be whole numbers of examples below 2^63, not {str(sizes)[:60]}") from None
