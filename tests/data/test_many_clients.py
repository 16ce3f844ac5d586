"""Clients are slices of arrays: a hundred thousand of them add a few bytes each, and no object of their own."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedrelay.data import PARTITIONS, Federation, Source, synthetic
from fedrelay.data.federation import Parts, Rows
from fedrelay.data.partitions.apportion import alone, draw_mixes, log_weights

CLIENTS, EXAMPLES = 100_000, 400_000


@pytest.fixture(scope="module")
def source() -> Source:
    made = synthetic(examples=EXAMPLES, shape=(1,), classes=10, test_examples=10)
    assert len(made.train.labels) == EXAMPLES
    return replace(made, owners=np.arange(EXAMPLES) * 7919 % CLIENTS)


@pytest.mark.parametrize("partition", ["iid", "natural", "shards", "dirichlet", "dirichlet_clients"])
def test_a_hundred_thousand_clients_are_there_in_seconds(partition: str, source: Source) -> None:
    start = time.process_time()  # one thread does it all, and other work on the machine must not count
    federation = Federation.split(source, PARTITIONS[partition](), CLIENTS)
    seconds = time.process_time() - start
    assert federation.sizes.total == EXAMPLES
    assert federation.sizes.array.min() >= 1
    assert seconds < 5


@pytest.mark.parametrize("partition", ["iid", "natural", "dirichlet"])
def test_a_client_adds_its_rows_and_a_few_bytes(partition: str, source: Source) -> None:
    tracemalloc.start()  # NumPy's arrays are counted, and torch only looks at them
    try:
        federation = Federation.split(source, PARTITIONS[partition](), CLIENTS)
        assert len(federation.names) == CLIENTS
        kept = [one.size for one in tracemalloc.take_snapshot().traces]
    finally:
        tracemalloc.stop()
    # At least the rows themselves must have been seen, or this measures nothing.
    assert EXAMPLES * 4 <= sum(kept) < EXAMPLES * 4 + CLIENTS * 10
    assert len(kept) < 2_000  # objects that are kept: not one a client


# --- what a partition gives


def parts(*sizes: int) -> Parts:
    return Parts.of_sizes(np.arange(sum(sizes))[::-1].copy(), np.array(sizes))


def test_parts_are_a_sequence_of_arrays() -> None:
    found = parts(2, 0, 3)
    assert [part.tolist() for part in found] == [[4, 3], [], [2, 1, 0]]
    assert [part.tolist() for part in found[1:]] == [[], [2, 1, 0]]
    assert found[-1].tolist() == [2, 1, 0]
    assert len(found[3:1]) == 0
    with pytest.raises(IndexError):
        found[3]
    with pytest.raises(ValueError, match="one after another"):
        found[::2]


@pytest.mark.parametrize("sizes", [(2, 0, 3), (2, 2), (5,)])
def test_parts_are_sorted_each_by_itself(sizes: Sequence[int]) -> None:
    found = parts(*sizes)
    assert [part.tolist() for part in found.sorted()] == [sorted(part.tolist()) for part in found]


def test_a_federation_of_parts_is_that_of_the_arrays(source: Source) -> None:
    rows: list[Rows] = list(parts(2, 1, 3))
    assert Federation.of(source, rows).fingerprint == Federation.of(source, parts(2, 1, 3)).fingerprint


@pytest.mark.parametrize(("alpha", "size"), [(0.1, 7), (0.5, 7), (5.0, 1)])
def test_clients_draw_their_mixes_as_if_one_after_another(alpha: float, size: int) -> None:
    """Whoever comes first takes first, and others make up for a class that has run out."""
    stock, alphas, sizes = np.full(3, 300), np.full(3, alpha), np.full(900 // size, size)
    rng, left = np.random.default_rng(1), stock.copy()
    order, expected = rng.permutation(len(sizes)), np.zeros((len(sizes), 3), dtype=np.int64)
    logs = log_weights(np.tile(alphas, (len(sizes), 1)), rng)
    for client, mine in zip(order, logs, strict=True):
        expected[client] = alone(size, mine, left, rng)
        left -= expected[client]
    assert (left == 0).sum() >= 2  # classes did run out
    np.testing.assert_array_equal(draw_mixes(stock, sizes, alphas, np.random.default_rng(1)), expected)


def test_classes_are_looked_up_for_the_clients_that_are_asked_for(source: Source) -> None:
    federation = Federation.split(source, PARTITIONS["dirichlet"](), CLIENTS)
    counts, known = federation.label_counts(), federation.classes_of_clients()
    assert counts.sum() == EXAMPLES
    assert known is not None
    chosen = [5, 99_999, 0]
    np.testing.assert_array_equal(known[chosen], counts[chosen] > 0)
    np.testing.assert_array_equal(counts[7], np.bincount(source.train.labels[federation.client(7).rows], minlength=10))
