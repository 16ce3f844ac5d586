"""A column that sets rows beside one of them: how many times it, how much less, how much more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedrelay.config import schema
from fedrelay.errors import BadInput
from fedrelay.studies.reproduce.finished import Finished, Reading, by_seed
from fedrelay.studies.reproduce.measures import Measure, SpeedUp, To
from fedrelay.studies.reproduce.round_measures import AtRound


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
        both = by_seed([self.measure(found, row), self.measure(found, self.row)])
        return [Reading(self.of(own.value, other.value), seed=own.seed) for own, other in both]

    def of(self, own: float | None, other: float | None) -> float | None:
        return None if own is None or other is None else self.relation(own, other)


def set_beside(measure: Measure, values: Mapping[str, Any], where: str) -> Measure:
    """The measure, beside that of another row if the column says one."""
    said = [key for key in RELATIONS if key in values]
    if len(said) > 1:
        raise BadInput(f"{where}: say one of {', '.join(RELATIONS)}, not {' and '.join(said)}")
    if not said:
        return measure
    row = schema.convert(values[said[0]], str, f"{where}.{said[0]}")
    return Relative(measure, row, RELATIONS[said[0]])


def other_rows(measure: Measure) -> dict[str, str]:
    """The rows that a measure sets others beside, by the key that names each."""
    if isinstance(measure, Relative):
        key = next(key for key, relation in RELATIONS.items() if relation is measure.relation)
        return {key: measure.row, **other_rows(measure.measure)}
    return {"against": measure.against} if isinstance(measure, SpeedUp) else {}


def stays(measure: Measure) -> bool:
    """Whether a value that is there is the same whatever rounds follow: what was reached was reached."""
    return stays(measure.measure) if isinstance(measure, Relative) else isinstance(measure, To | SpeedUp | AtRound)
