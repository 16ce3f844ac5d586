"""FID and KID against closed forms: means and covariances that one can work out, the bias of few images."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from fedrelay.errors import BadInput
from fedrelay.studies.recovery.distances import FewImages, fid, frechet, kid

ORIGIN = np.zeros(2)
ONE = np.eye(2)


@pytest.mark.parametrize(
    ("mean", "one", "other", "expected"),
    [
        ((3.0, 4.0), ONE, ONE, 25.0),
        ((0.0, 0.0), ONE, 4 * ONE, 2.0),
        ((0.0, 0.0), np.diag((1.0, 4.0)), np.diag((9.0, 16.0)), 8.0),
        ((0.0, 0.0), np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[2.0, -1.0], [-1.0, 2.0]]), 8 - 4 * math.sqrt(3)),
        ((0.0, 0.0), np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag((4.0, 1.0)), 0.77122),
    ],
)
def test_the_distance_of_two_gaussians_in_the_plane_is_its_closed_form(mean, one, other, expected):
    assert frechet(ORIGIN, one, np.array(mean), other) == pytest.approx(expected, abs=1e-5)
    assert frechet(np.array(mean), other, ORIGIN, one) == pytest.approx(expected, abs=1e-5)


def test_any_two_covariances_in_the_plane_follow_the_formula_of_trace_and_determinant():
    rng = np.random.default_rng(0)
    for _ in range(20):
        one, other = (half @ half.T for half in rng.normal(size=(2, 2, 2)))
        product = one @ other
        common = math.sqrt(np.trace(product) + 2 * math.sqrt(np.linalg.det(product)))
        expected = np.trace(one) + np.trace(other) - 2 * common
        assert frechet(ORIGIN, one, ORIGIN, other) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("images", [4, 40])  # fewer than features, and more
def test_fid_of_samples_is_the_distance_of_their_means_and_covariances(images):
    one, other = np.random.default_rng(1).normal(size=(2, images, 6)) * 3 + 1
    expected = frechet(one.mean(0), np.cov(one.T), other.mean(0), np.cov(other.T))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewImages)
        assert fid(one, other) == pytest.approx(expected, abs=1e-6)


def test_two_samples_of_one_gaussian_are_apart_by_the_formula_of_the_bias():
    features, images = 64, 500
    rng = np.random.default_rng(2)
    found = [fid(*rng.normal(size=(2, images, features))) for _ in range(5)]
    assert np.mean(found) == pytest.approx((features * (features + 1) / 2 + 2 * features) / images, rel=0.03)


def test_fid_demands_as_many_images_of_both_kinds():
    with pytest.raises(BadInput, match=r"as many images with as many, found 10 and 12.*take the same number"):
        fid(np.zeros((10, 2)), np.zeros((12, 2)))


def test_fid_of_no_more_images_than_features_is_warned_of():
    rows = np.random.default_rng(3).normal(size=(8, 8))
    with pytest.warns(FewImages, match="8 images by 8 features"):
        assert fid(rows, rows) == pytest.approx(0.0, abs=1e-9)


def test_kid_of_four_numbers_is_as_worked_out_by_hand():
    # In one dimension the kernel is (xy + 1)³: 1 among zeros, 8 among ones, 1 between them.
    assert kid(np.zeros((2, 1)), np.ones((2, 1))) == pytest.approx(1 + 8 - 2)
    # In two dimensions (1, 1) with itself is (2 / 2 + 1)³ = 8, and with (2, 0) too; (2, 0) with itself is 27.
    assert kid(np.ones((2, 2)), np.array([[2.0, 0.0], [2.0, 0.0]])) == pytest.approx(8 + 27 - 2 * 8)


def test_kid_of_few_images_is_right_on_average():
    # E (1 + xy)³ with x, y independent: 1 + 3 E x E y + 3 E x² E y² + E x³ E y³.
    shift = 0.7
    moments = {0.0: (0.0, 1.0, 0.0), shift: (shift, 1 + shift**2, shift**3 + 3 * shift)}
    between = [
        1 + 3 * a[0] * b[0] + 3 * a[1] * b[1] + a[2] * b[2]
        for a, b in [(moments[x], moments[y]) for x, y in ((0.0, 0.0), (shift, shift), (0.0, shift))]
    ]
    expected = between[0] + between[1] - 2 * between[2]
    rng = np.random.default_rng(4)
    found = [kid(rng.normal(size=(10, 1)), rng.normal(shift, size=(7, 1))) for _ in range(20_000)]
    error = np.std(found) / math.sqrt(len(found))
    assert np.mean(found) == pytest.approx(expected, abs=4 * error)
    assert error < expected / 20


def test_features_that_cannot_be_compared_are_refused():
    with pytest.raises(BadInput, match="same features"):
        kid(np.zeros((3, 2)), np.zeros((3, 4)))
    with pytest.raises(BadInput, match="at least 2 images"):
        fid(np.zeros((1, 2)), np.zeros((1, 2)))
    with pytest.raises(BadInput, match="not finite"):
        fid(np.full((3, 2), np.nan), np.zeros((3, 2)))
