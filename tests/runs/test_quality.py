"""Spread, confusion and calibration, beside numbers done by hand and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from fedrelay.runs.quality import Bin, Spread, calibration, confusion


def test_percentiles_of_eleven_clients_are_those_in_the_second_sixth_and_tenth_place():
    spread = Spread.of([0.5, 0.0, 0.1, 0.9, 0.2, 0.3, 1.0, 0.4, 0.6, 0.8, 0.7], higher_is_better=True)
    assert spread is not None
    assert (spread.clients, spread.worst, spread.best) == (11, 0.0, 1.0)
    assert (spread.p10, spread.p50, spread.p90) == pytest.approx((0.1, 0.5, 0.9))
    assert spread.mean == pytest.approx(0.5)
    assert spread.deviation == pytest.approx(0.1 * 10**0.5)  # (n² - 1) / 12 of 0, 1, …, 10 is 10


def test_a_percentile_between_two_clients_lies_on_the_line_between_them():
    spread = Spread.of([1.0, 2.0], higher_is_better=True)
    assert spread is not None
    assert (spread.p10, spread.p50, spread.p90) == pytest.approx((1.1, 1.5, 1.9))


def test_the_worst_loss_is_the_largest():
    spread = Spread.of([1.0, 3.0], higher_is_better=False)
    assert spread is not None
    assert (spread.worst, spread.best) == (3.0, 1.0)


def test_no_clients_have_no_spread():
    assert Spread.of([], higher_is_better=True) is None


@given(pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60))
def test_the_confusion_matrix_is_scikit_learns(pairs):
    target, predicted = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    assert confusion(target, predicted, 5).tolist() == confusion_matrix(target, predicted, labels=range(5)).tolist()


def test_the_calibration_error_is_the_mean_gap_between_confidence_and_accuracy():
    # Of five bins (0.4, 0.6] has 0.5, right, and 0.6, wrong; (0.8, 1] has 0.9 and 1.0, right, and 0.95, wrong.
    found = calibration(np.array([0.5, 0.9, 1.0, 0.6, 0.95]), np.array([True, True, True, False, False]), bins=5)
    first, second = found.bins
    assert (first.examples, second.examples) == (2, 3)
    assert (first.confidence, first.accuracy) == pytest.approx((0.55, 0.5))
    assert (second.confidence, second.accuracy) == pytest.approx((0.95, 2 / 3))
    assert found.error == pytest.approx(2 / 5 * 0.05 + 3 / 5 * (0.95 - 2 / 3))


def test_a_model_that_is_as_often_right_as_it_is_sure_has_no_calibration_error():
    found = calibration(np.full(4, 0.75), np.array([True, True, True, False]))
    assert found.error == 0
    assert found.bins == (Bin(4, 0.75, 0.75),)


def test_a_model_that_is_always_sure_and_always_wrong_has_a_calibration_error_of_one():
    assert calibration(np.ones(3), np.zeros(3, dtype=bool)).error == 1
