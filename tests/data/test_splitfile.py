"""A saved split comes back bit for bit; a damaged one, or one of other data, does not."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrelay.data import Dirichlet, Federation, Iid, digits, load_split, matched_tests, save_split, synthetic
from fedrelay.errors import BadInput


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(synthetic(examples=300, shape=(2,), classes=4, test_examples=100), Dirichlet(0.3), 12)


def test_the_fingerprint_is_the_hash_of_the_rows_and_where_clients_start() -> None:
    source = synthetic(examples=3, shape=(1,), classes=1, test_examples=1)
    federation = Federation.of(source, [np.array([2]), np.array([0, 1])])
    expected = hashlib.sha256(struct.pack("<6q", 2, 0, 1, 0, 1, 3)).hexdigest()
    assert federation.fingerprint == expected


def test_other_splits_have_other_fingerprints(federation: Federation) -> None:
    source = federation.source
    again = Federation.split(source, Dirichlet(0.3), 12)
    assert again.fingerprint == federation.fingerprint
    others = [Federation.split(source, Dirichlet(0.3), 12, seed=1), Federation.split(source, Iid(), 12)]
    others += [matched_tests(federation, 0.1)]
    assert len({federation.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_a_saved_split_comes_back_as_it_was(federation: Federation, tmp_path: Path) -> None:
    for saved in (federation, matched_tests(federation, 0.1)):
        loaded = load_split(federation.source, save_split(saved, tmp_path / "new folder" / "split.npz"))
        assert torch.equal(loaded.order, saved.order)
        assert torch.equal(loaded.starts, saved.starts)
        assert loaded.fingerprint == saved.fingerprint
    assert [path.name for path in (tmp_path / "new folder").iterdir()] == ["split.npz"]


def test_a_split_of_other_data_is_refused(federation: Federation, tmp_path: Path) -> None:
    path = save_split(federation, tmp_path / "split.npz")
    with pytest.raises(BadInput, match="a split of synthetic with other examples than this digits"):
        load_split(digits(), path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_split_file_is_refused_or_unharmed(
    federation: Federation, tmp_path: Path, data: st.DataObject
) -> None:
    whole = save_split(federation, tmp_path / "whole.npz").read_bytes()
    damaged = bytearray(whole)
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "damaged.npz"
    path.write_bytes(damaged)
    try:
        loaded = load_split(federation.source, path)
    except BadInput:
        return  # any other exception is a failure
    assert loaded.fingerprint == federation.fingerprint


def test_what_is_not_a_split_file_is_refused(federation: Federation, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no split file"):
        load_split(federation.source, tmp_path / "nothing.npz")
    np.savez(tmp_path / "other.npz", something=np.zeros(3))
    with pytest.raises(BadInput, match=r"other.npz: expected a split file"):
        load_split(federation.source, tmp_path / "other.npz")
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(BadInput, match=r"single.npy: expected a split file"):
        load_split(federation.source, tmp_path / "single.npy")


def test_changed_rows_are_noticed(federation: Federation, tmp_path: Path) -> None:
    path = save_split(federation, tmp_path / "split.npz")
    content = dict(np.load(path))
    content["order"] = content["order"][::-1]
    np.savez(path, **content)
    with pytest.raises(BadInput, match="is damaged"):
        load_split(federation.source, path)


@pytest.mark.parametrize(("part", "row"), [("order", 2**40), ("order", -1), ("test_order", 100)])
def test_rows_that_no_example_has_are_refused(federation: Federation, tmp_path: Path, part: str, row: int) -> None:
    path = save_split(matched_tests(federation), tmp_path / "split.npz")
    content = dict(np.load(path))
    content[part] = content[part].astype(np.int64)
    content[part][3] = row
    np.savez(path, **content)
    with pytest.raises(BadInput, match=rf"examples, numbered from 0, and a client is given row {row}$"):
        load_split(federation.source, path)


def test_nothing_is_left_behind_when_saving_fails(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "split.npz").mkdir()
    with pytest.raises(OSError, match="directory"):
        save_split(federation, tmp_path / "split.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["split.npz"]
