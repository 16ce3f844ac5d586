"""Exemplars leave the test set for good; clients' own test parts have their class mix or their owner."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.data import Dirichlet, Examples, Federation, Iid, Natural, OneClass, QuantitySkew, Source, digits
from fedrelay.data.holdout import (
    hold_out,
    matched_tests,
    own_tests,
    owned_tests,
    thinned,
    with_tests,
    with_validation,
)
from fedrelay.errors import BadInput


def examples_of(labels: list[int]) -> Examples:
    """The input of an example is its number, so that rows can be told apart."""
    return Examples(torch.arange(len(labels), dtype=torch.float32).unsqueeze(1), torch.tensor(labels))


def source_of(
    train: list[int], test: list[int], owners: list[int] | None = None, test_owners: list[int] | None = None
) -> Source:
    return Source(
        "made up",
        examples_of(train),
        examples_of(test),
        max(train + test) + 1,
        owners=None if owners is None else np.array(owners),
        test_owners=None if test_owners is None else np.array(test_owners),
    )


def even(classes: int, each: int) -> list[int]:
    return [label for label in range(classes) for _ in range(each)]


@given(extra=st.lists(st.integers(0, 3), max_size=20), per_class=st.integers(1, 5), seed=st.integers(0, 99))
def test_exemplars_and_the_rest_are_the_whole_test_set(extra: list[int], per_class: int, seed: int) -> None:
    labels = even(4, per_class + 1) + extra
    source = source_of([0, 1, 2, 3], labels, test_owners=list(range(len(labels))))
    rest, exemplars = hold_out(source, per_class, np.random.default_rng(seed))
    assert np.bincount(exemplars.labels).tolist() == [per_class] * 4
    numbers = torch.cat([rest.test.x, exemplars.x]).flatten().tolist()
    assert sorted(numbers) == list(range(len(labels)))
    assert rest.test_owners is not None
    assert rest.test_owners.tolist() == rest.test.x.flatten().tolist()
    assert rest.train is source.train


def test_ten_exemplars_per_class_leave_9900_of_cifar_10_and_9000_of_cifar_100() -> None:
    for classes, left in ((10, 9900), (100, 9000)):
        source = source_of(list(range(classes)), even(classes, 10_000 // classes))
        rest, exemplars = hold_out(source, 10, np.random.default_rng(0))
        assert (len(rest.test), len(exemplars)) == (left, 10 * classes)


def test_too_many_exemplars_are_refused_with_the_largest_number_that_works() -> None:
    source = source_of([0, 1], [0] * 5 + [1] * 3)
    with pytest.raises(BadInput, match=r"class 1 .* has 3 test examples.* the largest number that works is 2"):
        hold_out(source, 3, np.random.default_rng(0))
    rest, exemplars = hold_out(source, 3, np.random.default_rng(0), allow_fewer=True)
    assert np.bincount(exemplars.labels).tolist() == [3, 1]
    assert np.bincount(rest.test.labels).tolist() == [2, 2]


def test_one_digit_per_client_gets_80_test_examples_of_its_digit() -> None:
    # The clustered-sampling study: 100 clients, 500 to train on and 80 to test on (800 of 892 of the rarest digit).
    source = source_of(even(10, 5000), even(10, 892))
    federation = matched_tests(Federation.split(source, OneClass(500), 100), share=0.16)
    tests = [federation.client_test(client) for client in range(100)]
    assert {test.size for test in tests} == {80}
    assert all(set(test.take(torch.arange(80), None)[1].tolist()) == {test.id % 10} for test in tests)
    assert federation.test_order is not None
    assert len(federation.test_order.unique()) == 8000


def test_tests_of_a_quantity_skew_are_a_fifth_with_the_same_mix() -> None:
    source = source_of(even(5, 400), even(5, 100))
    split = Federation.split(source, QuantitySkew(1.0, (100, 250), (4, 4)))
    federation = matched_tests(split, 0.2, repeat=True)
    for client, counts in enumerate(split.label_counts()):
        test = federation.client_test(client)
        _, labels = test.take(torch.arange(test.size), None)
        assert test.size == counts.sum() / 5
        assert np.abs(np.bincount(labels, minlength=5) - counts / 5).max() < 1


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.1, 10])
def test_a_fifth_of_the_whole_test_set_is_not_refused_for_its_rounding(alpha: float) -> None:
    # The clustered-sampling study: 48,500 of 50,000 images to train on, so 9,700 of 10,000 to test on.
    source = source_of(even(10, 5000), even(10, 1000))
    split = Federation.split(source, QuantitySkew(alpha))
    federation = matched_tests(split, 0.2)
    assert federation.test_order is not None
    assert len(federation.test_order.unique()) == len(federation.test_order) >= 9_700 - 10
    sizes = np.array([federation.client_test(client).size for client in range(100)])
    assert set(np.array(split.sizes) // 5 - sizes) <= {0, 1}


def test_matched_tests_that_cannot_be_are_refused_with_a_share_that_works() -> None:
    source = source_of(even(2, 50), even(2, 10))
    split = Federation.split(source, Iid(), 4)
    with pytest.raises(BadInput, match=r"need 2\d test examples of class \d and there are 10") as refused:
        matched_tests(split, 0.5)
    works = float(str(refused.value).split("a share of about ")[1].split()[0])
    assert works == pytest.approx(10 / 50, abs=0.03)
    assert matched_tests(split, 0.5, repeat=True).test_order is not None
    nothing = source_of([0, 0, 1, 1], [0, 0])
    with pytest.raises(BadInput, match="test examples of class 1 and there are 0"):
        matched_tests(Federation.split(nothing, Iid(), 1), 0.5, repeat=True)


def test_natural_clients_get_the_tests_of_their_owner() -> None:
    source = source_of([0] * 5, [0] * 4, owners=[7, 2, 7, 4, 2], test_owners=[2, 7, 2, 9])
    federation = owned_tests(Federation.split(source, Natural()))
    assert [federation.client_test(client).rows.tolist() for client in range(3)] == [[0, 2], [], [1]]


def test_tests_by_owner_are_refused_where_nobody_owns_them() -> None:
    with pytest.raises(BadInput, match="does not say who made its test examples"):
        owned_tests(Federation.split(source_of([0, 0], [0], owners=[0, 1]), Natural()))
    mixed = source_of([0] * 4, [0], owners=[0, 0, 1, 1], test_owners=[0])
    with pytest.raises(BadInput, match="client 0 has examples of more than one owner"):
        owned_tests(Federation.of(mixed, [np.array([1, 2]), np.array([0, 3])]))


def test_a_client_without_a_test_part_says_so() -> None:
    federation = Federation.split(source_of([0, 1], [0]), Iid(), 2)
    with pytest.raises(BadInput, match="no test part of their own"):
        federation.client_test(0)
    with pytest.raises(BadInput, match="no client 2"):
        with_tests(federation, [np.array([0]), np.array([], dtype=np.int64)]).client_test(2)
    with pytest.raises(BadInput, match="2 clients need one test part each, found 1"):
        with_tests(federation, [np.array([0])])
    with pytest.raises(BadInput, match="test rows must be 0 to 0, found 1 to 1"):
        with_tests(federation, [np.array([1]), np.array([1])])


def test_the_validation_set_is_a_share_of_every_clients_own_rows_and_nobody_trains_on_it():
    whole = Federation.split(digits(), Dirichlet(alpha=0.5), 10, 0)
    held = with_validation(whole, 0.2, seed=3)
    rows = set(held.validation_rows.tolist())
    assert len(held.validation) == len(rows)
    for client in range(10):
        before, after = set(whole.client(client).rows.tolist()), set(held.client(client).rows.tolist())
        assert before - after == before & rows  # what a client lacks now is in the validation set
        assert len(before & rows) == max(round(0.2 * len(before)), 1)
    assert torch.equal(held.validation.y, whole.source.train.y[held.validation_rows])
    assert torch.equal(held.evaluated.y, whole.evaluated.y)
    assert held.validation_rows.equal(with_validation(whole, 0.2, seed=3).validation_rows)
    assert not held.validation_rows.equal(with_validation(whole, 0.2, seed=4).validation_rows)
    assert held.pooled().validation_rows.equal(held.validation_rows)
    assert whole.validation is None


def test_a_client_with_one_example_keeps_it_and_one_with_two_gives_one():
    held = with_validation(Federation.of(digits(), [np.array([0]), np.array([1, 2])]), 0.1)
    assert held.sizes == (1, 1)
    assert len(held.validation) == 1


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_a_share_that_leaves_nothing_is_refused(share):
    with pytest.raises(BadInput, match="the share of the validation set"):
        with_validation(Federation.split(digits(), Iid(), 10), share)


def test_where_nobody_has_two_examples_there_is_no_validation_set():
    with pytest.raises(BadInput, match="no client has two examples"):
        with_validation(Federation.of(digits(), [np.array([0]), np.array([1])]), 0.1)


def test_clients_have_the_test_parts_they_were_given_or_those_of_their_owners() -> None:
    source = source_of([0, 1, 0, 1], [0, 1, 1], owners=[0, 0, 1, 1], test_owners=[1, 0, 1])
    natural = Federation.split(source, Natural())
    found = own_tests(natural)
    assert found is not None
    assert [found.client_test(client).rows.tolist() for client in range(2)] == [[1], [0, 2]]
    given = with_tests(natural, [np.array([2]), np.array([0])])
    assert own_tests(given) is given


def test_clients_have_no_test_parts_where_nobody_knows_whose_rows_are_whose() -> None:
    unknown = source_of([0, 1, 0, 1], [0, 1], owners=[0, 0, 1, 1])
    assert own_tests(Federation.split(unknown, Natural())) is None
    known = source_of([0, 1, 0, 1], [0, 1], owners=[0, 0, 1, 1], test_owners=[0, 1])
    assert own_tests(Federation.of(known, [np.array([0, 2]), np.array([1, 3])])) is None


# --- a small copy


def numbers_of(examples) -> list[int]:
    """The rows of the source that these are."""
    return examples.take(slice(0, len(examples)))[0][:, 0].int().tolist()


def test_a_small_copy_has_its_share_of_every_class_and_owner():
    owners = [0] * 100 + [1] * 60
    labels = [0] * 60 + [1] * 40 + [0] * 20 + [1] * 40
    whole = source_of(labels, labels, owners, owners)
    small = thinned(whole, 0.1, np.random.default_rng(0), tested=0.1)
    for examples, whose in ((small.train, small.owners), (small.test, small.test_owners)):
        kinds = list(zip(whose.tolist(), examples.labels.tolist(), strict=True))
        assert {kind: kinds.count(kind) for kind in kinds} == {(0, 0): 6, (0, 1): 4, (1, 0): 2, (1, 1): 4}
        rows = numbers_of(examples)
        assert rows == sorted(set(rows))
        assert [labels[row] for row in rows] == examples.labels.tolist()
        assert [owners[row] for row in rows] == whose.tolist()
    assert numbers_of(small.train) != numbers_of(small.test)  # drawn apart


def test_nobody_is_lost_in_a_small_copy_and_all_of_it_is_all():
    whole = source_of([0, 1, 1, 2], [0, 1, 2], [0, 0, 1, 1])
    assert sorted(set(thinned(whole, 0.01, np.random.default_rng(0)).train.labels)) == [0, 1, 2]
    assert numbers_of(thinned(whole, 1.0, np.random.default_rng(0)).train) == [0, 1, 2, 3]


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(BadInput, match="the share of the examples must be above 0 and at most 1"):
        thinned(source_of([0, 1], [0, 1]), share, np.random.default_rng(0))
    with pytest.raises(BadInput, match="the share of the test examples must be"):
        thinned(source_of([0, 1], [0, 1]), 1.0, np.random.default_rng(0), tested=share)


def test_numbers_are_thinned_too():
    whole = Source(
        "numbers", Examples(torch.zeros(10, 1), torch.zeros(10)), Examples(torch.zeros(4, 1), torch.zeros(4)), 1
    )
    small = thinned(whole, 0.5, np.random.default_rng(0), tested=0.25)
    assert (len(small.train), len(small.test)) == (5, 1)
