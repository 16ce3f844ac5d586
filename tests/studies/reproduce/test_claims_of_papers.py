"""What papers conclude is so in their own numbers, where they print them."""

from __future__ import annotations

import math

import pytest

from fedrelay.studies.reproduce import library
from fedrelay.studies.reproduce.beside import Cell, verdict_of
from fedrelay.studies.reproduce.item import Printed

CLAIMS = [
    pytest.param(item, claim, id=f"{name} {number}")
    for name in library.names()
    for item in library.wanted(name)
    for number, claim in enumerate(item.claims, 1)
]


def as_ours(printed: Printed | None) -> Cell:
    """The paper's number in our place; what it never reached lies beyond everything."""
    if printed is None:
        return Cell()
    return Cell(beyond=math.inf) if printed.value is None else Cell(ours=printed.value)


@pytest.mark.parametrize(("item", "claim"), CLAIMS)
def test_a_claim_does_not_contradict_the_numbers_that_the_paper_prints(item, claim):
    printed = [item.printed.get(place.panel, {}).get(place.row, {}).get(claim.column) for place in claim.places]
    assert verdict_of(claim, [as_ours(one) for one in printed]) != "not held"
