"""The data sets that need no download: digits, synthetic examples and quadratic clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrelay.data import SOURCES, Federation, Iid, Natural, digits, optimum, quadratic, quadratic_of, synthetic
from fedrelay.errors import BadInput

# Three quadratic clients whose answers were computed elsewhere, from the formulas in float64.
MATRICES = ([[1, 0], [0, 4]], [[3, 1], [1, 2]], [[2, -0.5], [-0.5, 1]])
CENTRES = ([1, 0], [-1, 2], [3, -2])
SIZES = (10, 20, 30)


def test_digits_are_all_there_and_scaled_to_one() -> None:
    source = digits()
    x = torch.cat([source.train.x, source.test.x])
    assert x.shape == (1797, 8, 8, 1)
    assert x.dtype == torch.float32
    assert (x.min(), x.max()) == (0, 1)
    assert source.train.shape == (1, 8, 8)
    # The published class counts of the data set.
    counts = np.bincount(np.concatenate([source.train.labels, source.test.labels]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_are_split_within_every_class_and_always_the_same_way() -> None:
    source, again = digits(0.25), digits(0.25)
    shares = np.bincount(source.test.labels) / np.bincount(np.r_[source.train.labels, source.test.labels])
    assert shares == pytest.approx(np.full(10, 0.25), abs=0.01)
    assert torch.equal(source.train.x, again.train.x)
    assert torch.equal(source.test.y, again.test.y)


@pytest.mark.parametrize("test", [0.0, 1.0, -1.0, float("nan")])
def test_a_senseless_test_part_of_digits_is_refused(test: float) -> None:
    with pytest.raises(BadInput, match="between 0 and 1"):
        digits(test)


def test_synthetic_images_are_stored_channels_last_and_seen_channels_first() -> None:
    source = synthetic(examples=20, shape=(3, 4, 5), classes=7, test_examples=9)
    assert source.train.x.shape == (20, 4, 5, 3)
    assert source.train.shape == (3, 4, 5)
    x, y = source.train.take(slice(0, 6))
    assert x.shape == (6, 3, 4, 5)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert y.dtype == torch.int64
    assert len(source.test) == 9


def test_synthetic_classes_are_even_and_learnable() -> None:
    source = synthetic(examples=1000, shape=(20,), classes=5, test_examples=500)
    assert np.bincount(source.train.labels).tolist() == [200] * 5
    # A nearest-mean classifier made from the training part alone.
    means = torch.stack([source.train.x[source.train.y == label].mean(0) for label in range(5)])
    found = torch.cdist(source.test.x, means).argmin(dim=1)
    assert (found == source.test.y).float().mean() > 0.9


def test_synthetic_data_comes_from_its_seed() -> None:
    one, same, other = (synthetic(examples=10, shape=(3,), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.train.x, same.train.x)
    assert not torch.equal(one.train.x, other.train.x)


def test_synthetic_data_of_no_size_is_refused() -> None:
    with pytest.raises(BadInput, match="classes"):
        synthetic(classes=0)
    with pytest.raises(BadInput, match=r"\(3, 0, 2\)"):
        synthetic(shape=(3, 0, 2))


def test_the_optimum_of_three_quadratic_clients_is_the_known_one() -> None:
    by_size = optimum(MATRICES, CENTRES, [size / 60 for size in SIZES])
    assert by_size == pytest.approx([1.5569176883, -0.4798598949], abs=1e-10)
    assert optimum(MATRICES, CENTRES, [1 / 3] * 3) == pytest.approx([1.1796407186, -0.1556886228], abs=1e-10)


def test_quadratic_rows_hold_the_centre_and_then_the_matrix() -> None:
    source = quadratic_of(MATRICES, CENTRES, SIZES)
    assert source.train.x.shape == (60, 6)
    assert source.train.x[10].tolist() == [-1, 2, 3, 1, 1, 2]
    assert source.train.x[59].tolist() == [3, -2, 2, -0.5, -0.5, 1]
    assert Federation.split(source, Natural()).sizes == SIZES
    assert torch.equal(source.test.x, source.train.x)


def test_the_test_part_weights_quadratic_clients_by_size() -> None:
    # The gradient of the mean loss over the test part, at the known optimum by size, is zero.
    x = quadratic_of(MATRICES, CENTRES, SIZES).test.x.double()
    w = torch.tensor([1.5569176883, -0.4798598949], dtype=torch.float64)
    gradient = (x[:, 2:].view(-1, 2, 2) @ (w - x[:, :2]).unsqueeze(-1)).mean(0)
    assert gradient.abs().max() < 1e-9


@pytest.mark.parametrize("clients", [2**63 - 1, 10**12])
def test_quadratic_clients_that_no_memory_holds_are_refused_before_they_are_made(clients: int) -> None:
    with pytest.raises((BadInput, MemoryError)):
        quadratic(clients=clients, dimension=20)


def test_quadratic_clients_without_spread_are_equal() -> None:
    source = quadratic(clients=4, dimension=3, examples=2, spread=0)
    assert torch.equal(source.train.x, source.train.x[:1].expand(8, -1))


@pytest.mark.parametrize("spread", [0.1, 1.0, 50.0])
def test_quadratic_clients_differ_and_keep_their_eigenvalues_between_1_and_4(spread: float) -> None:
    source = quadratic(clients=5, dimension=4, examples=1, spread=spread, seed=7)
    matrices = source.train.x[:, 4:].view(5, 4, 4)
    assert torch.equal(matrices, matrices.mT)
    values = torch.linalg.eigvalsh(matrices)
    assert 1 - 1e-5 <= values.min() <= values.max() <= 4 + 1e-5
    assert len(source.train.x.unique(dim=0)) == 5


def test_quadratic_clients_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(BadInput, match="found 3, 3 and 2"):
        quadratic_of(MATRICES, CENTRES, SIZES[:2])
    with pytest.raises(BadInput, match="client 1 has 0 examples"):
        quadratic_of(MATRICES, CENTRES, (1, 0, 2))
    with pytest.raises(BadInput, match=r"client 0 has a matrix of shape \(2, 2\) and a centre of shape \(3,\)"):
        quadratic_of([np.eye(2)], [[1, 2, 3]], [1])
    with pytest.raises(BadInput, match="dimension"):
        quadratic(dimension=0)
    with pytest.raises(BadInput, match="spread"):
        quadratic(spread=-1)


def test_every_source_of_the_table_can_be_made_and_split_without_arguments() -> None:
    assert list(SOURCES)[:4] == ["digits", "diabetes", "synthetic", "quadratic"]
    for name in ("digits", "diabetes", "synthetic", "quadratic"):
        source = SOURCES[name]()
        assert source.name == name
        assert sum(Federation.split(source, Iid(), 5).sizes) == len(source.train)
