"""Sequences that are as long as there are clients, in arrays: what tuples are, at a few bytes a client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

BLOCK = 1 << 16
"""So many are turned into Python's objects at a time."""
SHOWN = 10
"""So many are printed."""


def narrow(values: ArrayLike) -> Array:
    """Whole numbers in four bytes each where they fit, else in eight; those that do not fit there are an error."""
    array = np.asarray(values)
    if array.dtype == np.int32:
        return array
    small = not array.size or (array.min() >= -(2**31) and array.max() < 2**31)
    if not small and array.max() >= 2**63:  # NumPy would make them negative
        raise OverflowError(f"{array.max()} does not fit into eight bytes")
    return array.astype(np.int32 if small else np.int64, copy=False)


class Long:
    """Makes a sequence equal to any that holds the same, and prints it as a tuple, as far as that can be read."""

    def __eq__(self, other: object) -> bool:
        own = cast("Sequence[Any]", self)
        if own is other:
            return True
        if not isinstance(other, Sequence) or isinstance(other, str) or len(own) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(own, other, strict=True))

    def __hash__(self) -> int:
        own = cast("Sequence[Any]", self)
        # Of a very long one only the beginning, or what a crafted file says is long would take memory to be hashed.
        return hash(tuple(own)) if len(own) <= BLOCK else hash((len(own), *(own[place] for place in range(SHOWN))))

    def __repr__(self) -> str:
        own = cast("Sequence[Any]", self)
        if len(own) <= SHOWN:
            return repr(tuple(own))
        return f"({', '.join(repr(own[place]) for place in range(SHOWN))}, … {len(own):,} in all)"


@dataclass(frozen=True, eq=False, repr=False)
class Integers(Long, Sequence[int]):
    """Whole numbers that do not change."""

    numbers: torch.Tensor

    @classmethod
    def of(cls, values: ArrayLike | Sequence[int]) -> Integers:
        """Those of any sequence; the same object if they are such already."""
        return values if isinstance(values, Integers) else cls(torch.from_numpy(narrow(values)))

    @cached_property
    def array(self) -> Array:
        """As NumPy sees them, without a copy: not to be written to."""
        return self.numbers.numpy()

    def __getstate__(self) -> dict[str, torch.Tensor]:
        return {"numbers": self.numbers}

    @property
    def total(self) -> int:
        """Their sum, which does not overflow."""
        return int(self.array.sum(dtype=np.int64)) if self.numbers.dtype == torch.int32 else sum(self)

    def __len__(self) -> int:
        return self.numbers.shape[0]

    @overload
    def __getitem__(self, place: int, /) -> int: ...
    @overload
    def __getitem__(self, place: slice, /) -> Integers: ...
    def __getitem__(self, place: int | slice, /) -> int | Integers:
        return Integers(self.numbers[place]) if isinstance(place, slice) else int(self.array[place])

    def __iter__(self) -> Iterator[int]:
        for start in range(0, len(self), BLOCK):
            yield from self.array[start : start + BLOCK].tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Integers):
            return self is other or np.array_equal(self.array, other.array)
        return super().__eq__(other)

    __hash__ = Long.__hash__


@dataclass(frozen=True, eq=False, repr=False)
class Numbered(Long, Sequence[str]):
    """A word with a number, from 0 on: "client 0", "client 1", …"""

    word: str
    length: int

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, place: int, /) -> str: ...
    @overload
    def __getitem__(self, place: slice, /) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice, /) -> str | tuple[str, ...]:
        number = range(self.length)[place]
        return f"{self.word} {number}" if isinstance(number, int) else tuple(f"{self.word} {one}" for one in number)
