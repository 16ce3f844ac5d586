"""Merges against their equations, evaluated by hand or by NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from merging import Moves, outcome_of, result, state_of

from fedrelay import BadInput, RunFailed
from fedrelay.merges import (
    MERGES,
    Adagrad,
    Adam,
    Clipped,
    Every,
    InverseDistance,
    Krum,
    Mean,
    Median,
    Momentum,
    PlainMean,
    TrimmedMean,
    Trust,
    WithAbsent,
    Yogi,
)
from fedrelay.types import Merge

LISTS = st.lists(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=3, max_size=9)


def test_the_mean_counts_examples_and_the_plain_mean_does_not():
    ends = [[1.0, 0.0], [4.0, 8.0]]
    assert result(Mean(), [9.0, 9.0], ends, sizes=[10, 30]) == pytest.approx([3.25, 6])
    assert result(PlainMean(), [9.0, 9.0], ends, sizes=[10, 30]) == pytest.approx([2.5, 4])
    assert result(Mean(), [9.0, 9.0], ends, sizes=[10, 30], weights=[0.5, 0.5]) == pytest.approx([2.5, 4])
    assert result(PlainMean(), [9.0, 9.0], ends, weights=[0.2, 0.6]) == pytest.approx([3.25, 6])


def test_weights_given_by_a_plan_add_up_over_the_rounds_between_two_merges():
    # Slot 0 is given 1/4 and then 1/2, slot 1 is given 1/4 once: the merge is (3/4) · 4 + (1/4) · 8 = 5.
    merge = Every(Mean(), 2)
    state = state_of(merge, [0.0])
    first, other = outcome_of(state, [2.0], weight=0.25), outcome_of(state, [8.0], weight=0.25)
    state = merge(state, [first, replace(other, chain=replace(other.chain, slot=1))])
    state = merge(state, [outcome_of(state, [4.0], weight=0.5)])
    assert state.batons[0].params.tolist() == pytest.approx([5.0])


def test_the_original_form_of_fedavg_keeps_the_old_model_for_the_absent():
    # 10 and 30 of 100 examples took part: 0.1 · 1 + 0.3 · 4 + 0.6 · 9 = 6.7 and 0.3 · 8 + 0.6 · 9 = 7.8
    ends = [[1.0, 0.0], [4.0, 8.0]]
    assert result(WithAbsent(), [9.0, 9.0], ends, sizes=[10, 30], examples=100) == pytest.approx([6.7, 7.8])
    assert result(WithAbsent(), [9.0, 9.0], ends, weights=[0.1, 0.3], examples=7) == pytest.approx([6.7, 7.8])
    assert result(WithAbsent(), [9.0, 9.0], ends, sizes=[10, 30], examples=40) == pytest.approx([3.25, 6])
    with pytest.raises(RunFailed, match="2 times the examples that there are"):
        result(WithAbsent(), [9.0, 9.0], ends, sizes=[10, 30], examples=20)


def test_ida_weighs_by_the_inverse_distance_from_the_mean():
    # The plain mean of 0, 1 and 5 is 2; the distances 2, 1 and 3 give weights 3/11, 6/11 and 2/11: 16/11.
    ends = [[0.0], [1.0], [5.0]]
    assert result(InverseDistance(), [7.0], ends, sizes=[1, 5, 1]) == pytest.approx([16 / 11], abs=1e-5)
    # by examples too: 3 · 1, 6 · 5, 2 · 1 of 35: 40/35
    assert result(InverseDistance(by_examples=True), [7.0], ends, sizes=[1, 5, 1]) == pytest.approx([40 / 35], abs=1e-5)


def test_ida_in_two_dimensions_knows_both_norms():
    ends = [[3.0, 4.0], [-3.0, -4.0], [0.0, 0.0]]  # mean 0; L1 distances 7, 7, 0
    found = result(InverseDistance(norm=1, epsilon=1.0), [0.0, 0.0], [*ends[:1], *ends[2:]])
    # mean (1.5, 2), both 3.5 away: the mean of both
    assert found == pytest.approx([1.5, 2])
    one, two = (result(InverseDistance(norm=norm), [0.0, 0.0], [[3.0, 4.0], [0.0, 5.0], [0.0, 0.0]]) for norm in (1, 2))
    mean = np.array([1.0, 3.0])
    for order, got in ((1, one), (2, two)):
        ends = np.array([[3.0, 4.0], [0.0, 5.0], [0.0, 0.0]])
        w = 1 / np.linalg.norm(ends - mean, ord=order, axis=1)
        assert got == pytest.approx((w[:, None] * ends).sum(0) / w.sum(), abs=1e-5)


def test_models_that_agree_are_not_divided_by_zero():
    assert result(InverseDistance(), [7.0], [[2.0], [2.0]]) == [2.0]


PSEUDO_GRADIENTS = [(0.1, -0.2), (0.05, 0.1), (-0.2, 0.3)]


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        # (Reddi et al. 2021, Alg. 2) evaluated in float64 outside this project
        (
            Adagrad(lr=0.1, beta1=0.9, tau=1e-3),
            [(0.0099005, -0.009950125), (0.0223109815, -0.0135118695), (0.0190954212, -0.0074345772)],
        ),
        (
            Adam(lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3),
            [(0.0905028312, -0.0951260517), (0.2054505515, -0.1294710594), (0.1744689642, -0.0699560352)],
        ),
        (
            Yogi(lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3),
            [(0.0904987562, -0.095124922), (0.2050184444, -0.1293377688), (0.1741009768, -0.0700090183)],
        ),
        # v = Δ; then 0.9 v + Δ: (0.14, -0.08), (-0.074, 0.228), summed up
        (Momentum(lr=1.0, momentum=0.9), [(0.1, -0.2), (0.24, -0.28), (0.166, -0.052)]),
        (Momentum(lr=0.5, momentum=0.0), [(0.05, -0.1), (0.075, -0.05), (-0.025, 0.1)]),
    ],
)
def test_server_optimisers_follow_their_equations_for_three_rounds(merge, expected):
    state = state_of(merge, [0.0, 0.0])
    for delta, wanted in zip(PSEUDO_GRADIENTS, expected, strict=True):
        x = state.batons[0].params
        # two chains whose mean change by examples (1 and 3) is delta
        ends = [(x + torch.tensor(delta) + 3.0).tolist(), (x + torch.tensor(delta) - 1.0).tolist()]
        state = merge(state, [outcome_of(state, ends[0], 1), outcome_of(state, ends[1], 3)])
        np.testing.assert_allclose(state.batons[0].params, wanted, atol=3e-6)


def test_buffers_are_averaged_and_never_optimised():
    for merge in (Adam(lr=0.5), Momentum(lr=3.0), Clipped(limit=0.1)):
        found = result(merge, [0.0, 1.0], [[1.0, 3.0], [1.0, 5.0]], trainable=1)
        assert found[1] == 4
        assert found[0] != 1


@settings(max_examples=60, deadline=None)
@given(LISTS)
def test_the_median_is_numpys(models):
    assert result(Median(), [0.0] * 3, models) == pytest.approx(np.median(np.float32(models), axis=0), abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(LISTS, st.sampled_from([0.1, 0.25, 0.4]))
def test_the_trimmed_mean_leaves_out_both_ends(models, trim):
    ordered = np.sort(np.float32(models), axis=0)
    cut = max(int(trim * len(models)), 1)
    expected = ordered[cut : len(models) - cut].mean(axis=0)
    assert result(TrimmedMean(trim), [0.0] * 3, models) == pytest.approx(expected, abs=1e-3)


def test_the_robust_merges_work_in_slices_as_in_one(monkeypatch):
    models = torch.randn(7, 50, generator=torch.Generator().manual_seed(0)).tolist()
    whole = [result(merge, [0.0] * 50, models) for merge in (Median(), TrimmedMean(), Krum(suspects=2, keep=2))]
    monkeypatch.setattr("fedrelay.merges.robust.AT_ONCE", 7 * 11)
    sliced = [result(merge, [0.0] * 50, models) for merge in (Median(), TrimmedMean(), Krum(suspects=2, keep=2))]
    np.testing.assert_allclose(whole, sliced, atol=1e-6)


def test_krum_takes_the_model_whose_neighbours_are_nearest():
    # n = 5, one suspect: sums over the n - 1 - 2 = 2 nearest others. 0: 1 + 4; 1: 1 + 1; 2: 1 + 1.44; 3.2: 1.44 + 4.84
    ends = [[0.0], [1.0], [2.0], [3.2], [50.0]]
    assert result(Krum(suspects=1), [9.0], ends) == [1.0]
    # multi-Krum: the two best are 1 (score 2) and 2 (score 2.44)
    assert result(Krum(suspects=1, keep=2), [9.0], ends) == [1.5]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1, width=32), min_size=5, max_size=9), st.floats(1e3, 1e6))
def test_one_liar_cannot_move_a_robust_merge_out_of_the_honest_range(honest, lie):
    ends = [[value] for value in honest] + [[lie]]
    for merge in (Median(), TrimmedMean(0.2), Krum(suspects=1)):
        (found,) = result(merge, [0.0], ends)
        assert min(honest) - 1e-6 <= found <= max(honest) + 1e-6
    assert result(Mean(), [0.0], ends)[0] > 1


def test_clipping_bounds_every_change():
    # changes (3, 4) of norm 5 and (0, 0.5): at most 1 long, the first becomes (0.6, 0.8); means by examples 1 and 3
    found = result(Clipped(1.0), [1.0, 1.0], [[4.0, 5.0], [1.0, 1.5]], sizes=[1, 3])
    assert found == pytest.approx([1 + 0.6 / 4, 1 + (0.8 + 1.5) / 4])
    assert result(Clipped(1.0), [1.0], [[1.0], [1.0]]) == [1.0]


@pytest.mark.parametrize(
    ("merge", "chains", "message"),
    [
        (Median(), 2, "median needs at least 3 chains that came back, there are 2"),
        (TrimmedMean(), 1, "trimmed_mean needs at least 3"),
        (Krum(suspects=2), 6, "krum needs at least 7 chains that came back .n ≥ 2f . 3"),
    ],
)
def test_too_few_chains_for_a_promise_are_refused(merge, chains, message):
    with pytest.raises(RunFailed, match=f"round 1: {message}"):
        result(merge, [0.0], [[1.0]] * chains)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Momentum(momentum=1.0), "momentum must be below 1, not 1"),
        (lambda: Momentum(lr=0.0), "lr must be above 0"),
        (lambda: Adam(beta1=1.0), "beta1 must be below 1"),
        (lambda: Adam(beta2=-0.1), "beta2 must be at least 0, not -0.1"),
        (lambda: Yogi(tau=0.0), "tau must be above 0"),
        (lambda: Adagrad(beta1=2.0), "beta1 must be below 1, not 2"),
        (lambda: TrimmedMean(0.5), "trim must be at most 0.49"),
        (lambda: Krum(suspects=-1), "suspects must be at least 0"),
        (lambda: Krum(keep=0), "keep must be at least 1"),
        (lambda: Clipped(0.0), "limit must be above 0"),
        (lambda: InverseDistance(norm=3), "norm must be 1 or 2"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def ready(name: str) -> Merge:
    """The merge of this name; trust with a root set, on which the model here moves by (1, 1)."""
    merge = MERGES[name]()
    return replace(merge, root=(0,), local=Moves((1.0, 1.0)), task=object()) if isinstance(merge, Trust) else merge


@pytest.mark.parametrize("name", MERGES)
def test_a_merge_of_models_that_agree_gives_that_model_again_and_again(name):
    """Whatever a merge makes of differences, where there are none and no change it changes nothing."""
    merge = ready(name)
    state = state_of(merge, [1.0, -2.0], examples=7)
    for _ in range(3):
        state = merge(state, [outcome_of(state, [1.0, -2.0]) for _ in range(7)])
    assert state.batons[0].params.tolist() == pytest.approx([1, -2], abs=1e-6)


def test_merges_do_not_change_what_they_are_given():
    for name in MERGES:
        merge = ready(name)
        state = state_of(merge, [1.0, -2.0], examples=9)
        server = {key: value.clone() for key, value in state.server.items()}
        outcomes = [outcome_of(state, [float(i), 1.0]) for i in range(7)]
        merge(replace(state), outcomes)
        assert state.batons[0].params.tolist() == [1, -2]
        assert all(torch.equal(state.server[key], value) for key, value in server.items())
        assert [outcome.baton.params[0].item() for outcome in outcomes] == list(range(7))
