"""Splits that start from the client: sizes, class mixes and domains come out as asked, for any labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.data import DirichletClients, Domains, Examples, Federation, OneClass, Partition, QuantitySkew, Source
from fedrelay.data.partitions.apportion import cut
from fedrelay.errors import BadInput

PACS = ("art_painting", "cartoon", "photo", "sketch")


def source_of(labels: list[int], owners: list[int] | None = None, names: tuple[str, ...] = ()) -> Source:
    y = torch.tensor(labels, dtype=torch.int64)
    examples = Examples(torch.zeros(len(y), 1), y)
    numbers = None if owners is None else np.array(owners)
    return Source("made up", examples, examples, max(labels) + 1, owners=numbers, owner_names=names)


def rows_of(partition: Partition, source: Source, clients: int | None, seed: int = 0) -> list[np.ndarray]:
    return partition(source, clients, np.random.default_rng(seed))


def balanced(classes: int = 10, each: int = 50) -> Source:
    return source_of([label for label in range(classes) for _ in range(each)])


label_lists = st.lists(st.integers(0, 5), min_size=1, max_size=60)
alphas = st.sampled_from([1e-320, 1e-6, 0.01, 0.5, 100.0, 1e12])


@given(labels=label_lists, alpha=alphas, seed=st.integers(0, 99), data=st.data())
def test_dirichlet_clients_are_disjoint_cover_everything_and_have_equal_sizes(
    labels: list[int], alpha: float, seed: int, data: st.DataObject
) -> None:
    clients = data.draw(st.integers(1, len(labels)))
    parts = rows_of(DirichletClients(alpha), source_of(labels), clients, seed)
    sizes = [len(part) for part in parts]
    assert len(sizes) == clients
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


def test_dirichlet_clients_with_alpha_zero_have_one_class_each() -> None:
    counts = Federation.split(balanced(), DirichletClients(0), 23).label_counts()
    assert ((counts > 0).sum(axis=1) == 1).all()


def test_dirichlet_clients_with_a_large_alpha_have_the_mix_of_all_data() -> None:
    source = source_of([0] * 600 + [1] * 300 + [2] * 100)
    counts = Federation.split(source, DirichletClients(1e9), 10).label_counts()
    assert np.abs(counts - np.array([60, 30, 10])).max() <= 2


def test_clients_of_one_example_have_every_class_as_often_as_there_is_stock_whatever_its_number() -> None:
    # Rounding must not favour a class: of the first clients to draw, each class gets its share on average.
    rng = np.random.default_rng(0)
    total = sum(cut(1, np.array([0.6, 0.3, 0.1]), rng) for _ in range(4000))
    assert total / 4000 == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_alpha_of_dirichlet_clients_is_shared_among_the_classes() -> None:
    # Hsu's Dir(alpha p): for a client, E[sum q²] = (alpha sum p² + 1) / (alpha + 1); here sum p² = 1/4 and alpha = 1.
    # A tenth of the clients draw from a stock that hardly runs out, so their mixes are Dirichlet draws.
    source = balanced(4, 4000)
    found = []
    for seed in range(40):
        parts = rows_of(DirichletClients(1.0), source, 100, seed)
        mixes = np.array([np.bincount(source.train.labels[part], minlength=4) for part in parts]) / 160
        found.append((mixes**2).sum(axis=1).mean())
    assert np.mean(found) == pytest.approx((1 / 4 + 1) / 2, abs=0.03)


@given(
    labels=st.lists(st.integers(0, 4), min_size=30, max_size=80),
    alpha=st.sampled_from([0.0, 1e-6, 0.1, 10.0]),
    repeat=st.booleans(),
    seed=st.integers(0, 99),
)
def test_quantity_skew_gives_exactly_the_sizes_asked_for(
    labels: list[int], alpha: float, repeat: bool, seed: int
) -> None:
    partition = QuantitySkew(alpha, sizes=(1, 4, 7), clients_each=(3, 2, 2), repeat=repeat)
    parts = rows_of(partition, source_of(labels), None, seed)
    assert [len(part) for part in parts] == [1, 1, 1, 4, 4, 7, 7]
    rows = np.concatenate(parts)
    assert 0 <= rows.min() <= rows.max() < len(labels)
    assert repeat or len(set(rows.tolist())) == len(rows)


def test_the_quantity_skew_of_the_paper_is_100_clients_of_48500_examples() -> None:
    sizes = Federation.split(balanced(10, 5000), QuantitySkew(alpha=0.01)).sizes
    assert sizes == (100,) * 10 + (250,) * 30 + (500,) * 30 + (750,) * 20 + (1000,) * 10


def test_another_number_of_clients_keeps_the_proportions_of_the_sizes() -> None:
    # A fifth of the paper's clients: 2, 6, 6, 4 and 2 of each size.
    sizes = Federation.split(balanced(10, 5000), QuantitySkew(), 20).sizes
    assert sizes == (100,) * 2 + (250,) * 6 + (500,) * 6 + (750,) * 4 + (1000,) * 2


def test_quantity_skew_with_replacement_gives_one_class_when_alpha_vanishes() -> None:
    counts = Federation.split(balanced(10, 20), QuantitySkew(alpha=0, repeat=True)).label_counts()
    assert ((counts > 0).sum(axis=1) == 1).all()
    assert ((counts > 0).sum(axis=0) > 0).all()


def test_a_large_alpha_makes_the_classes_of_a_quantity_skew_even() -> None:
    counts = Federation.split(balanced(10, 5000), QuantitySkew(alpha=1e9)).label_counts()
    assert np.abs(counts - counts.sum(axis=1, keepdims=True) / 10).max() <= 1


def test_one_class_goes_round_the_classes_and_nobody_shares() -> None:
    source = balanced(10, 50)
    parts = rows_of(OneClass(size=5), source, 100)
    assert all(source.train.labels[part].tolist() == [client % 10] * 5 for client, part in enumerate(parts))
    assert len(np.unique(np.concatenate(parts))) == 500


def test_clients_of_one_class_can_follow_one_another() -> None:
    source = balanced(10, 50)
    parts = rows_of(OneClass(size=5, order="by_class"), source, 100)
    assert all(source.train.labels[part].tolist() == [client // 10] * 5 for client, part in enumerate(parts))
    assert len(np.unique(np.concatenate(parts))) == 500
    with pytest.raises(BadInput, match=r'order.*"in_turn" or "by_class"'):
        OneClass(order="up")  # type: ignore[arg-type]


def test_domains_are_dealt_in_turn_in_the_order_asked_for() -> None:
    # FedELMY's Table 6: photo, art, cartoon, sketch, photo, art, cartoon, sketch.
    owners = [0] * 10 + [1] * 11 + [2] * 12 + [3] * 13
    source = source_of([0] * len(owners), owners, PACS)
    order = ("photo", "art_painting", "cartoon", "sketch")
    parts = rows_of(Domains(order), source, 8)
    domains = [{PACS[owners[row]] for row in part} for part in parts]
    assert domains == [{name} for name in order] * 2
    assert [len(part) for part in parts] == [6, 5, 6, 7, 6, 5, 5, 6]


@given(owners=st.lists(st.integers(0, 3), min_size=1, max_size=60), seed=st.integers(0, 9), data=st.data())
def test_domains_are_disjoint_cover_everything_and_never_mix(owners: list[int], seed: int, data: st.DataObject) -> None:
    stock = [owners.count(owner) for owner in sorted(set(owners))]
    clients = data.draw(st.integers(len(stock), min(stock) * len(stock)))
    parts = rows_of(Domains(), source_of([0] * len(owners), owners), clients, seed)
    assert all(len({owners[row] for row in part}) == 1 for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(owners)))


def test_the_largest_number_of_domain_clients_that_is_named_works_and_one_more_does_not() -> None:
    source = source_of([0] * 9, [0, 0, 1, 1, 1, 1, 2, 2, 2])
    with pytest.raises(BadInput, match="the largest number of clients that works is 6"):
        rows_of(Domains(), source, 7)
    assert min(map(len, rows_of(Domains(), source, 6))) == 1


@pytest.mark.parametrize("partition", [DirichletClients(0.3), QuantitySkew(0.3, (10, 20), (1, 1)), OneClass(10)])
def test_the_seed_decides_the_split(partition: Partition) -> None:
    first, again, other = (Federation.split(balanced(), partition, 20, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.order, again.order)
    assert not torch.equal(first.order, other.order)


@pytest.mark.parametrize(
    ("partition", "clients", "reason"),
    [
        (DirichletClients(0.5), 501, "the largest number of clients that works is 500"),
        (DirichletClients(0), 9, "the smallest number of clients that works is 10"),
        (QuantitySkew(), None, "need 48500 examples and there are 500"),
        (QuantitySkew(sizes=(600,), clients_each=(1,)), 1, "use smaller sizes"),
        (QuantitySkew(sizes=(100, 150), clients_each=(1, 1)), 9, "the largest number of clients that works is 4"),
        (QuantitySkew(), 0, "at least 1"),
        (OneClass(20), 21, "class 0 has 50 examples.* the largest number of clients that works is 20"),
        (OneClass(20), None, "must be told"),
        (Domains(), None, "does not say who made"),
    ],
)
def test_an_impossible_split_is_refused_with_the_reason(partition: Partition, clients: int | None, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        Federation.split(balanced(), partition, clients)


def test_domains_that_do_not_exist_or_are_named_twice_are_refused() -> None:
    source = source_of([0] * 4, [0, 1, 2, 3], PACS)
    with pytest.raises(BadInput, match="there is no 'fotos'; they are art_painting, cartoon, photo, sketch"):
        rows_of(Domains(("fotos",)), source, None)
    with pytest.raises(BadInput, match="twice"):
        rows_of(Domains(("photo", "photo")), source, None)
    with pytest.raises(BadInput, match="the smallest number of clients that works is 4"):
        rows_of(Domains(), source, 3)


def test_senseless_parameters_are_refused() -> None:
    with pytest.raises(BadInput, match="alpha"):
        DirichletClients(-1)
    with pytest.raises(BadInput, match="1 sizes and 2 numbers"):
        QuantitySkew(sizes=(1,), clients_each=(1, 2))
    with pytest.raises(BadInput, match="smallest size"):
        QuantitySkew(sizes=(0,), clients_each=(1,))
    with pytest.raises(BadInput, match="size"):
        OneClass(0)
