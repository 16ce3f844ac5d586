"""How far clients are from one another by each of their traits (FedSeq journal 2024, Fig. 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import BadInput
from fedrelay.plans import DISTANCES, Traits
from fedrelay.plans.grouping.distances import Floats
from fedrelay.types import Trait

Counts = NDArray[np.int64]
Shown: TypeAlias = int | tuple[int, ...] | tuple[str, ...]
"""Whose distances are drawn: so many, these clients, or all clients whose commonest class is one of these."""

DIGITS = 4
"""Of a distance in a picture."""
USUAL = "cosine"
NATURAL = {"information": "normalised_cosine"}
"""The distance of a kind of trait where it is not the usual one: Task2Vec has its own (Achille et al. 2019)."""


@dataclass(frozen=True)
class Apart:
    """The distances of some clients by one trait, in the order in which they are drawn."""

    trait: str
    distance: str
    clients: tuple[str, ...]
    """Each by its number and its commonest class."""
    matrix: Floats
    """One row for every client."""
    row: int
    """The place of the client whose distances are drawn on their own."""

    def as_json(self) -> dict[str, Any]:
        """For results.json."""
        return {**asdict(self), "matrix": self.matrix.round(DIGITS).tolist()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Apart:
        """Back from results.json."""
        matrix = np.asarray(found["matrix"], dtype=np.float64)
        return cls(**{**found, "clients": tuple(found["clients"]), "matrix": matrix})


def distances(
    traits: Mapping[str, Trait],
    known: Mapping[str, Traits],
    clients: Sequence[int],
    commonest: Sequence[str],
    one: int | None,
) -> tuple[Apart, ...]:
    """By every trait, between these clients without those that could not be described; `one` of them (the first,
    unless it is said) is the one that is drawn on its own."""
    lost = {client for found in known.values() for client, _ in found.missing}
    kept = tuple(client for client in clients if client not in lost)
    if one is not None and one not in kept:
        raise BadInput(f"[groups].client: client {one} is not among those that are shown: {listed(kept)}")
    if len(kept) < 2:
        return ()
    row = 0 if one is None else kept.index(one)
    names = tuple(f"client {client} ({commonest[client]})" for client in kept)
    found = []
    for name, told in known.items():
        distance = NATURAL.get(traits[name].kind, USUAL)
        found.append(Apart(name, distance, names, between(told.rows[list(kept)], distance), row))
    return tuple(found)


def between(rows: Floats, distance: str) -> Floats:
    """How unlike every two of these rows are."""
    measure = DISTANCES[distance]()
    ready = measure.ready(rows)
    return np.stack([measure(ready, centre) for centre in ready])


def chosen(shown: Shown, counts: Counts, class_names: Sequence[str]) -> list[int]:
    """The clients that are meant, from what every client has of each class: the first so many, those of one class side
    by side; these, in this order; or those of the classes of these names, class after class."""
    commonest = counts.argmax(axis=1)
    if isinstance(shown, int):
        return sorted(range(min(shown, len(counts))), key=lambda client: (commonest[client], client))
    found: list[int] = []
    for item in shown:
        if isinstance(item, int):
            if not 0 <= item < len(counts):
                raise BadInput(f"[groups].clients: there is no client {item}: there are 0 to {len(counts) - 1}")
            found.append(item)
        else:
            number = class_of(item, class_names, counts.shape[1])
            found += np.flatnonzero(commonest == number).tolist()
    return list(dict.fromkeys(found))


def class_of(name: str, class_names: Sequence[str], classes: int) -> int:
    """The number of a class that has this name."""
    names = named_classes(class_names, classes)
    if name not in names:
        raise BadInput(f"[groups].clients: there is no class {name!r}: there is {listed(names)}")
    return names.index(name)


def named_classes(class_names: Sequence[str], classes: int) -> list[str]:
    """Classes by name; those without one by number."""
    return list(class_names) or [str(number) for number in range(classes)]


def listed(items: Sequence[object]) -> str:
    """The first few."""
    return ", ".join(map(str, items[:10])) + (" …" if len(items) > 10 else "")
