"""Names for the works of a method, the same ones at the server and at every client: no work is ever sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from fedrelay.plans.sampling.target import Census
from fedrelay.types import Algorithm, Trait, Work
from fedrelay.visits.own_test import own_test_of

UPDATE, TEST = "update", "test"


def works_of(algorithm: Algorithm) -> dict[str, Work]:
    """All that clients can be asked to do by this method: its update, a test of the model on what they have held out,
    and the works in its plan by their place."""
    always = {UPDATE: algorithm.update, TEST: own_test_of(algorithm.update), "census": Census()}
    planned, told = _inside(algorithm.plan, "plan"), algorithm.update.describing
    return {**always, **{name: told(work) if isinstance(work, Trait) else work for name, work in planned}}


def _inside(part: object, place: str) -> Iterator[tuple[str, Work]]:
    if isinstance(part, Work):
        yield place, part
    elif isinstance(part, tuple):
        for number, each in enumerate(part):
            yield from _inside(each, f"{place}.{number}")
    elif is_dataclass(part) and not isinstance(part, type):
        for item in fields(part):
            yield from _inside(getattr(part, item.name), f"{place}.{item.name}")
