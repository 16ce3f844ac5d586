"""Batches of a pass, with and without folding a last one of a single example."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrelay import Sgd
from fedrelay.visits.batches import folded


@given(st.integers(1, 60), st.integers(1, 20))
def test_folded_batches_are_all_examples_in_order_and_none_is_alone(size, batch):
    rows = torch.arange(size)
    parts = list(folded(rows, batch, fold=True))
    assert torch.equal(torch.cat(parts), rows)
    assert all(2 <= len(part) <= batch + 1 for part in parts) or batch == 1 or size == 1
    assert [len(part) for part in parts[:-1]] == [batch] * (len(parts) - 1)
    steps, examples = Sgd(batch=batch).lengths(size, fold=True)
    assert (steps, examples) == (len(parts), size)
    assert Sgd(batch=batch).steps_for(size, size, fold=True) == len(parts)


@given(st.integers(1, 60), st.integers(1, 20))
def test_without_folding_batches_are_those_of_torch(size, batch):
    rows = torch.arange(size)
    parts = list(folded(rows, batch, fold=False))
    assert [len(part) for part in parts] == [len(part) for part in torch.split(rows, batch)]
    assert Sgd(batch=batch).lengths(size) == (len(parts), size)


@pytest.mark.parametrize(
    ("steps", "expected"), [(1, 4), (2, 9), (3, 13), (4, 18), (5, 22)]
)  # passes over 9 examples are batches of 4 and 5
def test_a_number_of_steps_processes_what_its_batches_hold(steps, expected):
    assert Sgd(batch=4, steps=steps).lengths(9, fold=True) == (steps, expected)


def test_several_inputs_are_folded_alike():
    rows = {"image": torch.arange(9), "age": torch.arange(18).view(9, 2)}
    first, last = folded(rows, 4, fold=True)
    assert first["image"].tolist() == [0, 1, 2, 3]
    assert last["image"].tolist() == [4, 5, 6, 7, 8]
    assert torch.equal(last["age"], rows["age"][4:])
