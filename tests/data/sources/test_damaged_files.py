"""Damaged files: whatever bytes a reader is given, it reads them or says in one sentence what is wrong with them."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import published
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.data.sources import pickles
from fedrelay.data.sources.cifar import cifar10_of
from fedrelay.data.sources.femnist import femnist
from fedrelay.data.sources.idx import mnist, read_idx
from fedrelay.data.sources.matlab import read_mat
from fedrelay.data.sources.shakespeare import shakespeare
from fedrelay.errors import BadInput

FUZZ = settings(max_examples=150, deadline=None)


@st.composite
def damage(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file that was cut off, overwritten in places, or had bytes put in or taken out."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        # The head of a file decides how the rest is read, so half of the damage is done there.
        place = place % 64 if draw(st.booleans()) else place
        kind = draw(st.sampled_from(["cut", "overwrite", "insert", "remove"]))
        if kind == "cut":
            del data[place:]
        elif kind == "overwrite":
            new = draw(st.binary(min_size=1, max_size=8))
            data[place : place + len(new)] = new
        elif kind == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=8))
        else:
            del data[place : place + draw(st.integers(1, 8))]
    return bytes(data)


@contextmanager
def scratch() -> Iterator[Path]:
    """A new folder for every example (fixtures are made only once for all of them)."""
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def reads_or_refuses(read: Callable[[], object], *, names: str) -> None:
    message = None
    try:
        read()
    except BadInput as error:
        message = str(error)
    assert message is None or (names in message and "expected" in message)


IMAGES, LABELS = published.pixels(3, 28, 28), np.arange(3, dtype=np.uint8)
BATCH = published.cifar_batch(published.pixels(2, 32, 32, 3), LABELS[:2])
RECORDS = published.pixels(2, 3073).tobytes()
CLIENTS = {"f0_00": published.femnist_client(1), "f1_00": published.femnist_client(2)}
FEMNIST = published.leaf(CLIENTS)
ROLES = published.leaf({"PLAY_ROLE": (["x" * 80, "to be or " * 8 + "not to b"], ["y", "e"])})


@FUZZ
@given(damaged=damage(published.idx(IMAGES)))
def test_a_damaged_idx_file_is_read_or_refused(damaged):
    with scratch() as folder:
        path = published.write(folder / "images", damaged)
        reads_or_refuses(lambda: read_idx(path), names="images")


@FUZZ
@given(damaged=damage(gzip.compress(published.idx(IMAGES), mtime=0)))
def test_a_damaged_gzipped_idx_file_is_read_or_refused(damaged):
    with scratch() as folder:
        path = published.write(folder / "images.gz", damaged)
        reads_or_refuses(lambda: read_idx(path), names="images.gz")


@FUZZ
@given(
    damaged=damage(published.idx(LABELS)), name=st.sampled_from(["train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"])
)
def test_damaged_labels_of_mnist_are_read_or_refused(damaged, name):
    with scratch() as folder:
        published.mnist_folder(folder, IMAGES, LABELS, zipped=False)
        published.write(folder / name, damaged)
        reads_or_refuses(lambda: mnist(folder), names=name)


@FUZZ
@given(damaged=damage(BATCH))
def test_a_damaged_pickled_batch_of_cifar_is_read_or_refused(damaged):
    with scratch() as folder:
        for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
            published.write(folder / name, BATCH)
        published.write(folder / "data_batch_2", damaged)
        reads_or_refuses(lambda: cifar10_of(folder, records=2), names="data_batch_2")


@FUZZ
@given(data=st.binary(max_size=200), protocol=st.sampled_from([b"", b"\x80\x02", b"\x80\x04\x95"]))
def test_any_bytes_are_refused_as_a_pickle_of_a_batch(data, protocol):
    with scratch() as folder:
        path = published.write(folder / "batch", protocol + data)
        reads_or_refuses(lambda: pickles.load(path), names="batch")


@FUZZ
@given(damaged=damage(RECORDS))
def test_a_damaged_binary_batch_of_cifar_is_read_or_refused(damaged):
    with scratch() as folder:
        for name in (
            "data_batch_1.bin",
            "data_batch_2.bin",
            "data_batch_3.bin",
            "data_batch_4.bin",
            "data_batch_5.bin",
        ):
            published.write(folder / name, bytes(len(RECORDS)))
        published.write(folder / "test_batch.bin", damaged)
        reads_or_refuses(lambda: cifar10_of(folder, records=2), names="test_batch.bin")


@FUZZ
@given(damaged=damage(FEMNIST))
def test_a_damaged_json_file_of_femnist_is_read_or_refused(damaged):
    with scratch() as folder:
        published.leaf_folder(folder, damaged, FEMNIST)
        reads_or_refuses(lambda: femnist(folder), names="train")


@FUZZ
@given(damaged=damage(ROLES))
def test_a_damaged_json_file_of_shakespeare_is_read_or_refused(damaged):
    with scratch() as folder:
        published.leaf_folder(folder, ROLES, damaged)
        reads_or_refuses(lambda: shakespeare(folder), names="test")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@FUZZ
@given(key=st.sampled_from(["users", "num_samples", "user_data", "client", "x", "y", "pixel", "label"]), value=ANYTHING)
def test_whole_json_with_the_wrong_things_in_it_is_read_or_refused(key, value):
    content = json.loads(FEMNIST)
    mine = content["user_data"]["f1_00"]
    if key in content:
        content[key] = value
    elif key in mine:
        mine[key] = value
    elif key == "client":
        content["user_data"]["f1_00"] = value
    elif key == "pixel":
        mine["x"][1][7] = value
    else:
        mine["y"][1] = value
    with scratch() as folder:
        published.leaf_folder(folder, json.dumps(content).encode(), FEMNIST)
        reads_or_refuses(lambda: femnist(folder), names="train")


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"users": ' + b"[" * 100_000,
        b"9" * 10_000,
        b"\xff\xfe" + b"\0" * 10,
        b'{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[' + b"9" * 5000 + b']], "y": [0]}}}',
        b"",
    ],
    ids=["deep", "deep inside", "long number", "no text", "long number inside", "empty"],
)
def test_json_made_to_overwhelm_is_refused(tmp_path, data):
    published.leaf_folder(tmp_path, data, FEMNIST)
    with pytest.raises(BadInput, match=r"_train_9.json: expected"):
        femnist(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02Nr\xff\xff\xff\xff.",  # keeps nothing in slot 4294967295, for which a table would be made
        b"\x80\x02Nr\x00\x00\x00\x40.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x0f.",  # claims bytes without end
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",  # claims a frame without end
        b"(" * 100_000 + b".",
        b"I" + b"9" * 10_000 + b"\n.",
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02}.",
        pickle.dumps([1, 2, 3]),
        pickle.dumps({b"data": np.zeros((2, 3072), dtype=np.float64), b"labels": [1, 2]}, protocol=2),
    ],
)
def test_a_pickle_made_to_overwhelm_is_refused(tmp_path, data):
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        published.write(tmp_path / name, data)
    with pytest.raises(BadInput, match="data_batch_1: expected"):
        cifar10_of(tmp_path, records=2)


def mat_file(compressed: bool) -> bytes:
    stream = io.BytesIO()
    variables = {"X": published.pixels(32, 32, 3, 2), "y": np.array([[10], [3]], dtype=np.uint8)}
    scipy.io.savemat(stream, variables, do_compression=compressed)
    return stream.getvalue()


def zipped_again(variable: bytes) -> bytes:
    """A MATLAB file of one compressed variable, whose checksum is right whatever the variable is."""
    content = zlib.compress(variable)
    return mat_file(True)[:128] + struct.pack("<II", 15, len(content)) + content


@FUZZ
@given(damaged=damage(mat_file(False)) | damage(mat_file(True)) | damage(mat_file(False)[128:400]).map(zipped_again))
def test_a_damaged_matlab_file_is_read_or_refused(damaged):
    with scratch() as folder:
        path = published.write(folder / "train.mat", damaged)
        reads_or_refuses(lambda: read_mat(path, ("X", "y")), names="train.mat")
