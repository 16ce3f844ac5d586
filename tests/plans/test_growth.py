"""How the number of groups grows: Eqs. 1-3 of FedGSP against a table that was computed outside this project."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay import BadInput
from fedrelay.plans.growth import Exponential, Fixed, Linear, Logarithmic

ROUNDS = (1, 2, 3, 5, 10, 20, 34, 50, 100)
TABLE = [
    (Linear(beta=3, alpha=0.5), (3, 3, 6, 9, 15, 30, 51, 75, 150)),
    (Logarithmic(beta=10, alpha=2), (10, 20, 30, 40, 50, 60, 80, 80, 100)),
    (Exponential(beta=2, alpha=0.1), (2, 2, 2, 2, 4, 12, 46, 212, 25054)),
]


@pytest.mark.parametrize(("growth", "expected"), TABLE)
def test_growth_follows_the_table_of_the_equations(growth, expected):
    assert tuple(growth(round) for round in ROUNDS) == expected


def test_a_constant_number_of_groups_stays():
    assert {Fixed(7)(round) for round in ROUNDS} == {7}


def test_a_decimal_rate_means_the_number_and_not_its_rounding_in_binary():
    # 0.07 * 100 is 7.000000000000001 in binary and 0.29 * 100 is 28.999999999999996: both mean whole numbers
    assert Linear(beta=1, alpha=0.29)(101) == 30
    assert Linear(beta=1, alpha=0.07)(101) == 8
    assert [Exponential(beta=1, alpha=1.0)(round) for round in range(1, 12)] == [2**r for r in range(11)]


def test_exponential_growth_does_not_overflow():
    assert Exponential(beta=10, alpha=0.5)(10**9) > 10**12


@given(
    kind=st.sampled_from([Linear, Logarithmic, Exponential]),
    beta=st.integers(1, 50),
    more=st.integers(0, 500),
    by=st.integers(2, 2000),
)
def test_the_wished_number_of_groups_is_there_at_the_wished_round_and_not_exceeded(kind, beta, more, by):
    growth = kind(beta=beta, reach=beta + more, by=by)
    assert growth(by) == growth(by + 1) == beta + more
    # one step less must not do: the rate is the smallest that gets there
    slower = kind(beta=beta, alpha=growth.rate * 0.99)
    assert slower(by) < beta + more or more == 0


@given(
    kind=st.sampled_from([Linear, Logarithmic, Exponential]),
    beta=st.integers(1, 50),
    alpha=st.floats(0, 3),
    round=st.integers(1, 500),
)
def test_growth_starts_at_beta_never_shrinks_and_moves_in_steps_of_beta(kind, beta, alpha, round):
    growth = kind(beta=beta, alpha=alpha)
    assert growth(1) == beta
    assert growth(round) <= growth(round + 1)
    assert growth(round) % beta == 0


def test_rates_from_the_wished_number_are_those_of_the_closed_forms():
    assert Linear(beta=5, reach=100, by=39).rate == pytest.approx(19 / 38)
    assert Logarithmic(beta=5, reach=100, by=200).rate == pytest.approx(19 / math.log(200))
    assert Exponential(beta=5, reach=100, by=200).rate == pytest.approx(20 ** (1 / 199) - 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beta": 0, "alpha": 1.0}, "beta must be at least 1"),
        ({"beta": 5, "alpha": -0.1}, "alpha must be at least 0"),
        ({"beta": 5, "alpha": math.nan}, "alpha must be"),
        ({"beta": 5}, "growth needs a rate"),
        ({"beta": 5, "reach": 50}, "growth needs a rate"),
        ({"beta": 5, "alpha": 1.0, "reach": 50, "by": 100}, "not both"),
        ({"beta": 5, "reach": 4, "by": 100}, "reach must be at least 5"),
        ({"beta": 5, "reach": 50, "by": 1}, "by must be at least 2"),
    ],
)
@pytest.mark.parametrize("kind", [Linear, Logarithmic, Exponential])
def test_a_growth_that_cannot_be_is_refused(kind, arguments, message):
    with pytest.raises(BadInput, match=message):
        kind(**arguments)
