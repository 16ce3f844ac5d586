"""Messages are plain data and tensors; whatever else comes in is refused, and never run."""

from __future__ import annotations

import contextlib
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.engines.remote.messages import Failed, answer_of
from fedrelay.engines.remote.trees import TYPES, Malformed, decode, encode

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers(), st.text()), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(TREES)
def test_plain_data_comes_back_as_it_was(tree):
    assert decode(encode(tree)) == tree
    assert type(decode(encode(tree))) is type(tree)


@pytest.mark.parametrize("name", TYPES)
def test_tensors_of_every_type_come_back_to_the_bit(name):
    raw = torch.arange(0, 96, dtype=torch.uint8)
    tensor = (raw.bool() if name == "bool" else raw.view(TYPES[name])).reshape(2, -1)
    found = decode(encode({"a": tensor, "b": (tensor.T, torch.empty(0, 3))}))
    assert found["a"].dtype == TYPES[name]
    assert found["a"].shape == tensor.shape
    assert found["a"].view(torch.uint8).equal(tensor.view(torch.uint8))
    assert found["b"][0].contiguous().view(torch.uint8).equal(tensor.T.contiguous().view(torch.uint8))
    assert found["b"][1].shape == (0, 3)
    assert found["a"].data_ptr() % 64 == 0


def test_what_is_no_number_and_denormals_keep_their_bits():
    bits = torch.tensor([0x7FC0ABCD, 0x00000001, -0x80000000, 0x7F800000], dtype=torch.int32)
    assert decode(encode(bits.view(torch.float32))).view(torch.int32).equal(bits)


def test_numbers_of_numpy_become_plain_ones():
    assert decode(encode([np.float64(0.1), np.int64(3)])) == [0.1, 3]


@pytest.mark.parametrize("thing", [object(), {1, 2}, b"bytes", np.zeros(2), torch.zeros(2, dtype=torch.complex64)])
def test_what_is_neither_plain_nor_a_tensor_is_not_sent(thing):
    with pytest.raises(Malformed, match="cannot be sent"):
        encode({"a": [thing]})


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused(raw):
    with pytest.raises(Malformed):
        decode(b"\xff" + raw)


@given(st.data())
def test_a_message_with_changed_bytes_is_refused_or_is_another_message(data):
    message = encode({"is": "done", "x": torch.arange(4.0), "y": [1, ("a", None)]})
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Malformed):
        decode(message)


def test_a_message_that_promises_more_than_it_has_takes_no_memory():
    head = b'{"tree":{"tensor":0},"tensors":[["float32",[1000000,1000000]]]}'
    with pytest.raises(Malformed, match="its head says"):
        decode(len(head).to_bytes(4, "little") + head)


def test_a_pickle_is_no_message():
    with pytest.raises(Malformed):
        decode(pickle.dumps({"is": "done"}))


def test_an_answer_of_something_else_is_refused():
    assert answer_of(Failed("t", "because").encoded()) == Failed("t", "because")
    for tree in ({}, {"is": "visit"}, {"is": "failed", "ticket": 3, "reason": "x"}, {"is": "failed"}, ["done"], 3):
        with pytest.raises(Malformed):
            answer_of(encode(tree))
