"""Formulas that papers print in place of numbers."""

from __future__ import annotations

import pytest

from fedrelay.errors import BadInput
from fedrelay.studies.reproduce.formulas import value_of

SYMBOLS = {"K": 500.0, "C": 0.2, "N_S": 50.0}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("C*K", 100),
        ("(K/N_S - 1)*C*N_S", 90),  # FedSeq journal 2024, Eq. 7: C K - C N_S
        ("C*(N_S + K)", 110),
        ("2", 2),
        ("2*3*C*K", 600),  # not the number just above it that binary has
    ],
)
def test_a_formula_comes_to_what_its_symbols_make_of_it(formula, value):
    assert value_of(formula, SYMBOLS) == value


@pytest.mark.parametrize("formula", ["C K", "__import__('os')", "K**K", "K if C else 0", "'K'", "(" * 300, "True", ""])
def test_anything_else_is_refused(formula):
    with pytest.raises(BadInput, match="is no formula"):
        value_of(formula, SYMBOLS)


def test_a_symbol_without_a_value_and_a_division_by_zero_are_refused():
    with pytest.raises(BadInput, match="does not say what T is; it has K, C, N_S"):
        value_of("T*K", SYMBOLS)
    with pytest.raises(BadInput, match="divides by zero"):
        value_of("K/0", SYMBOLS)


def test_numbers_without_an_end_are_refused():
    with pytest.raises(BadInput, match="inf is no number to reckon with"):
        value_of("1e999", SYMBOLS)
    with pytest.raises(BadInput, match="more than a number can hold"):
        value_of("K*K", {"K": 1e300})
