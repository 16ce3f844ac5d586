"""Every way to cut a data set into clients keeps its promises, for any labels and any number of clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.data import PARTITIONS, Dirichlet, Examples, Federation, Iid, Natural, Partition, Shards, Source, diabetes
from fedrelay.data.partitions.apportion import log_weights, seats, shares
from fedrelay.errors import BadInput


def source_of(labels: list[int], owners: list[int] | None = None) -> Source:
    y = torch.tensor(labels, dtype=torch.int64)
    examples = Examples(torch.arange(len(y), dtype=torch.float32).unsqueeze(1), y)
    classes = max(labels) + 1
    return Source("made up", examples, examples, classes, owners=None if owners is None else np.array(owners))


def rows_of(partition: Partition, source: Source, clients: int | None, seed: int = 0) -> list[np.ndarray]:
    return partition(source, clients, np.random.default_rng(seed))


def balanced(classes: int = 10, each: int = 50) -> Source:
    return source_of([label for label in range(classes) for _ in range(each)])


label_lists = st.lists(st.integers(0, 5), min_size=1, max_size=60)
alphas = st.sampled_from([1e-320, 1e-6, 0.01, 0.5, 100.0, 1e12])
cutters = st.one_of(
    st.just(Iid()),
    st.just(Shards(1)),
    st.builds(Dirichlet, alpha=alphas, draws=st.integers(1, 3), deal=st.sampled_from(["clients", "classes"])),
)


@given(labels=label_lists, partition=cutters, seed=st.integers(0, 99), data=st.data())
def test_every_split_is_disjoint_covers_everything_and_leaves_nobody_empty(
    labels: list[int], partition: Partition, seed: int, data: st.DataObject
) -> None:
    clients = data.draw(st.integers(1, len(labels)))
    parts = rows_of(partition, source_of(labels), clients, seed)
    assert len(parts) == clients
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


@given(labels=label_lists, data=st.data())
def test_one_class_per_client_when_alpha_is_zero(labels: list[int], data: st.DataObject) -> None:
    clients = data.draw(st.integers(len(set(labels)), len(labels)))
    parts = rows_of(Dirichlet(alpha=0), source_of(labels), clients)
    assert len(parts) == clients
    assert all(len({labels[row] for row in part}) == 1 for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for label in set(labels):
        sizes = [len(part) for part in parts if labels[part[0]] == label]
        assert max(sizes) - min(sizes) <= 1


def test_alpha_zero_gives_equal_sizes_when_the_classes_are_equal() -> None:
    parts = rows_of(Dirichlet(alpha=0), balanced(10, 50), 50)
    assert {len(part) for part in parts} == {10}


def test_clients_go_to_classes_by_largest_remainder() -> None:
    # Quotas 4.8, 3.6, 1.6: floors 4, 3, 1 and the two left go to the remainders .8 and .6 (the first of the equal two).
    assert seats(np.array([48, 36, 16]), 10).tolist() == [5, 4, 1]
    # Quotas 9.8, 0.1, 0.1: every class must have one, so the large class gives one up.
    assert seats(np.array([98, 1, 1]), 10).tolist() == [8, 1, 1]


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5])
def test_the_papers_clients_have_equally_many_examples_whatever_alpha(alpha: float) -> None:
    # 500 clients of 100 images each (FedSeq journal 2024, Section IV-A), here a tenth of it
    assert {len(part) for part in rows_of(Dirichlet(alpha), balanced(10, 500), 50)} == {100}


def test_the_class_mix_of_a_client_is_a_draw_from_the_dirichlet_distribution() -> None:
    # The sum of squared shares of Dir(alpha) over C classes is (alpha + 1) / (C alpha + 1) on average. Clients
    # draw in random order, and a class has run out only for the last of them.
    source = balanced(4, 2000)
    mixes = [rows_of(Dirichlet(0.5), source, 100, seed)[:3] for seed in range(60)]
    squares = [
        ((np.bincount(source.train.labels[part], minlength=4) / len(part)) ** 2).sum()
        for parts in mixes
        for part in parts
    ]
    assert np.mean(squares) == pytest.approx(1.5 / 3, abs=0.04)


def test_a_smaller_alpha_gives_fewer_classes_per_client() -> None:
    source = balanced()

    def classes_per_client(alpha: float) -> float:
        return float((Federation.split(source, Dirichlet(alpha), 10).label_counts() > 0).sum(axis=1).mean())

    assert classes_per_client(0.01) < classes_per_client(0.3) < classes_per_client(100)


def test_a_vanishing_alpha_gives_every_class_to_as_few_clients_as_possible() -> None:
    # Ten classes, ten clients, each full after one class: the draw must be one class each.
    counts = Federation.split(balanced(), Dirichlet(1e-6), 10).label_counts()
    assert ((counts > 0).sum(axis=1) == 1).all()


def test_a_client_that_has_its_even_share_gets_nothing_of_the_next_class() -> None:
    # Two clients and three classes: whoever holds half of the examples after a class is skipped for the rest.
    counts = Federation.split(balanced(3, 40), Dirichlet(1e-6, draws=1, deal="classes"), 2).label_counts()
    assert sorted(counts.sum(axis=1).tolist()) == [40, 80]


def test_more_draws_make_the_sizes_more_even() -> None:
    source = balanced()

    def spread(draws: int) -> float:
        by_class = Dirichlet(0.5, draws=draws, deal="classes")
        return float(np.mean([np.std([len(part) for part in rows_of(by_class, source, 20, s)]) for s in range(10)]))

    assert spread(50) < spread(1)


def test_the_smallest_client_has_at_least_as_many_examples_as_asked() -> None:
    parts = rows_of(Dirichlet(0.05, smallest=10, deal="classes"), balanced(), 40)
    assert min(map(len, parts)) >= 10


def test_a_restricted_dirichlet_draw_is_a_dirichlet_draw_of_the_allowed() -> None:
    rng = np.random.default_rng(0)
    allowed = np.array([True, False, True, True])
    draws = np.array([shares(log_weights(np.array([1.0, 5.0, 2.0, 0.0]), rng), allowed) for _ in range(4000)])
    assert (draws[:, [1, 3]] == 0).all()
    # Dir(1, 2) is Beta(1, 2): mean 1/3, variance 1/18.
    assert draws[:, 0].mean() == pytest.approx(1 / 3, abs=0.02)
    assert draws[:, 0].var() == pytest.approx(1 / 18, abs=0.005)


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
def test_a_dirichlet_draw_with_a_small_alpha_has_the_right_second_moment(alpha: float) -> None:
    # E[p²] = (alpha + 1) / (K (K alpha + 1)), also where gamma variates underflow.
    rng = np.random.default_rng(1)
    everybody = np.ones(4, dtype=bool)
    second = np.mean([(shares(log_weights(np.full(4, alpha), rng), everybody) ** 2).mean() for _ in range(4000)])
    assert second == pytest.approx((alpha + 1) / (4 * (4 * alpha + 1)), rel=0.03)


def test_shards_give_every_client_at_most_its_number_of_classes_when_classes_are_whole_shards() -> None:
    counts = Federation.split(balanced(10, 50), Shards(2), 25).label_counts()
    assert (counts.sum(axis=1) == 20).all()
    assert ((counts > 0).sum(axis=1) <= 2).all()


def test_iid_sizes_differ_by_at_most_one() -> None:
    sizes = [len(part) for part in rows_of(Iid(), balanced(3, 11), 10)]
    assert sorted(sizes) == [3] * 7 + [4] * 3


def test_natural_clients_are_the_owners_in_order() -> None:
    source = source_of([0, 1, 0, 1, 0], owners=[7, 2, 7, 4, 2])
    assert [part.tolist() for part in rows_of(Natural(), source, None)] == [[1, 4], [3], [0, 2]]
    assert [part.tolist() for part in rows_of(Natural(), source, 2)] == [[1, 4], [3]]


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(0), Dirichlet(0.3), Dirichlet(0.3, deal="classes"), Shards()])
def test_the_seed_decides_the_split(partition: Partition) -> None:
    source = balanced()
    first, again, other = (Federation.split(source, partition, 20, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.order, again.order)
    assert torch.equal(first.starts, again.starts)
    assert not torch.equal(first.order, other.order)


@pytest.mark.parametrize(
    ("partition", "clients", "reason"),
    [
        (Iid(), 501, "the largest number of clients that works is 500"),
        (Iid(), 0, "at least 1"),
        (Iid(), None, "must be told the number of clients"),
        (Dirichlet(0.5), 2000, "the largest number of clients that works is 500"),
        (Dirichlet(0.5, smallest=10), 51, "the largest number of clients that works is 50"),
        (Dirichlet(0), 9, "the smallest number of clients that works is 10"),
        (Dirichlet(0, smallest=20), 25, "leaves a client with 16 examples instead of 20"),
        (Shards(2), 251, "the largest number of clients that works is 250"),
        (Natural(), None, "does not say who made"),
    ],
)
def test_an_impossible_split_is_refused_with_the_reason(partition: Partition, clients: int | None, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        Federation.split(balanced(), partition, clients)


def test_more_natural_clients_than_owners_are_refused() -> None:
    with pytest.raises(BadInput, match="ask for 1 to 2"):
        rows_of(Natural(), source_of([0, 0, 0], owners=[0, 1, 1]), 3)


def test_owners_must_be_named_for_every_example() -> None:
    with pytest.raises(BadInput, match="owners for 2 examples but has 3"):
        rows_of(Natural(), source_of([0, 0, 0], owners=[0, 1]), None)


@pytest.mark.parametrize("alpha", [-0.1, float("nan"), float("inf")])
def test_a_senseless_alpha_is_refused(alpha: float) -> None:
    with pytest.raises(BadInput, match="alpha"):
        Dirichlet(alpha)


def test_every_partition_of_the_table_can_be_made_without_arguments() -> None:
    assert list(PARTITIONS)[:4] == ["iid", "dirichlet", "shards", "natural"]
    source = source_of([0, 1] * 1000, owners=[0, 1] * 1000)
    numbers = diabetes()
    for name, make in PARTITIONS.items():
        assert len(Federation.split(numbers if name == "quantiles" else source, make(), 2)) == 2
