from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import distance as scipy_distance
from scipy.stats import entropy, wasserstein_distance

from fedrelay.errors import BadInput
from fedrelay.plans.grouping.distances import (
    DISTANCES,
    Cosine,
    Euclidean,
    Gini,
    KullbackLeibler,
    NormalisedCosine,
    Wasserstein,
    as_points,
)

signed = arrays(np.float64, (4, 5), elements=st.floats(-9, 9).map(lambda x: round(x, 3)))
positive = arrays(np.float64, (4, 5), elements=st.floats(0.01, 9))


def shares(rows):
    return rows / rows.sum(axis=1, keepdims=True)


def pairwise(distance, rows):
    """By the distance, rows against the first row."""
    ready = distance.ready(rows)
    return ready, distance(ready, ready[0])


@given(positive)
def test_cosine_and_euclidean_are_scipys(rows):
    for distance, reference in ((Cosine(), scipy_distance.cosine), (Euclidean(), scipy_distance.euclidean)):
        ready, found = pairwise(distance, rows - 3)
        np.testing.assert_allclose(found, [reference(row, ready[0]) for row in ready], atol=1e-9)


@given(signed)
def test_wasserstein_is_scipys_of_the_values(rows):
    ready, found = pairwise(Wasserstein(), rows)
    np.testing.assert_allclose(found, [wasserstein_distance(row, ready[0]) for row in ready], atol=1e-9)


@given(positive)
def test_kl_and_gini_score_the_equal_mix_of_the_two(rows):
    mixes = (shares(rows) + shares(rows)[0]) / 2
    _, kl = pairwise(KullbackLeibler(), rows)
    _, gini = pairwise(Gini(), rows)
    np.testing.assert_allclose(kl, [1 - entropy(mix, np.full(5, 0.2)) for mix in mixes], atol=1e-9)
    np.testing.assert_allclose(gini, 1 - (mixes**2).sum(axis=1), atol=1e-9)


@given(arrays(np.float64, (4, 5), elements=st.sampled_from([0.0, 0.01, 0.5, 3.0, 1e-9])))
def test_normalised_cosine_is_the_cosine_of_the_shares_of_both(rows):
    _, found = pairwise(NormalisedCosine(), rows)
    for row, value in zip(rows, found, strict=True):
        kept = (row + rows[0]) > 0
        one, other = row[kept] / (row + rows[0])[kept], rows[0][kept] / (row + rows[0])[kept]
        if not one.any() or not other.any():
            assert value == pytest.approx(0.0 if not kept.any() else 1.0)
        else:
            assert value == pytest.approx(scipy_distance.cosine(one, other), abs=1e-6)


def test_normalised_cosine_does_not_depend_on_how_many_rows_there_are():
    rows = np.random.default_rng(0).random((7, 40_000))  # more numbers than fit one block
    together = NormalisedCosine()(rows, rows[0])
    alone = [NormalisedCosine()(rows[n : n + 1], rows[0])[0] for n in range(7)]
    np.testing.assert_array_equal(together, alone)


def test_scores_are_highest_for_a_client_that_brings_a_missing_class():
    group = np.array([0.5, 0.5, 0.0])
    candidates = np.eye(3)
    for score in (KullbackLeibler(), Gini()):
        assert score(score.ready(candidates), group).argmax() == 2
    assert KullbackLeibler()(np.full((1, 3), 1 / 3), np.full(3, 1 / 3))[0] == pytest.approx(1)
    assert Gini()(np.full((1, 3), 1 / 3), np.full(3, 1 / 3))[0] == pytest.approx(2 / 3)


def test_class_counts_are_taken_as_shares_by_the_scores():
    counts = np.array([[10.0, 0, 30], [1, 1, 2]])
    np.testing.assert_allclose(Gini().ready(counts), [[0.25, 0, 0.75], [0.25, 0.25, 0.5]])


def test_two_clients_of_one_class_each_are_alike_to_wasserstein_whatever_the_classes():
    one_hot = np.eye(10)
    assert Wasserstein()(one_hot, one_hot[3]).max() == 0


def test_a_zero_vector_under_cosine_is_refused_with_its_client_and_what_works():
    rows = np.array([[1.0, 0], [0, 0], [0, 2]])
    with pytest.raises(BadInput, match=r"client 1 is all zeros.*euclidean works"):
        Cosine().ready(rows)
    with pytest.raises(BadInput, match="client 1 is all zeros"):
        KullbackLeibler().ready(rows)
    assert Euclidean().ready(rows) is rows


@pytest.mark.parametrize("name", DISTANCES)
def test_nan_is_refused_with_its_client_by_every_distance(name):
    rows = np.ones((12, 3))
    rows[4, 1] = np.nan
    with pytest.raises(BadInput, match="client 4 is not finite"):
        DISTANCES[name]().ready(rows)


def test_negative_numbers_are_refused_where_they_have_no_meaning():
    for distance in (NormalisedCosine(), Gini(), KullbackLeibler()):
        with pytest.raises(BadInput, match=r"client 1 has negative numbers.*cosine works"):
            distance.ready(np.array([[1.0, 2], [1, -1]]))


@given(positive)
def test_points_for_centroids_say_what_the_distance_says(rows):
    points = as_points(rows, Cosine())
    np.testing.assert_allclose(((points - points[0]) ** 2).sum(axis=1) / 2, Cosine()(rows, rows[0]), atol=1e-9)
    with pytest.raises(BadInput, match="gini has no centroids: euclidean and cosine work"):
        as_points(rows, Gini())


def test_cosine_to_a_centre_where_opposites_cancelled_out_prefers_nobody():
    assert Cosine()(np.array([[1.0, 0], [0, -1]]), np.zeros(2)).tolist() == [1, 1]
