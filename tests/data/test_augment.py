"""Augmentation gives exactly the crops, flips and scaling that were drawn, and draws what it should."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.data import Augment, Examples, Normalise
from fedrelay.data.augment import moved
from fedrelay.errors import BadInput


def pictures(images: int, height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, (images, height, width, channels), dtype=np.uint8)


@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4)),
    padding=st.integers(0, 3),
    data=st.data(),
)
def test_every_image_is_cropped_and_flipped_as_one_would_do_it_by_hand(
    shape: tuple[int, int, int, int], padding: int, data: st.DataObject
) -> None:
    x = pictures(*shape)
    corners = st.lists(st.integers(0, 2 * padding), min_size=shape[0], max_size=shape[0])
    top, left = data.draw(corners), data.draw(corners)
    flipped = data.draw(st.lists(st.booleans(), min_size=shape[0], max_size=shape[0]))
    found = moved(x, np.array(top), np.array(left), np.array(flipped), padding)
    for image in range(shape[0]):
        bordered = np.pad(x[image], ((padding, padding), (padding, padding), (0, 0)))
        crop = bordered[top[image] : top[image] + shape[1], left[image] : left[image] + shape[2]]
        expected = np.flip(crop, axis=1) if flipped[image] else crop
        assert np.array_equal(found[image], expected)


def test_bytes_are_scaled_by_mean_and_std_of_their_channel() -> None:
    x = torch.tensor([[[[0, 51, 255], [255, 102, 0]]]], dtype=torch.uint8)
    found = Normalise((0.5, 0.2, 0.0), (0.5, 0.1, 2.0))(x, None)
    assert found.dtype == torch.float32
    assert found.flatten().tolist() == pytest.approx([-1, 0, 0.5, 1, 2, 0], abs=1e-6)


def test_floats_are_taken_as_already_between_0_and_1_and_are_not_changed_in_place() -> None:
    x = torch.rand(2, 3, 3, 1, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    found = Normalise((0.5,), (0.25,))(x, None)
    assert torch.allclose(found, (before - 0.5) / 0.25, atol=1e-6)
    assert torch.equal(x, before)


def test_one_mean_serves_all_channels_and_flat_inputs() -> None:
    x = torch.tensor([[0, 255, 51]], dtype=torch.uint8)
    assert Normalise((0.0,), (0.5,))(x, None).tolist() == [pytest.approx([0, 2, 0.4], abs=1e-6)]


def test_without_a_generator_nothing_is_augmented() -> None:
    x = torch.from_numpy(pictures(5, 8, 8, 3))
    augment = Augment()
    assert torch.equal(augment(x, None), Normalise(augment.mean, augment.std)(x, None))


def test_the_generator_decides_the_augmentation() -> None:
    x = torch.from_numpy(pictures(16, 8, 8, 3))
    one, same, other = (Augment()(x, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_all_corners_are_drawn_evenly_and_half_is_flipped() -> None:
    # One bright pixel in the middle of a black image says where the crop was; two of different brightness, the flip.
    images = 8100
    x = torch.zeros(images, 9, 9, 1, dtype=torch.uint8)
    x[:, 4, 4], x[:, 4, 5] = 255, 51
    found = Augment((0.0,), (1.0,), padding=1)(x, np.random.default_rng(0)).reshape(images, 81)
    bright, dim = found.argmax(dim=1), ((found > 0.1) & (found < 0.9)).to(torch.int8).argmax(dim=1)
    flipped = dim < bright
    assert flipped.float().mean() == pytest.approx(0.5, abs=0.02)
    row = bright // 9
    column = torch.where(flipped, 8 - bright % 9, bright % 9)
    places = torch.bincount((row - 3) * 3 + (column - 3), minlength=9)
    assert places.tolist() == pytest.approx([900] * 9, rel=0.15)


def test_no_flip_and_no_padding_leave_the_image_as_it_is() -> None:
    x = torch.from_numpy(pictures(4, 5, 5, 3))
    augment = Augment(padding=0, flip=False)
    assert torch.equal(augment(x, np.random.default_rng(0)), augment(x, None))


def test_a_batch_comes_out_channels_last_and_the_stored_bytes_stay() -> None:
    stored = torch.from_numpy(pictures(10, 32, 32, 3))
    before = stored.clone()
    examples = Examples(stored, torch.zeros(10, dtype=torch.int64), Augment())
    x, _ = examples.take(torch.tensor([3, 1, 4]), np.random.default_rng(0))
    assert x.shape == (3, 3, 32, 32)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(stored, before)


def test_augmentation_can_be_sent_to_another_process() -> None:
    x = torch.from_numpy(pictures(4, 8, 8, 3))
    augment = Augment()
    first = augment(x, np.random.default_rng(5))
    assert torch.equal(pickle.loads(pickle.dumps(augment))(x, np.random.default_rng(5)), first)


def test_senseless_augmentations_are_refused() -> None:
    with pytest.raises(BadInput, match="found 3 and 1"):
        Augment(std=(1.0,))
    with pytest.raises(BadInput, match="std"):
        Normalise((0.0,), (0.0,))
    with pytest.raises(BadInput, match="padding"):
        Augment(padding=-1)
    with pytest.raises(BadInput, match="3 channels cannot be used on 1"):
        Augment()(torch.zeros(1, 4, 4, 1, dtype=torch.uint8), None)
    with pytest.raises(BadInput, match=r"found shape \(2, 3\)"):
        Augment()(torch.zeros(2, 3, dtype=torch.uint8), np.random.default_rng(0))
