"""Clustering of very many clients by way of kinds: Ward's own tree where kinds are single clients, and near it else."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform

from fedrelay import BadInput
from fedrelay.plans.grouping.groups import Alone
from fedrelay.plans.sampling import BySimilarity, Urns, by_clusters, multinomial
from fedrelay.plans.sampling.kinds import Merges, kinds_of, weighted_ward
from fedrelay.plans.sampling.ward import FARTHEST, ward


def clusters(merges, leaves: int) -> set[frozenset[int]]:
    """All that a tree puts together, whatever the order in which it says so."""
    nodes = [frozenset([leaf]) for leaf in range(leaves)]
    for left, right in merges:
        nodes.append(nodes[int(left)] | nodes[int(right)])
    assert len(nodes[-1]) == leaves
    return set(nodes)


@pytest.mark.parametrize("count", [2, 3, 40])
def test_points_that_stand_for_themselves_make_the_tree_of_scipy(count):
    points = np.random.default_rng(count).standard_normal((count, 3))
    found = weighted_ward(squareform(pdist(points)), np.ones(count))
    assert clusters(found, count) == clusters(linkage(pdist(points), "ward")[:, :2], count)


def test_a_point_that_stands_for_several_is_as_several_equal_ones():
    rng = np.random.default_rng(0)
    points, sizes = rng.standard_normal((12, 2)), rng.integers(1, 6, 12)
    owner = np.repeat(np.arange(12), sizes)
    whole = clusters(linkage(pdist(points[owner]), "ward")[:, :2], len(owner))
    expected = {frozenset(owner[list(one)].tolist()) for one in whole if not inside_one(one, owner)}
    found = clusters(weighted_ward(squareform(pdist(points)), sizes.astype(float)), 12)
    assert {one for one in found if len(one) > 1} == expected


def inside_one(cluster: frozenset[int], owner: np.ndarray) -> bool:
    return len(set(owner[list(cluster)].tolist())) == 1


@pytest.mark.parametrize("similarity", ["arccos", "l2"])
def test_as_many_kinds_as_clients_make_the_exact_tree(similarity):
    rows = np.random.default_rng(1).standard_normal((30, 4)).astype(np.float32)
    exact, found = (ward(rows, range(30), 30, similarity, kinds=kinds) for kinds in (None, 30))
    assert clusters(found, 30) == clusters(exact, 30)


def test_a_kind_is_joined_by_halves():
    merges = Merges(7)
    assert merges.paired(np.arange(7)) == 12
    sizes = sorted(map(len, clusters(merges.rows(), 7)))
    assert sizes == [1] * 7 + [2] * 3 + [3, 4, 7]


def test_clients_that_never_took_part_are_one_kind():
    rows = np.eye(3, dtype=np.float32)[np.arange(30) % 3]
    found = clusters(ward(rows, range(0, 60, 2), 60, "arccos", kinds=10), 60)
    assert frozenset(range(1, 60, 2)) in found
    assert all(frozenset(range(2 * kind, 60, 6)) in found for kind in range(3))


def test_kinds_of_equal_points_are_not_empty():
    points = np.repeat(np.eye(3, dtype=np.float32), 50, axis=0)
    labels, centres = kinds_of(points, 20)
    assert np.bincount(labels).min() > 0
    np.testing.assert_allclose(centres[labels], points)


def classes_seen(urns: Urns, class_of: np.ndarray) -> float:
    """How many classes a draw is expected to have: exactly, from the chances of every urn."""
    missed = np.ones(class_of.max() + 1)
    for urn in urns.urns:
        missed *= 1 - np.bincount(class_of[urn.owners], urn.tickets / urns.total, len(missed))
    return float((1 - missed).sum())


def test_kinds_see_almost_as_many_classes_as_the_exact_tree():
    clients, classes, draws = 1500, 10, 10
    rng = np.random.default_rng(0)
    class_of = rng.integers(classes, size=clients)
    rows = np.eye(classes)[class_of] @ rng.standard_normal((classes, 64)) + 1.0 * rng.standard_normal((clients, 64))
    sizes = np.full(clients, 20)
    exact, by_kinds = (
        classes_seen(
            by_clusters(ward(rows.astype(np.float32), range(clients), clients, "arccos", kinds=kinds), sizes, draws),
            class_of,
        )
        for kinds in (None, 100)
    )
    md = classes_seen(multinomial(sizes, draws), class_of)
    assert md < 7
    assert exact > 8.5
    assert by_kinds > exact - 0.3


def test_more_clients_than_there_is_room_for_are_put_into_kinds():
    count = FARTHEST + 2_000
    gradients = {number: torch.randn(8, generator=torch.Generator().manual_seed(number)) for number in range(1_000)}
    memo = {"gradients": gradients, "last": {12 * number: number for number in range(1_000)}, "made": 1_000}
    tracemalloc.start()
    try:
        tree = BySimilarity(kinds=50).tree(memo, Alone(count))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6  # the distances of every two would be 576 MB
    assert tree.shape == (count - 1, 2)
    assert len(set(tree.flatten().tolist())) == 2 * count - 2  # everybody is joined once
    with pytest.raises(
        BadInput, match=r"L1 distances cannot be had by similarity here .* 10,000 at most, and there are"
    ):
        BySimilarity(similarity="l1").tree(memo, Alone(count))


def test_what_cannot_be_kept_of_so_many_is_refused_before_the_first_round():
    task = SimpleNamespace(layout=SimpleNamespace(size=1_000_000))
    survey = SimpleNamespace(names=range(100_000), task=task)
    with pytest.raises(BadInput, match=r"400.0 GB when all 100,000 have; say sketch = 256"):
        BySimilarity().init(survey)
    assert BySimilarity(sketch=256).init(survey)["last"] == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kinds": 1}, "kinds must be at least 2"),
        ({"kinds": 30_000}, "kinds must be at least 2 and at most 10000, not 30000"),
        ({"kinds": 5, "similarity": "l1"}, "L1 distances cannot be had"),
        ({"kinds": 5, "variant": "published"}, 'variant = "published" cannot be had'),
    ],
)
def test_what_kinds_cannot_do_is_refused(wrong, message):
    with pytest.raises(BadInput, match=message):
        BySimilarity(**wrong)
