"""The theory of clustered sampling as tests, in exact fractions (clustered sampling 2021, Eqs. 7-23, Theorems 3-4)."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedrelay import BadInput
from fedrelay.plans.sampling import (
    SAMPLERS,
    BySimilarity,
    BySize,
    Draw,
    Full,
    Multinomial,
    Original,
    Uniform,
    Urns,
    by_clusters,
    weight_variance,
)
from fedrelay.plans.sampling.urns import by_size, cut, multinomial


@st.composite
def federations(draw) -> tuple[list[int], int]:
    """Sizes of clients, now and then with one that has most of the data, and a number of draws."""
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=14))
    if draw(st.booleans()):
        sizes.insert(draw(st.integers(0, len(sizes))), draw(st.integers(1, 3000)))
    return sizes, draw(st.integers(1, len(sizes)))


@st.composite
def trees(draw, leaves: int) -> np.ndarray:
    """Any tree: two random nodes become one until one is left."""
    nodes, rows = list(range(leaves)), []
    for node in range(leaves, 2 * leaves - 1):
        pair = [nodes.pop(draw(st.integers(0, len(nodes) - 1))) for _ in range(2)]
        rows.append(pair)
        nodes.append(node)
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def chances_of(sizes: list[int]) -> list[Fraction]:
    return [Fraction(size, sum(sizes)) for size in sizes]


def assert_unbiased(urns: Urns, sizes: list[int], m: int) -> None:
    """Eqs. 7 and 8, with equality in whole numbers."""
    r = urns.fractions()
    assert len(r) == m
    assert all(sum(row) == 1 and min(row) >= 0 for row in r)
    assert [sum(row[i] for row in r) for i in range(len(sizes))] == [m * p for p in chances_of(sizes)]


def assert_better_than_multinomial(urns: Urns, sizes: list[int], m: int) -> None:
    """Eqs. 17 and 23, with equality only for a client whose chance is the same in every urn."""
    r = urns.fractions()
    for i, p in enumerate(chances_of(sizes)):
        variance, chance = p * (1 - p) / m, 1 - (1 - p) ** m  # Eqs. 14 and 20
        same = all(row[i] == p for row in r)
        assert urns.variances()[i] == variance if same else urns.variances()[i] < variance
        assert urns.chances()[i] == chance if same else urns.chances()[i] > chance


@given(federations())
@example(([7] * 10, 3))
@example(([7] * 100, 7))
@example(([60, 10, 10, 10, 10], 3))
@example(([1], 1))
def test_sampling_by_size_is_unbiased_with_less_variance_than_multinomial(case):
    sizes, m = case
    urns = BySize().distributions(sizes, m)
    assert_unbiased(urns, sizes, m)
    assert_better_than_multinomial(urns, sizes, m)


@given(st.data(), federations())
def test_sampling_by_any_tree_is_unbiased_with_less_variance_than_multinomial(data, case):
    sizes, m = case
    urns = by_clusters(data.draw(trees(len(sizes))), sizes, m)
    assert_unbiased(urns, sizes, m)
    assert_better_than_multinomial(urns, sizes, m)


@pytest.mark.parametrize(("sizes", "m"), [([7] * 10, 3), ([7] * 100, 7), ([60, 10, 10, 10, 10], 3), ([5], 1)])
def test_similarity_is_unbiased_before_anything_is_known(sizes, m):
    assert_unbiased(BySimilarity().distributions(sizes, m), sizes, m)


@given(federations())
def test_multinomial_has_the_papers_variance_and_chances(case):
    sizes, m = case
    urns = Multinomial().distributions(sizes, m)
    assert_unbiased(urns, sizes, m)
    p = chances_of(sizes)
    assert urns.variances() == tuple(q * (1 - q) / m for q in p)  # Eq. 14
    assert urns.chances() == tuple(1 - (1 - q) ** m for q in p)  # Eq. 20


@given(federations())
def test_by_size_draws_nobody_more_than_twice_beyond_the_whole_part_of_their_share(case):
    sizes, m = case
    r = BySize().distributions(sizes, m).fractions()
    for i, p in enumerate(chances_of(sizes)):
        assert sum(row[i] > 0 for row in r) <= math.floor(m * p) + 2
        assert sum(row[i] == 1 for row in r) >= math.floor(m * p)


@pytest.mark.parametrize("sizes", [[2**62, 2**62], [2**63, 1], [2**64, 5], np.array([2**63, 1], dtype=np.uint64)])
def test_sizes_that_no_whole_number_of_an_array_can_hold_are_refused(sizes):
    for scheme in (by_size, multinomial):
        with pytest.raises(BadInput, match=rf"the sizes add up to {sum(map(int, sizes))} examples: below 2\^63 works"):
            scheme(sizes, 1)
    with pytest.raises(
        BadInput, match=r"must be whole numbers of examples below 2\^63, not \[9223372036854775808, -1\]"
    ):
        by_size([2**63, -1], 1)


def test_by_size_is_the_worked_example_of_five_clients():
    # from the paper's formulas, computed outside this project
    f = Fraction
    urns = BySize().distributions([5, 4, 3, 2, 1], 3)
    assert urns.fractions() == (
        (1, 0, 0, 0, 0),
        (0, f(4, 5), f(1, 5), 0, 0),
        (0, 0, f(2, 5), f(2, 5), f(1, 5)),
    )
    assert urns.variances() == (0, f(4, 225), f(2, 45), f(2, 75), f(4, 225))
    multinomial = Multinomial().distributions([5, 4, 3, 2, 1], 3)
    assert multinomial.variances() == (f(2, 27), f(44, 675), f(4, 75), f(26, 675), f(14, 675))


def test_closed_forms_are_what_counting_every_possible_draw_gives():
    sizes, m = [3, 1, 2, 1], 3
    for urns in (BySize().distributions(sizes, m), Multinomial().distributions(sizes, m)):
        r, clients = urns.fractions(), range(len(sizes))
        mean, square, chance, distinct = [Fraction(0)] * 4, [Fraction(0)] * 4, [Fraction(0)] * 4, Fraction(0)
        for drawn in itertools.product(clients, repeat=m):
            likely = math.prod(r[k][i] for k, i in enumerate(drawn))
            for i in clients:
                weight = Fraction(drawn.count(i), m)
                mean[i] += likely * weight
                square[i] += likely * weight**2
                chance[i] += likely * (i in drawn)
            distinct += likely * len(set(drawn))
        assert mean == chances_of(sizes)  # Eq. 12
        assert urns.variances() == tuple(s - e * e for s, e in zip(square, mean, strict=True))  # Eqs. 13-16
        assert urns.chances() == tuple(chance)  # Eqs. 18-22
        assert urns.distinct == pytest.approx(float(distinct), rel=1e-12)
        assert urns.variance == pytest.approx(float(sum(urns.variances())), rel=1e-12)


class EveryTicket:
    """Stands where a generator stands, and gives out these numbers."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.numbers = numbers

    def integers(self, low: int, high: int, size: int) -> np.ndarray:
        assert (low, high, size) == (0, 15, 3)
        return np.array(self.numbers)


def test_drawing_every_ticket_once_gives_every_client_its_exact_share():
    sizes, m, total = [5, 4, 3, 2, 1], 3, 15
    urns = BySize().distributions(sizes, m)
    weights: Counter[int] = Counter()
    for tickets in itertools.product(range(total), repeat=m):
        drawn = urns.draw(EveryTicket(tickets))
        assert len({one.index for one in drawn}) == len(drawn)
        for one in drawn:
            weights[one.index] += round(one.weight * m)
    assert [Fraction(weights[i], m * total**m) for i in range(5)] == chances_of(sizes)


def test_who_is_drawn_twice_counts_twice():
    # one urn belongs to client 0 alone and the others hold it too: three draws, at most 1 + 2 of them client 0
    drawn = [Multinomial().distributions([9, 1, 1], 3).draw(np.random.default_rng(seed)) for seed in range(50)]
    assert any(len(one) == 1 and one[0] == Draw(0, 1.0) for one in drawn)
    assert all(sum(one.weight for one in draws) == pytest.approx(1) for draws in drawn)


def test_measured_weights_have_the_variance_of_the_closed_form():
    sizes, m, repeats = [50, 20, 10, 10, 5, 5], 4, 4000
    rng = np.random.default_rng(0)
    for sampler in (Multinomial(), BySize(), Original()):
        distributions = sampler.distributions(sizes, m)
        draws = [distributions.draw(rng) for _ in range(repeats)]
        measured = np.array([weight_variance(drawn, sizes) for drawn in draws])
        assert abs(measured.mean() - distributions.variance) < 5 * measured.std() / math.sqrt(repeats) + 1e-12
        found = np.array([len(drawn) for drawn in draws])
        assert abs(found.mean() - distributions.distinct) < 5 * found.std() / math.sqrt(repeats) + 1e-12


def test_multinomial_sees_six_and_a_half_of_ten_digits():
    # 100 clients, ten of each digit, ten draws: 10 (1 - 0.9^10) = 6.513 digits; no client twice in 62.8 % of draws
    distributions = Multinomial().distributions([500] * 100, 10)
    rng = np.random.default_rng(1)
    draws = [[one.index for one in distributions.draw(rng)] for _ in range(3000)]
    assert np.mean([len({i % 10 for i in drawn}) for drawn in draws]) == pytest.approx(6.513, abs=0.1)
    assert np.mean([len(drawn) == 10 for drawn in draws]) == pytest.approx(0.628, abs=0.04)


@given(federations())
def test_uniform_schemes_have_the_spread_of_counting_every_subset(case):
    sizes, m = case
    if math.comb(len(sizes), m) > 300:
        return
    p, subsets = chances_of(sizes), list(itertools.combinations(range(len(sizes)), m))

    def counted(weigh) -> Fraction:
        apart = [sum((weigh(i, s) * (i in s) - p[i]) ** 2 for i in range(len(sizes))) for s in subsets]
        return sum(apart, Fraction(0)) / len(subsets)

    kept = Original().distributions(sizes, m)
    assert kept.variance == pytest.approx(float(counted(lambda i, s: p[i])), rel=1e-9, abs=1e-12)
    alone = Uniform().distributions(sizes, m)
    if len(set(sizes)) == 1 or m == len(sizes):
        by_examples = counted(lambda i, s: Fraction(sizes[i], sum(sizes[j] for j in s)))
        assert alone.variance == pytest.approx(float(by_examples), rel=1e-9, abs=1e-12)
    else:
        assert alone.variance is None
    assert alone.distinct == kept.distinct == m


def test_full_participation_draws_everybody_by_examples():
    drawn = Full().distributions([3, 1, 2], 1).draw(np.random.default_rng(0))
    assert sorted(one.index for one in drawn) == [0, 1, 2]
    assert {one.weight for one in drawn} == {None}
    assert weight_variance(drawn, [3, 1, 2]) == pytest.approx(0)


def test_the_original_weighs_by_shares_of_all_examples():
    drawn = Original().distributions([3, 1, 2, 4], 2).draw(np.random.default_rng(0))
    assert {one.index: one.weight for one in drawn} == {one.index: [0.3, 0.1, 0.2, 0.4][one.index] for one in drawn}


def test_every_draw_of_as_many_as_there_are_equal_clients_is_everybody():
    for sampler in (BySize(), BySimilarity()):
        drawn = sampler.distributions([5] * 7, 7).draw(np.random.default_rng(0))
        assert sorted((one.index, one.weight) for one in drawn) == [(i, 1 / 7) for i in range(7)]


def test_a_client_with_most_of_the_data_has_urns_of_its_own():
    # p = 0.6 and m = 3: 1.8 urns
    for sampler in (BySize(), BySimilarity()):
        r = sampler.distributions([60, 20, 10, 10], 3).fractions()
        assert r[0] == (1, 0, 0, 0)
        assert sum(row[0] for row in r) == Fraction(9, 5)


def test_a_tree_is_cut_into_its_largest_branches_that_fit():
    # ((0 1) (2 3)) and 4, weights 1 each: at most 2 per cluster cuts the middle merge, at most 4 does not
    tree = np.array([[0, 1], [2, 3], [5, 6], [7, 4]])
    assert sorted(cut(tree, [1] * 5, 2)) == [[0, 1], [2, 3], [4]]
    assert sorted(cut(tree, [1] * 5, 4)) == [[0, 1, 2, 3], [4]]
    assert sorted(cut(tree, [1] * 5, 1)) == [[0], [1], [2], [3], [4]]
    assert sorted(cut(tree, [1] * 5, 5)) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "target"])
@pytest.mark.parametrize(
    ("sizes", "m", "message"),
    [
        ([5, 5], 3, "3 draws from 2 clients or groups: at most 2 works"),
        ([5, 5], 0, "must be at least 1, not 0"),
        ([5, 0, 5], 2, "client or group 1 has no examples"),
    ],
)
def test_what_cannot_be_drawn_is_refused(name, sizes, m, message):
    with pytest.raises(BadInput, match=message):
        SAMPLERS[name]().distributions(sizes, m)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "target"])
@pytest.mark.parametrize(
    ("sizes", "m", "message"),
    [
        ([], 1, "no clients or groups to draw from"),
        ([0.5, 1.5], 1, "sizes must be whole numbers"),
        (["5", "3"], 1, "sizes must be whole numbers"),
        ([5, -5], 1, "client or group 1 has no examples"),
        ([5, 5], 1.5, "the number of draws must be a whole number, not 1.5"),
    ],
)
def test_what_is_no_count_of_examples_or_draws_is_refused(name, sizes, m, message):
    with pytest.raises(BadInput, match=message):
        SAMPLERS[name]().distributions(sizes, m)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64])
def test_sizes_in_an_array_do_not_overflow(dtype):
    sizes = [200, 100, 100, 120, 120, 120] if dtype == np.uint8 else [30_000, 20_000, 32_000, 11_000, 1_000, 6_000]
    for sampler in (Multinomial(), BySize(), BySimilarity()):
        assert_unbiased(sampler.distributions(np.array(sizes, dtype=dtype), 4), sizes, 4)
    for sampler in (Uniform(), Original(), Full()):
        exact, found = (sampler.distributions(given, 4) for given in (sizes, np.array(sizes, dtype=dtype)))
        assert found.variance == exact.variance
        assert found.draw(np.random.default_rng(0)) == exact.draw(np.random.default_rng(0))
    assert weight_variance([Draw(0, 0.5)], np.array(sizes, dtype=dtype)) == weight_variance([Draw(0, 0.5)], sizes)


def test_sizes_near_the_end_of_64_bits_stay_exact():
    sizes = [2**60, 2**60 + 1, 2**59, 7]
    for sampler in (Multinomial(), BySize(), BySimilarity()):
        assert_unbiased(sampler.distributions(sizes, 3), sizes, 3)


def test_what_the_page_about_sampling_shows_is_what_one_gets():
    page = (Path(__file__).parents[3] / "docs" / "sampling.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    f = Fraction
    urns = names["urns"]
    assert isinstance(urns, Urns)
    assert urns.fractions() == ((1, 0, 0, 0, 0), (0, f(4, 5), f(1, 5), 0, 0), (0, 0, f(2, 5), f(2, 5), f(1, 5)))
    assert "((1, 0, 0, 0, 0), (0, 4/5, 1/5, 0, 0), (0, 0, 2/5, 2/5, 1/5))" in page
