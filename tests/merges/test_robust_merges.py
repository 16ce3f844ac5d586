"""Defences between chains against closed forms, other solvers and the inequalities of their papers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from merging import Moves, outcome_of, result, state_of
from scipy.optimize import minimize
from zoo import Pools, models, resumed, same_bits, shared_pools, trained

import fedrelay as fr
from fedrelay import BadInput, config
from fedrelay.algorithms import fedseq
from fedrelay.data import Dirichlet, digits
from fedrelay.data.holdout import with_validation
from fedrelay.engines import Inline, Pool
from fedrelay.merges import (
    Bucketing,
    CentredClipping,
    Clipped,
    DivideAndConquer,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    NearestNeighbours,
    PlainMean,
    TrimmedMean,
    Trust,
)

RNG = np.random.default_rng(0)


# --- the geometric median ---------------------------------------------------------------------------------------------


def test_the_geometric_median_of_collinear_points_is_the_middle_one():
    assert result(GeometricMedian(), [0.0, 0.0], [[0.0, 0.0], [100.0, 200.0], [1.0, 2.0]]) == [1, 2]


def test_the_geometric_median_of_an_equilateral_triangle_is_its_centre():
    ends = [[0.0, 0.0], [2.0, 0.0], [1.0, math.sqrt(3)]]
    assert result(GeometricMedian(), [9.0, 9.0], ends) == pytest.approx([1, 1 / math.sqrt(3)], abs=1e-6)


def test_the_geometric_median_of_a_right_isosceles_triangle_is_its_fermat_point():
    # Legs of 1: on the diagonal, where both other corners are seen at 120°: x = y = (3 - √3) / 6.
    found = result(GeometricMedian(), [9.0, 9.0], [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert found == pytest.approx([(3 - math.sqrt(3)) / 6] * 2, abs=1e-6)


def test_the_geometric_median_of_a_flat_triangle_is_the_corner_of_120_degrees_or_more():
    assert result(GeometricMedian(), [9.0, 9.0], [[-2.0, -0.5], [0.0, 0.0], [2.0, -0.5]]) == [0, 0]


@pytest.mark.parametrize("count", [2, 4, 7, 12])
def test_the_geometric_median_is_that_of_a_general_minimiser(count):
    points = RNG.normal(size=(count, 4))

    def total(z):
        return np.linalg.norm(points - z, axis=1).sum()

    found = np.array(result(GeometricMedian(), [0.0] * 4, points.tolist()))
    best = min(
        (minimize(total, start, method="BFGS", tol=1e-10) for start in (points.mean(0), found)), key=lambda r: r.fun
    )
    assert total(found) <= best.fun * (1 + 1e-6)
    if count > 2:  # of two points all between them are medians
        np.testing.assert_allclose(found, best.x, atol=1e-3)


@pytest.mark.parametrize(("honest", "liars"), [(6, 5), (8, 2), (20, 9)])
def test_the_geometric_median_keeps_the_bound_of_its_lemma(honest, liars):
    # Minsker 2015, Lemma 2.1: if a share a is farther than r from z, the median is within r (1 - a) / √(1 - 2a) of z.
    good = RNG.normal(size=(honest, 3))
    centre = good.mean(0)
    radius = np.linalg.norm(good - centre, axis=1).max()
    share = liars / (honest + liars)
    for far in (1.0, 10.0, 1e4):
        bad = centre + far * radius * np.array([1.0, 0.2, 0.0]) + 0.1 * RNG.normal(size=(liars, 3))
        found = np.array(result(GeometricMedian(), [0.0] * 3, [*good.tolist(), *bad.tolist()]))
        assert np.linalg.norm(found - centre) <= radius * (1 - share) / math.sqrt(1 - 2 * share) * (1 + 1e-4)


# --- centred clipping -------------------------------------------------------------------------------------------------


def test_centred_clipping_moves_the_last_change_by_shortened_ways():
    merge = CentredClipping(limit=1.0)
    state = state_of(merge, [10.0, 10.0])
    # From 0 the changes (3, 4) and (0, 0.5): 1 long at most, (0.6, 0.8) and (0, 0.5), of which the mean is (0.3, 0.65).
    state = merge(state, [outcome_of(state, [13.0, 14.0]), outcome_of(state, [10.0, 10.5])])
    assert state.batons[0].params.tolist() == pytest.approx([10.3, 10.65])
    # From (0.3, 0.65) the changes (0.3, 0.65) and (3.3, 4.65): ways of 0 and of 5, so (0, 0) and (0.6, 0.8).
    state = merge(state, [outcome_of(state, [10.6, 11.3]), outcome_of(state, [13.6, 15.3])])
    assert state.batons[0].params.tolist() == pytest.approx([10.3 + 0.3 + 0.3, 10.65 + 0.65 + 0.4])


def test_centred_clipping_ends_where_shortened_ways_add_up_to_nothing():
    # Fixed point of v + mean(clip(x_i - v)): Σ (x_i - v) min(1, 1 / |x_i - v|) = 0. On a line with a liar at 1000 it
    # pulls by 1 only: x = 0, 0.2, 0.4 pull back by 3 v - 0.6 as long as they are within 1, so v = 1.6 / 3.
    ends = [[0.0], [0.2], [0.4], [1000.0]]
    assert result(CentredClipping(1.0, iterations=200), [0.0], ends) == pytest.approx([1.6 / 3], abs=1e-5)


def test_limits_that_shorten_nothing_give_the_bits_of_the_mean():
    ends, sizes = RNG.normal(size=(5, 30)).tolist(), [1.0, 7.0, 3.0, 2.0, 5.0]
    plain = result(PlainMean(), [0.3] * 30, ends, sizes=sizes)
    assert result(CentredClipping(math.inf), [0.3] * 30, ends, sizes=sizes) == plain
    assert result(CentredClipping(1e6, iterations=3), [0.3] * 30, ends, sizes=sizes) == plain
    assert result(Clipped(math.inf), [0.3] * 30, ends, sizes=sizes) == result(Mean(), [0.3] * 30, ends, sizes=sizes)


# --- mixing before the merge ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [GeometricMedian(), Mean(), Clipped(math.inf)])
def test_one_bucket_of_all_chains_is_the_mean(inner):
    ends = RNG.normal(size=(7, 5)).tolist()
    found = result(Bucketing(inner, size=7), [0.0] * 5, ends, sizes=[1, 2, 3, 4, 5, 6, 7])
    assert found == pytest.approx(np.mean(ends, axis=0), abs=1e-6)


def test_buckets_of_one_are_the_merge_itself():
    ends = RNG.normal(size=(7, 5)).tolist()
    for inner in (Median(), Krum(suspects=1), Clipped(0.5)):
        assert result(Bucketing(inner, size=1), [0.0] * 5, ends) == result(inner, [0.0] * 5, ends)


def test_every_chain_is_in_one_bucket_and_buckets_change_from_round_to_round():
    # 16 powers of two: the sums of pairs tell which pairs there were; the largest one is that of the 16th chain.
    seen: list[tuple[float, ...]] = []

    class Watch(Mean):
        def __call__(self, state, outcomes, /):
            seen.append(tuple(float(2 * outcome.baton.params[0]) for outcome in outcomes))
            return super().__call__(state, outcomes)

    merge = Bucketing(Watch(), size=2, seed=3)
    state = state_of(merge, [0.0])
    outcomes = [outcome_of(state, [2.0**number]) for number in range(16)]
    merge(state, outcomes)
    merge(replace(state, round=1), outcomes)
    assert [sum(sums) for sums in seen] == [2**16 - 1] * 2
    assert all(bin(int(value)).count("1") == 2 for sums in seen for value in sums)
    assert seen[0] != seen[1]


def test_nearest_neighbours_become_means_of_the_nearest():
    # n = 4, one suspect: 0 → (0 + 1 + 3) / 3, 1 → the same, 3 → the same, 9 → (9 + 3 + 1) / 3; the median is 4/3.
    ends = [[0.0], [1.0], [3.0], [9.0]]
    assert result(NearestNeighbours(Median(), suspects=1), [0.0], ends) == pytest.approx([4 / 3])
    assert result(NearestNeighbours(Mean(), suspects=1), [0.0], ends) == pytest.approx([(3 * 4 / 3 + 13 / 3) / 4])


@pytest.mark.parametrize("liars", [1, 3])
def test_nearest_neighbours_keep_the_bound_of_their_lemma(liars):
    # Allouah et al. 2023: the mixed honest models y_i hold
    # 1/h Σ |y_i - mean(x_honest)|² ≤ 8 f / (n - f) · 1/h Σ |x_i - mean(x_honest)|².
    seen: list[torch.Tensor] = []

    class Watch(Mean):
        def __call__(self, state, outcomes, /):
            seen.append(torch.stack([outcome.baton.params for outcome in outcomes]))
            return super().__call__(state, outcomes)

    honest = RNG.normal(size=(9, 4))
    centre, spread = honest.mean(0), np.square(honest - honest.mean(0)).sum(1).mean()
    for far in (0.5, 2.0, 50.0):
        bad = np.tile(centre + far, (liars, 1))
        result(NearestNeighbours(Watch(), suspects=liars), [0.0] * 4, [*honest.tolist(), *bad.tolist()])
        mixed = np.square(seen[-1][:9].numpy() - centre).sum(1).mean()
        assert mixed <= 8 * liars / (9 + liars - liars) * spread * (1 + 1e-5)


# --- spectral, and trust ----------------------------------------------------------------------------------------------


def test_dnc_leaves_out_who_is_farthest_along_the_direction_of_most_variance():
    # Variance is along the first number; means of it: 0.1. Farthest from that: the chain at 5, then that at -1.
    ends = [[0.0, 0.3], [0.2, -0.3], [-1.0, 0.1], [0.3, -0.2], [5.0, 0.1], [0.1, 0.0]]
    one = result(DivideAndConquer(suspects=1), [9.0, 9.0], ends)
    assert one == pytest.approx(np.mean([e for e in ends if e[0] < 4], axis=0), abs=1e-6)
    two = result(DivideAndConquer(suspects=1, cut=2.0), [9.0, 9.0], ends)
    assert two == pytest.approx(np.mean([e for e in ends if -1 < e[0] < 4], axis=0), abs=1e-6)


def test_dnc_by_samples_agrees_with_the_singular_vector_of_numpy():
    rows = RNG.normal(size=(9, 40)).astype(np.float32)
    rows[4] += 3
    centred = rows.astype(np.float64) - rows.mean(0, dtype=np.float64)
    scores = np.square(centred @ np.linalg.svd(centred)[2][0])
    kept = np.argsort(scores)[:7]
    found = result(DivideAndConquer(suspects=2), [0.0] * 40, rows.tolist())
    assert found == pytest.approx(rows[kept].mean(0), abs=1e-5)


def test_dnc_without_suspects_is_the_plain_mean_to_the_bit():
    ends = RNG.normal(size=(5, 8)).tolist()
    assert result(DivideAndConquer(suspects=0), [0.0] * 8, ends) == result(PlainMean(), [0.0] * 8, ends)


def test_trust_by_hand():
    # The server moves by (0, 2). Changes (3, 4): cosine 4/5, scaled to length 2: (1.2, 1.6). (0, 1): cosine 1, (0, 2).
    # (5, -5): negative, nothing. Mean: (0.8 (1.2, 1.6) + (0, 2)) / 1.8 = (0.96, 3.28) / 1.8.
    merge = Trust(root=(0,), local=Moves((0.0, 2.0)), task=object())
    found = result(merge, [1.0, 1.0], [[4.0, 5.0], [1.0, 2.0], [6.0, -4.0]])
    assert found == pytest.approx([1 + 0.96 / 1.8, 1 + 3.28 / 1.8])


def test_trust_in_nobody_changes_nothing():
    merge = Trust(root=(0,), local=Moves((0.0, 2.0)), task=object())
    assert result(merge, [1.0, 1.0], [[1.0, 0.0], [1.0, 1.0]]) == [1, 1]


def test_trust_goes_as_many_visits_as_chains_are_long():
    merge = Trust(root=(0,), local=Moves((0.0, 2.0)), task=object())
    state = state_of(merge, [1.0, 1.0])
    long = outcome_of(state, [1.0, 2.0])
    found = merge(state, [replace(long, reports=long.reports * 3)])
    assert found.batons[0].params.tolist() == pytest.approx([1, 7])  # (0, 1) made 3 · 2 long


# --- conditions, and whole runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("merge", "chains", "message"),
    [
        (Krum(suspects=2), 6, "needs at least 7 chains in a round .n ≥ 2f . 3 .* f = 2 suspects.*this run has 6"),
        (NearestNeighbours(GeometricMedian(), suspects=3), 6, "n > 2f for f = 3"),
        (DivideAndConquer(suspects=3), 6, "n > 2f and n > cut · f"),
        (Bucketing(Krum(suspects=1), size=2), 8, "n ≥ 2f . 3 .*where n counts buckets of 2 chains"),
    ],
)
def test_a_condition_on_the_number_of_liars_is_refused_before_anybody_trains(merge, chains, message):
    federation = fr.Federation.split(digits(), Dirichlet(alpha=1.0), chains)
    engine = Inline(federation, fr.Task.of(fr.models.Mlp(hidden=(4,)), federation))
    with pytest.raises(BadInput, match=message):
        next(fr.train(fr.method(merge=merge, fraction=1.0), engine, rounds=1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CentredClipping(0.0), "limit must be above 0"),
        (lambda: Clipped(math.nan), "limit must be above 0, not nan"),
        (lambda: CentredClipping(iterations=0), "iterations must be at least 1"),
        (lambda: Bucketing(size=0), "size must be at least 1"),
        (lambda: Bucketing(Trust()), "chains are not mixed before it"),
        (lambda: DivideAndConquer(cut=0.0), "cut must be above 0"),
        (lambda: Trust(examples=0), "examples must be at least 1"),
        (lambda: Trust().fitted(None, 0), "trust needs a root set, clean examples"),
    ],
)
def test_settings_of_robust_merges_out_of_range_are_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def test_a_configuration_names_a_merge_inside_a_merge_and_repeats_itself():
    tables = {
        "rounds": 1,
        "data": {"name": "digits", "clients": 12, "validation": 0.1},
        "model": {"name": "mlp", "hidden": [4]},
        "engine": {"name": "inline"},
        "algorithm": {"name": "fedavg", "merge": {"name": "bucketing", "merge": {"name": "krum", "suspects": 0}}},
    }
    built = config.build(tables)
    wanted = {"name": "bucketing", "merge": {"name": "krum", "suspects": 0, "keep": 1}, "size": 2}
    assert built.tables["algorithm"]["merge"] == wanted
    assert config.build(built.tables).tables == built.tables
    trusting = config.build(config.with_values(tables, {"algorithm.merge": {"name": "trust", "examples": 30}}))
    assert trusting.tables["algorithm"]["merge"] == {"name": "trust", "examples": 30}
    assert len(list(fr.train(trusting.algorithm, trusting.engine, rounds=1))) == 1
    bare = config.build(config.with_values(trusting.tables, {"data.validation": 0.0}))
    with pytest.raises(BadInput, match="trust needs a root set"):
        next(fr.train(bare.algorithm, bare.engine, rounds=1))


@pytest.fixture(scope="module")
def pools():
    with shared_pools() as made:
        yield made


MADE = (
    GeometricMedian(),
    CentredClipping(limit=0.3),
    Bucketing(TrimmedMean(0.2)),
    NearestNeighbours(),
    DivideAndConquer(iterations=2, sample=50),
    Trust(examples=30),
)


@pytest.mark.parametrize("merge", MADE, ids=lambda merge: type(merge).__name__)
def test_robust_merges_have_the_same_bits_on_every_engine_and_after_a_stop(merge, pools: Pools, tmp_path):
    federation = with_validation(fr.Federation.split(digits(), Dirichlet(alpha=1.0), 12, 1), 0.1, seed=1)
    task = fr.Task.of(fr.models.Mlp(hidden=(4,)), federation)
    merge = merge.with_root(federation.validation)
    algorithm = fr.method(fedseq(max_clients=2), local=fr.Sgd(batch=16, lr=0.1), merge=merge, fraction=1.0)
    pool = pools.setdefault((len(federation), task), Pool(federation, task, 1, workers=2))
    engine = Inline(federation, task, 1)
    states, _ = trained(algorithm, engine)
    assert same_bits(models(states), models(trained(algorithm, pool)[0]))
    last, _ = resumed(algorithm, engine, tmp_path / "run")
    assert same_bits(models(states[-1:]), models(last))
    plain = fr.method(fedseq(max_clients=2), local=fr.Sgd(batch=16, lr=0.1), fraction=1.0)
    assert not same_bits(models(states[-1:]), models(trained(plain, engine)[0][-1:]))
