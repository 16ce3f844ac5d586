"""Groups: every grouper places every client exactly once and keeps its limits; each does what its paper says."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, cosine
from scipy.stats import entropy

from fedrelay.errors import BadInput
from fedrelay.plans import DISTANCES, GROUPERS, Grouping, Limits, Traits, limits_of
from fedrelay.plans.grouping import assignment
from fedrelay.plans.grouping.assignment import assign
from fedrelay.plans.grouping.distances import Cosine, Euclidean, Gini, KullbackLeibler, Wasserstein
from fedrelay.plans.grouping.groupers import Greedy, KMeans, Random, dealt
from fedrelay.plans.grouping.groups import fill
from fedrelay.plans.grouping.icg import Icg, balanced_clusters
from fedrelay.runs.measures import balance_ratio, group_counts
from fedrelay.visits.probe_networks import SameModel
from fedrelay.visits.traits import TRAITS, ClassHistogram, ClassifierWeights, Confidence, Task2Vec


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def one_hot(clients: int, classes: int, mass: float = 1.0) -> Traits:
    """Clients of one class each, in turn; `mass` on the own class, the rest even."""
    rows = np.full((clients, classes), (1 - mass) / (classes - 1))
    rows[np.arange(clients), np.arange(clients) % classes] = mass
    return Traits(rows, classes)


def clients_of(groups) -> list[int]:
    return sorted(client for group in groups for client in group)


@st.composite
def problems(draw):
    """Sizes, traits and limits that can be met."""
    count = draw(st.integers(1, 14))
    sizes = draw(st.lists(st.integers(1, 30), min_size=count, max_size=count))
    rows = draw(
        st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=count, max_size=count).map(np.array)
    )
    limits = draw(
        st.one_of(
            st.builds(Limits, groups=st.integers(1, count)),
            st.builds(
                Limits,
                min_examples=st.one_of(st.none(), st.integers(1, sum(sizes))),
                max_clients=st.integers(1, count + 2),
            ),
            st.builds(Limits, min_examples=st.integers(1, sum(sizes))),
        )
    )
    return sizes, Traits(rows + 0.5, draw(st.integers(1, 5))), limits


GROUPER = st.sampled_from(
    [Random(), Greedy(), Greedy("halving"), Greedy("published"), KMeans(), KMeans(clusters=2, starts=1), Icg(), Icg(1)]
)


@settings(max_examples=300, deadline=None)
@given(problems(), GROUPER, st.sampled_from(sorted(DISTANCES)), st.integers(0, 99))
def test_every_grouper_is_a_partition_that_respects_its_limits(problem, grouper, distance, seed):
    sizes, traits, limits = problem
    measure = DISTANCES[distance if distance in grouper.needs else "euclidean"]()
    groups = grouper(traits, sizes, measure, limits, rng(seed))
    assert clients_of(groups) == list(range(len(sizes)))
    assert all(groups)
    assert groups == tuple(sorted(tuple(sorted(group)) for group in groups))
    assert groups == grouper(traits, sizes, measure, limits, rng(seed))
    lengths = [len(group) for group in groups]
    examples = [sum(sizes[client] for client in group) for group in groups]
    if limits.groups is not None:
        assert len(groups) == limits.groups
        assert max(lengths) - min(lengths) <= 1
    if limits.max_clients is not None:
        assert max(lengths) <= limits.max_clients
    elif limits.min_examples is not None:
        assert min(examples) >= limits.min_examples


@pytest.mark.parametrize("grouper", [Random(), Greedy(), KMeans(), Icg()])
def test_the_papers_setting_gives_58_groups_of_8_and_4_of_9(grouper):
    # 500 clients of 100 images, at least 800 examples, at most 11 clients (FedSeq 2022, App. E; the authors' count)
    groups = grouper(one_hot(500, 10), [100] * 500, Euclidean(), Limits(800, 11), rng())
    lengths = [len(group) for group in groups]
    assert (lengths.count(8), lengths.count(9), len(lengths)) == (58, 4, 62)


@pytest.mark.parametrize("grouper", [Greedy(), KMeans(), Icg()])
@pytest.mark.parametrize("distance", [Cosine(), Euclidean()])
def test_unlike_clients_come_together_where_random_groups_do_not(grouper, distance):
    traits = one_hot(100, 10, mass=0.9)
    counts = np.zeros((100, 10), dtype=np.int64)
    counts[np.arange(100), np.arange(100) % 10] = 20
    limits = Limits(max_clients=10)
    informed = grouper(traits, [20] * 100, distance, limits, rng(3))
    random = Random()(traits, [20] * 100, distance, limits, rng(3))
    assert balance_ratio(group_counts(counts, informed)).min() == 1
    assert balance_ratio(group_counts(counts, random)).mean() < 0.1


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(0, 10**6))
def test_the_assignment_of_icg_is_the_brute_force_optimum(columns, size, seed):
    costs = rng(seed).gamma(1.0, size=(columns * size, columns)) ** 3
    labels, _ = assign(costs, size)
    assert np.bincount(labels, minlength=columns).tolist() == [size] * columns
    rows = np.arange(columns * size)
    balanced = set(itertools.permutations(np.repeat(np.arange(columns), size).tolist())) if len(rows) <= 8 else None
    if balanced is None:  # the same optimum as a square assignment problem, by another solver
        from scipy.optimize import linear_sum_assignment

        square = np.repeat(costs, size, axis=1)
        best = square[linear_sum_assignment(square)].sum()
    else:
        best = min(costs[rows, list(one)].sum() for one in balanced)
    assert costs[rows, labels].sum() == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("like", ["random", "points", "copies", "all the same"])
@pytest.mark.parametrize("guess", [None, "wild"])
@pytest.mark.parametrize(("columns", "size"), [(120, 1), (110, 3)])
def test_with_many_clusters_the_assignment_is_the_optimum_though_not_all_are_shown(
    columns, size, guess, like, monkeypatch
):
    from scipy.optimize import linear_sum_assignment

    monkeypatch.setattr(assignment, "BLOCK", 3000)  # several blocks, the last one smaller
    monkeypatch.setattr(assignment, "SHOWN", 4)
    rows, draw = columns * size, rng(columns)
    costs = {
        "random": draw.gamma(1.0, size=(rows, columns)) ** 3,
        "points": cdist(draw.normal(size=(rows, 3)), draw.normal(size=(columns, 3)), "sqeuclidean"),
        "copies": np.repeat(draw.gamma(1.0, size=(5, columns)), rows, axis=0)[draw.permutation(5 * rows)[:rows]],
        "all the same": np.full((rows, columns), 3.0),
    }[like]
    prices = None if guess is None else 100 * draw.normal(size=columns)
    labels, found = assign(costs, size, prices)
    assert np.bincount(labels, minlength=columns).tolist() == [size] * columns
    square = np.repeat(costs, size, axis=1)
    best = square[linear_sum_assignment(square)].sum()
    rounding = rows * np.ptp(costs) / 2**30  # costs are whole numbers for the solver
    assert costs[np.arange(rows), labels].sum() == pytest.approx(best, abs=rounding, rel=1e-12)
    # at the prices nobody would rather be elsewhere, which is what proves it
    reduced = costs - found
    assert (reduced[np.arange(rows), labels] <= reduced.min(axis=1) + 1e-6 * np.ptp(costs)).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6))
def test_the_cost_of_icg_never_rises_and_ends_at_or_below_the_random_start(count, size, seed):
    points = rng(seed).normal(size=(count * size, 3)).round(1)
    labels, costs = balanced_clusters(points, count, rng(seed + 1), iterations=20)
    assert np.bincount(labels, minlength=count).tolist() == [size] * count
    assert all(after < before for before, after in itertools.pairwise(costs))
    # the reported cost is that of the clusters, recomputed here by scipy
    centroids = np.stack([points[labels == number].mean(axis=0) for number in range(count)])
    found = cdist(points, centroids, "sqeuclidean")[np.arange(len(points)), labels].sum()
    assert found == pytest.approx(costs[-1], abs=1e-9)


def test_icg_finds_clusters_that_are_there():
    rows = np.repeat(rng(2).normal(size=(4, 3)) * 10, 15, axis=0) + rng(3).normal(scale=0.01, size=(60, 3))
    labels, costs = balanced_clusters(rows, 4, rng(), iterations=50)
    assert costs[-1] < 1e-3 * costs[0]
    assert {tuple(sorted(set(labels[start : start + 15].tolist()))) for start in range(0, 60, 15)} == {
        (0,),
        (1,),
        (2,),
        (3,),
    }


def test_icg_places_those_that_are_left_over_one_to_a_group():
    groups = Icg()(one_hot(11, 3), [1] * 11, Euclidean(), Limits(groups=3), rng())
    assert sorted(map(len, groups)) == [3, 4, 4]


@pytest.mark.parametrize("seed", range(6))
def test_clusters_of_icg_may_have_more_clients_than_there_are_groups(seed):
    # FedGSP Alg. 2 line 1: 14 clients in 5 groups are L = 2 clusters of 7, and here there are 7 clients of each class
    groups = Icg()(one_hot(14, 2), [1] * 14, Euclidean(), Limits(groups=5), rng(seed))
    assert [sorted({client % 2 for client in group}) for group in groups] == [[0, 1]] * 5
    assert clients_of(groups) == list(range(14))


def test_icg_can_let_those_rest_that_are_left_over_as_the_paper_does():
    groups = Icg(left_over="rest")(one_hot(14, 2), [1] * 14, Euclidean(), Limits(groups=5), rng())
    assert [len(group) for group in groups] == [2] * 5
    assert len({*clients_of(groups)}) == 10


def test_icg_with_a_minimum_of_examples_evens_out_unlike_sizes():
    sizes = rng(1).integers(1, 200, size=120).tolist()
    groups = Icg()(one_hot(120, 10), sizes, Euclidean(), Limits(min_examples=800), rng())
    examples = [sum(sizes[client] for client in group) for group in groups]
    assert min(examples) >= 800
    assert len(groups) >= 0.8 * (sum(sizes) // 800)  # near the most that could be


class AlwaysFirst:
    """A generator whose every draw is the first of those left."""

    def integers(self, high):
        return 0


def naive_greedy(rows, clients, distance):
    """Alg. 3 with the group's mean, as plainly as it can be written: groups of so many clients. The distance is that
    of a row to the rows of a group."""
    left, groups = list(range(len(rows))), []
    while left:
        group = []
        while left and len(group) < clients:
            if group:
                members = rows[group]
                best = max(left, key=lambda client: (round(distance(rows[client], members), 9), -client))
            else:
                best = left[0]
            left[left.index(best)] = left[-1]  # whoever is taken gives its place to the last one
            left.pop()
            group.append(best)
        groups.append(sorted(group))
    return sorted(groups)


@pytest.mark.parametrize(
    ("distance", "plain"),
    [
        (Euclidean(), lambda row, group: float(np.linalg.norm(row - group.mean(0)))),
        (Cosine(), lambda row, group: float(cosine(row, group.mean(0)))),
        (Gini(), lambda row, group: float(1 - (np.vstack([group, row]).mean(0) ** 2).sum())),
        (KullbackLeibler(), lambda row, group: 1 - float(entropy(np.vstack([group, row]).mean(0), np.full(4, 0.25)))),
    ],
)
def test_greedy_is_the_papers_algorithm_written_plainly(distance, plain):
    rows = rng(5).dirichlet(np.full(4, 0.4), size=30)
    groups = Greedy()(Traits(rows, 4), [5] * 30, distance, Limits(max_clients=6), AlwaysFirst())
    assert [list(group) for group in groups] == naive_greedy(rows, 6, plain)


@pytest.mark.parametrize("distance", [KullbackLeibler(), Gini()])
def test_scores_of_soft_confidences_make_even_groups_and_those_of_a_half_mix_do_not(distance):
    # 100 clients of one class each, whose models are 53 to 76 % sure of it, as on the digits
    classes, sure = rng(1).permutation(np.arange(100) % 10), rng(0).uniform(0.53, 0.76, size=100)
    rows = np.tile((1 - sure)[:, None] / 9, 10)
    rows[np.arange(100), classes] = sure

    def covered(rule):
        groups = Greedy(rule)(Traits(rows, 10), [1] * 100, distance, Limits(groups=10), rng())
        return np.mean([len({*classes[list(group)]}) for group in groups])

    assert covered("mean") == 10
    assert covered("published") < 9.5
    assert covered("halving") < 9


def test_greedy_opens_a_group_with_a_random_client_unless_it_is_told_to_do_as_published():
    traits = one_hot(12, 3, mass=0.8)
    limits = Limits(max_clients=3)
    drawn = {Greedy()(traits, [1] * 12, Gini(), limits, rng(seed)) for seed in range(20)}
    published = {Greedy("published")(traits, [1] * 12, Gini(), limits, rng(seed)) for seed in range(20)}
    assert len(drawn) > 1
    assert len(published) == 1


def test_greedy_as_published_falls_back_to_client_order_when_no_score_is_above_zero():
    # with mass 0.9 on one of 100 classes the authors' KL score is never positive (read off their code)
    groups = Greedy("published")(
        one_hot(200, 100, mass=0.9), [1] * 200, KullbackLeibler(), Limits(max_clients=8), rng()
    )
    assert groups == tuple(tuple(range(start, start + 8)) for start in range(0, 200, 8))
    assert groups != Greedy()(one_hot(200, 100, mass=0.9), [1] * 200, KullbackLeibler(), Limits(max_clients=8), rng())


def test_the_first_client_as_published_is_the_one_nearest_to_uniform_by_kl():
    rows = np.array([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.0, 0.2, 0.8], [0.1, 0.9, 0.0]])
    groups = Greedy("published")(Traits(rows, 3), [1] * 4, KullbackLeibler(), Limits(max_clients=1), rng())
    assert len(groups) == 4
    pairs = Greedy("published")(Traits(rows, 3), [1, 1, 1, 1], KullbackLeibler(), Limits(max_clients=2), rng())
    # client 1 opens; with it client 2 makes (0.2, 0.25, 0.55), 3 makes (0.25, 0.6, 0.15), 0 makes (0.65, 0.2, 0.15)
    entropies = {c: -((m := (rows[c] + rows[1]) / 2) * np.log(m)).sum() for c in (0, 2, 3)}
    assert (1, max(entropies, key=entropies.get)) in pairs or (max(entropies, key=entropies.get), 1) in pairs


def test_the_halving_rule_weighs_the_newest_client_by_half():
    rows = np.eye(3)
    centre = np.array([1.0, 0, 0])
    for number, client in enumerate((1, 2), start=1):
        centre += (rows[client] - centre) * Greedy("halving").share(number, number, 1)
    np.testing.assert_allclose(centre, [0.25, 0.25, 0.5])
    mean = rows[0].copy()
    for number, client in enumerate((1, 2), start=1):
        mean += (rows[client] - mean) * Greedy().share(number, number, 1)
    np.testing.assert_allclose(mean, [1 / 3] * 3)
    assert Greedy("published").share(1, 30, 10) == 0.25


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(0, 99))
def test_dealing_takes_one_of_every_cluster_in_turn(labels, seed):
    labels = np.array(labels)
    order = dealt(labels, rng(seed))
    assert sorted(order) == list(range(len(labels)))
    left = {int(cluster): int((labels == cluster).sum()) for cluster in np.unique(labels)}
    expected = []
    while any(left.values()):
        for cluster in sorted(left):
            if left[cluster]:
                expected.append(cluster)
                left[cluster] -= 1
    assert labels[order].tolist() == expected


def test_kmeans_makes_as_many_clusters_as_classes_unless_told():
    rows = np.concatenate([one_hot(40, 8).rows, one_hot(40, 8).rows + 0.01])
    assert len(set(KMeans().labels(rows, 8, rng()).tolist())) == 8
    assert len(set(KMeans(clusters=3).labels(rows, 8, rng()).tolist())) == 3
    assert set(KMeans().labels(np.ones((5, 2)), 8, rng()).tolist()) == {0}


def test_groups_filled_in_order_are_closed_at_whichever_limit_comes_first():
    assert fill(range(6), [5, 5, 1, 1, 1, 9], Limits(10, 3)) == ((0, 1, 5), (2, 3, 4))
    assert fill(range(5), [5, 5, 1, 1, 1], Limits(min_examples=10)) == ((0, 1, 2, 3, 4),)
    assert fill(range(7), [1] * 7, Limits(max_clients=3)) == ((0, 1, 2), (3, 4, 5), (6,))
    assert fill(range(7), [1] * 7, Limits(groups=3)) == ((0, 1, 2), (3, 4), (5, 6))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"min_examples": 101}, "min_examples = 101 but all clients together have 100: at most that works"),
        ({"groups": 11}, "groups = 11 but there are 10 clients: at most that works"),
    ],
)
@pytest.mark.parametrize("grouper", [Random(), Greedy(), KMeans(), Icg()])
def test_limits_that_cannot_be_met_are_refused_with_what_works(grouper, limits, message):
    with pytest.raises(BadInput, match=message):
        grouper(one_hot(10, 2), [10] * 10, Euclidean(), Limits(**limits), rng())


def test_limits_that_make_no_sense_are_refused():
    with pytest.raises(BadInput, match="min_examples, max_clients or a number of groups"):
        Limits()
    with pytest.raises(BadInput, match="groups = 3 and max_clients = 5: give one or the other"):
        Limits(max_clients=5, groups=3)
    with pytest.raises(BadInput, match="max_clients must be at least 1, not 0"):
        Limits(max_clients=0)
    assert limits_of(None, None, None) == Limits(max_clients=10)
    assert limits_of(None, None, 4) == Limits(groups=4)


@pytest.mark.parametrize(
    ("traits", "distance", "grouper", "message"),
    [
        (ClassifierWeights(), Gini(), Greedy(), "gini has no meaning.*network weights.*class shares.*kl, gini"),
        (Task2Vec(SameModel()), KullbackLeibler(), Greedy(), "kl has no meaning for a trait of Fisher information"),
        (
            Task2Vec(SameModel()),
            Wasserstein(),
            Greedy(),
            "pairs that work.*task2vec.* with cosine, euclidean, normalised",
        ),
        (Confidence(), KullbackLeibler(), KMeans(), "kmeans cannot work with distance kl.*takes euclidean or cosine"),
        (ClassHistogram(), Gini(), Icg(), "icg cannot work with distance gini"),
        (None, None, Greedy(), "greedy needs traits"),
        (ClassHistogram(), None, Random(), "random looks at no trait, so traits would do nothing"),
        (None, Cosine(), Random(), "random looks at no trait, so distance would do nothing"),
    ],
)
def test_meaningless_pairs_are_refused_with_those_that_work(traits, distance, grouper, message):
    with pytest.raises(BadInput, match=message):
        Grouping(traits, distance, grouper)


def test_the_default_distance_is_the_one_the_papers_found_best_and_the_grouper_can_take():
    assert Grouping(Confidence(), None, Greedy()).measure == KullbackLeibler()
    assert Grouping(ClassifierWeights(), None, Greedy()).measure == Cosine()
    assert Grouping(Confidence(), None, KMeans()).measure == Euclidean()
    assert Grouping(ClassifierWeights(), None, KMeans()).measure == Euclidean()
    assert Grouping(ClassifierWeights(), None, Icg()).measure == Euclidean()
    assert Grouping(ClassHistogram(), None, Icg()).measure == Euclidean()


@pytest.mark.parametrize("table", [TRAITS, GROUPERS, DISTANCES])
def test_all_that_is_configured_pickles(table):
    for kind in table.values():
        assert pickle.loads(pickle.dumps(kind())) == kind()


def test_identical_traits_do_no_harm_to_any_grouper():
    traits = Traits(np.ones((12, 3)), 3)
    for grouper in (Greedy(), KMeans(), Icg()):
        assert clients_of(grouper(traits, [1] * 12, Euclidean(), Limits(groups=4), rng())) == list(range(12))


@pytest.mark.parametrize("left_over", ["join", "rest"])
@pytest.mark.parametrize(
    ("clients", "groups", "at_once"), [(300, 30, 100), (307, 29, 50), (1000, 3, 100), (500, 2, 30)]
)
def test_icg_by_parts_makes_the_groups_asked_for(clients, groups, at_once, left_over):
    rows = np.random.default_rng(0).integers(0, 9, (clients, 4)).astype(float)
    grouper = Icg(at_once=at_once, left_over=left_over)
    found = grouper(Traits(rows, 4), [5] * clients, Euclidean(), Limits(groups=groups), rng(1))
    assert len(found) == groups
    placed = [client for group in found for client in group]
    assert len(placed) == len(set(placed))
    if left_over == "join":
        assert len(placed) == clients
        lengths = [len(group) for group in found]
        assert max(lengths) - min(lengths) <= 2
    else:
        assert len(placed) > 0.9 * clients


def test_icg_of_all_at_once_is_the_exact_one_and_more_than_the_stated_number_go_by_parts(monkeypatch):
    rows = np.random.default_rng(0).integers(0, 9, (200, 4)).astype(float)

    def made(grouper):
        return grouper(Traits(rows, 4), [5] * 200, Euclidean(), Limits(groups=20), rng(1))

    exact = made(Icg())
    assert made(Icg(at_once=200)) == exact
    assert made(Icg(at_once=199)) != exact
    monkeypatch.setattr("fedrelay.plans.grouping.icg.EXACT", 199)
    monkeypatch.setattr("fedrelay.plans.grouping.icg.AT_ONCE", 100)
    assert made(Icg()) == made(Icg(at_once=100)) != exact


def test_icg_by_parts_is_nearer_to_the_mix_of_all_than_chance_and_almost_as_near_as_exactly():
    draw = np.random.default_rng(0)
    counts = draw.multinomial(20, draw.dirichlet(np.full(5, 0.3), 1200))

    def apart(grouper):
        found = grouper(Traits(counts.astype(float), 5), [20] * 1200, Euclidean(), Limits(groups=60), rng(2))
        mixes = np.array([counts[list(group)].sum(axis=0) for group in found]) / 400
        return np.linalg.norm(mixes - counts.sum(axis=0) / counts.sum(), axis=1).mean()

    exact, parts, chance = apart(Icg()), apart(Icg(at_once=400)), apart(Random())
    assert parts < 1.2 * exact
    assert parts < 0.75 * chance
