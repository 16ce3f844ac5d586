"""Measures of a grouping and of its costs, against sums written out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay import BadInput
from fedrelay.plans.growth import Logarithmic
from fedrelay.runs import measures

COUNTS = np.array([[8, 0, 0], [0, 4, 0], [0, 2, 4], [3, 3, 3]])


def test_groups_hold_what_their_clients_hold():
    assert measures.group_counts(COUNTS, [(0, 1), (2, 3)]).tolist() == [[8, 4, 0], [3, 5, 7]]


def test_the_balance_ratio_is_the_rarest_class_by_the_most_frequent():
    assert measures.balance_ratio(np.array([[8, 4, 0], [3, 5, 6], [2, 2, 2]])).tolist() == [0.0, 0.5, 1.0]


def test_covered_classes_are_a_share_of_all():
    assert measures.covered_classes(COUNTS).tolist() == [1 / 3, 1 / 3, 2 / 3, 1.0]


def kernel(c: int, d: int, width: float) -> float:
    """Gaussian, on unit vectors: classes that differ are at squared distance 2."""
    return math.exp(-(0.0 if c == d else 2.0) / (2 * width**2))


def mmd_by_hand(p: np.ndarray, q: np.ndarray, width: float) -> float:
    """Eq. 14 as it is printed: three expectations over pairs of classes."""
    pairs = list(itertools.product(range(len(p)), repeat=2))
    within_p = sum(p[c] * p[d] * kernel(c, d, width) for c, d in pairs)
    across = sum(p[c] * q[d] * kernel(c, d, width) for c, d in pairs)
    within_q = sum(q[c] * q[d] * kernel(c, d, width) for c, d in pairs)
    return within_p - 2 * across + within_q


@pytest.mark.parametrize("width", [0.5, 1.0, 3.0])
def test_cpd_is_the_squared_mean_discrepancy_of_equation_14(width):
    mixes = COUNTS / COUNTS.sum(axis=1, keepdims=True)
    expected = [mmd_by_hand(mixes[a], mixes[b], width) for a, b in itertools.combinations(range(4), 2)]
    np.testing.assert_allclose(measures.class_distances(COUNTS, width), expected, atol=1e-12)


@given(st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any), min_size=2, max_size=6))
def test_cpd_does_not_depend_on_how_many_examples_there_are_and_is_never_negative(rows):
    counts = np.array(rows)
    found = measures.class_distances(counts)
    assert (found >= 0).all()
    np.testing.assert_allclose(measures.class_distances(counts * 7), found, atol=1e-12)


def test_a_group_without_examples_has_no_mix():
    for measure in (measures.class_distances, measures.balance_ratio):
        with pytest.raises(BadInput, match="row 1 of the label counts has no examples"):
            measure(np.array([[1, 2], [0, 0]]))


def test_costs_of_the_papers_own_setting_follow_equations_15_to_17():
    # K = 368, n = 226, e = 1, κ = 0.3, f = Log(2, 10), R = 34, the model and the machine of Section 4.1
    growth, rounds = Logarithmic(beta=10, alpha=2), range(1, 35)
    groups = [growth(round) for round in rounds]
    computing = sum(96e6 / 567e9 * 226 * 1 * 368 / min(368, f) + 6.3e6 / 567e9 * (0.3 * f - 1) for f in groups)
    found = measures.computing_seconds([226 * 368 / min(368, f) for f in groups], [0.3 * f for f in groups])
    assert found == pytest.approx(computing)
    visits = 0.3 * 368 * 34
    assert measures.communication_seconds(visits, 25.2e6) == pytest.approx(8 * visits * 25.2e6 * 2 / 567e6)
    assert measures.traffic_bytes(visits, 25.2e6) == pytest.approx(2 * 0.3 * 368 * 25.2e6 * 34)


def test_a_slower_machine_takes_longer_in_proportion():
    slow = measures.Machine(operations=567e8, inbound=567e5, outbound=567e6)
    assert measures.computing_seconds([100], [3], machine=slow) == pytest.approx(
        10 * measures.computing_seconds([100], [3])
    )
    assert measures.communication_seconds(10, 1e6, slow) == pytest.approx(8e7 * (1 / 567e5 + 1 / 567e6))
    with pytest.raises(BadInput, match="operations must be above 0"):
        measures.Machine(operations=0)


def test_parallelism_is_the_mean_number_of_groups():
    assert measures.parallelism([10, 20, 60]) == 30
    assert measures.parallelism([]) is None


def test_speed_up_is_that_of_the_papers_table():
    """FedSeq 2022, Table II, CIFAR-10, α = 0: FedAvg took 4036 and 7649 rounds to 70 and 80 %, never got to 90 %."""
    for method, printed in {(594, 991): (6.79, 7.72), (2229, 3914): (1.81, 1.95), (345, 581): (11.7, 13.17)}.items():
        found = [measures.speed_up(rounds, base) for rounds, base in zip(method, (4036, 7649), strict=True)]
        assert found == [pytest.approx(each, abs=0.01) for each in printed]
    assert measures.speed_up(2047, None) is None
    assert measures.speed_up(None, 4036) is None


@pytest.mark.parametrize(
    ("mean", "fedseq", "printed"), [(104, 50, 2.09), (113, 50, 2.26), (383, 175, 2.19), (5966, 1900, 3.14)]
)
def test_the_parallelism_ratio_is_that_of_the_journals_table_5(mean, fedseq, printed):
    """The paper's mean numbers of groups are rounded to whole ones."""
    assert measures.parallelism_ratio(mean, fedseq) == pytest.approx(printed, abs=0.5 / fedseq + 0.005)
    assert measures.parallelism_ratio(None, fedseq) is None


def test_a_rolling_mean_takes_what_the_last_rounds_have():
    points = [(1, 4.0), (2, 2.0), (5, 6.0), (6, 0.0), (8, 3.0)]
    assert measures.rolling_mean(points, 1) == points
    assert measures.rolling_mean(points, 3) == [(1, 4.0), (2, 3.0), (5, 6.0), (6, 3.0), (8, 1.5)]
    assert measures.rolling_mean(points, 50) == [(1, 4.0), (2, 3.0), (5, 4.0), (6, 3.0), (8, 3.0)]
    with pytest.raises(BadInput, match="rounds must be at least 1"):
        measures.rolling_mean(points, 0)
