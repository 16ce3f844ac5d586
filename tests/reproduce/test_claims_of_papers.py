"""What papers conclude is so in their own numbers, where they print them."""

from __future__ import annotations

import pytest

from fedrelay.reproduce import library
from fedrelay.reproduce.beside import Cell, verdict_of

CLAIMS = [
    pytest.param(item, claim, id=f"{name} {number}")
    for name in library.names()
    if name.partition("/")[0] in ("fedseq-journal", "fedgsp")
    for item in library.wanted(name)
    for number, claim in enumerate(item.claims, 1)
]


@pytest.mark.parametrize(("item", "claim"), CLAIMS)
def test_a_claim_does_not_contradict_the_numbers_that_the_paper_prints(item, claim):
    printed = [item.printed.get(place.panel, {}).get(place.row, {}).get(claim.column) for place in claim.places]
    cells = [Cell(ours=None if one is None else one.value) for one in printed]
    never = [one is not None and one.value is None for one in printed]
    if not any(never):
        assert verdict_of(claim, cells) != "not held"
