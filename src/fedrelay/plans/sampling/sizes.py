"""What samplers need of all sizes together, found once: a round must not take longer because there are more clients."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import NamedTuple

from fedrelay.errors import BadInput


class Sums(NamedTuple):
    """Of the sizes of all candidates."""

    sizes: tuple[int, ...]
    """The sizes themselves, as Python's whole numbers, which do not overflow as an array's do."""
    total: int
    squares: int
    smallest: int
    largest: int


_KNOWN: dict[int, tuple[Sequence[int], Sums]] = {}


def sums(sizes: Sequence[int]) -> Sums:
    """The sums; those of the last few tuples are kept, and known again by being the same object."""
    known = _KNOWN.get(id(sizes))
    if known is not None and known[0] is sizes:
        return known[1]
    whole = whole_numbers(sizes)
    squares = sum(size * size for size in whole)
    found = Sums(whole, sum(whole), squares, min(whole, default=0), max(whole, default=0))
    if isinstance(sizes, tuple):  # it cannot change
        while len(_KNOWN) >= 8:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[id(sizes)] = sizes, found
    return found


def whole_numbers(sizes: Sequence[int]) -> tuple[int, ...]:
    """Whatever holds whole numbers (a list, an array) as a tuple of them; anything else is refused."""
    if isinstance(sizes, tuple) and all(type(size) is int for size in sizes):
        return sizes
    try:
        return tuple(map(index, sizes))
    except TypeError:
        raise BadInput(f"sizes must be whole numbers of examples, not {str(sizes)[:60]}") from None
