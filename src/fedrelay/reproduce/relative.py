"""A column that sets rows beside one of them: how many times it, how much less, how much more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedrelay.config import schema
from fedrelay.errors import BadInput
from fedrelay.reproduce.finished import Finished, Reading
from fedrelay.reproduce.measures import Measure


def times(own: float, other: float) -> float | None:
    return own / other if other else None


def less(own: float, other: float) -> float | None:
    return 1 - own / other if other else None


def more(own: float, other: float) -> float | None:
    return own - other


RELATIONS: dict[str, Callable[[float, float], float | None]] = {"per": times, "less_than": less, "minus": more}
"""By the key that names the other row in a column."""


@dataclass(frozen=True)
class Relative:
    """A measure of every row, set beside the same of another row, seed by seed."""

    measure: Measure
    row: str
    relation: Callable[[float, float], float | None]

    def __call__(self, found: Finished, row: str, /) -> list[Reading]:
        both = zip(self.measure(found, row), self.measure(found, self.row), strict=False)
        return [
            Reading(None if own.value is None or other.value is None else self.relation(own.value, other.value))
            for own, other in both
        ]


def set_beside(measure: Measure, values: Mapping[str, Any], where: str) -> Measure:
    """The measure, beside that of another row if the column says one."""
    said = [key for key in RELATIONS if key in values]
    if len(said) > 1:
        raise BadInput(f"{where}: say one of {', '.join(RELATIONS)}, not {' and '.join(said)}")
    if not said:
        return measure
    row = schema.convert(values[said[0]], str, f"{where}.{said[0]}")
    return Relative(measure, row, RELATIONS[said[0]])
