"""Whether a trait sees that some kinds of clients are more alike than others (FedSeq journal 2024, Fig. 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrelay.studies.groupings.apart import Apart

KINDS = 3


def kinds_apart(distances: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """By trait: how far clients of one kind are from those of a second, against their distance from a third.

    It is 1 where the trait sees no likeness between kinds, which are thirds of the clients that are drawn, in their
    order: aquatic mammals, fishes and flowers, say.
    """
    return {one.trait: against(one) for one in map(Apart.from_json, distances)}


def against(one: Apart) -> float | None:
    """From the first third of the clients to the second, by that to the last."""
    first, second, third = np.array_split(np.arange(len(one.clients)), KINDS)
    near, far = (one.matrix[np.ix_(first, other)] for other in (second, third))
    return float(near.mean() / far.mean()) if far.size and far.mean() > 0 else None
