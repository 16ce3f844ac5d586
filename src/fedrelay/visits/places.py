"""Places in a vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from fedrelay.types import Vector

Places: TypeAlias = Sequence[slice]
"""Where in a vector."""


def without(vector: Vector, places: Places) -> Vector:
    """The vector with zeros at these places."""
    public = vector.clone()
    for place in places:
        public[place] = 0
    return public


def between(places: Places, size: int) -> tuple[slice, ...]:
    """The places among the first `size` numbers that are not these."""
    found, start = [], 0
    for place in [*places, slice(size, size)]:
        stop = min(place.start, size)
        if stop > start:
            found.append(slice(start, stop))
        start = max(start, place.stop)
    return tuple(found)
