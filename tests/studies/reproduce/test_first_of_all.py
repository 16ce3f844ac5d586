"""Claims that one row is ahead of all others: each of the others counts, and by how much."""

from __future__ import annotations

import pytest

from fedrelay.studies.reproduce.beside import Cell, unsure, verdict_of
from fedrelay.studies.reproduce.item import Claim, Place


def claim(order: str, by: float = 0.0) -> Claim:
    return Claim("", "accuracy", order, tuple(Place("", row) for row in "abc"), by=by)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("order", "values", "verdict"),
    [
        ("highest", (9, 3, 8), "held"),  # no order among the others
        ("highest", (9, 3, 9), "not held"),
        ("lowest", (2, 8, 3), "held"),
        ("lowest", (2, 8, 1), "not held"),
        ("highest", (9, 3, None), "not tried"),
        ("highest", (2, 3, None), "not held"),
    ],
)
def test_the_first_is_held_against_every_other(order, values, verdict):
    assert verdict_of(claim(order), [Cell(ours=value) for value in values]) == verdict


def test_being_ahead_by_so_much_takes_more_than_that():
    cells = [Cell(ours=value) for value in (80.28, 73.59, 71.31)]  # FedELMY 2024, Table 1: over 6 points
    assert verdict_of(claim("highest", 6), cells) == "held"
    assert verdict_of(claim("highest", 6.7), cells) == "not held"


def test_a_value_that_was_never_reached_is_not_ahead_by_any_number():
    cells = [Cell(ours=100), Cell(beyond=500), Cell(ours=700)]
    assert verdict_of(claim("lowest"), cells) == "held"
    assert verdict_of(claim("lowest", 10), cells) == "not tried"


def test_the_first_is_unsure_where_one_other_is_within_the_spread():
    far, near = Cell(ours=1.0, deviation=0.1), Cell(ours=8.9, deviation=0.1)
    assert unsure(claim("highest"), [Cell(ours=9.0, deviation=0.1), far, near])
    assert not unsure(claim("highest"), [Cell(ours=9.0, deviation=0.1), far, far])
