"""FEMNIST by writer: a LEAF export, the HDF5 files of the public federated version, or one compact npz."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.augment import Normalise
from fedrelay.data.federation import Source
from fedrelay.data.locate import Layout, find
from fedrelay.data.sources import hdf5
from fedrelay.data.sources.cache import Arrays, cached
from fedrelay.data.sources.checks import bytes_of, check_labels, check_numbers, check_some, examples, wrong
from fedrelay.data.sources.leaf import decode_image, joined, leaf_layouts, read_leaf
from fedrelay.errors import BadInput

NAMES = string.digits + string.ascii_uppercase + string.ascii_lowercase
SCALE = Normalise((0.9614,), (0.1644,))
"""Mean and spread of the training pixels; the paper is white (1), the ink black (0)."""
HDF5 = ("fed_emnist_train.h5", "fed_emnist_test.h5")
LAYOUTS = (
    Layout("npz", "femnist", ("femnist.npz",)),
    *leaf_layouts("femnist", "femnist/data", "femnist/leaf"),
    Layout("hdf5", "femnist", HDF5),
)
COLUMNS = {"x": np.uint8, "y": np.uint8, "writer": np.int16, "is_test": np.uint8}


def femnist(folder: Path) -> Source:
    """Grey digits and letters of 28 x 28 pixels in 62 classes, by who wrote them (FEMNIST of LEAF)."""
    layout, base = find("femnist", folder, LAYOUTS)
    if layout.kind == "leaf":
        stored = read_leaf(base, "femnist", decode_image)
    elif layout.kind == "hdf5":
        stored = cached(base, "femnist-hdf5", [base / name for name in HDF5], lambda: _hdf5(base))
    else:
        stored = _npz(base / "femnist.npz")
    return Source(
        "femnist",
        train=examples(stored["train_x"], stored["train_y"], SCALE),
        test=examples(stored["test_x"], stored["test_y"], SCALE),
        classes=len(NAMES),
        owners=stored["owners"],
        owner_names=tuple(map(str, stored["names"])),
        class_names=tuple(NAMES),
    )


def _npz(path: Path) -> Arrays:
    """x, y, writer and is_test of every example, and writer_names. Writers with test examples only are no clients."""
    x, y, writer, is_test, names = _columns(path)
    check_labels(path, y, len(NAMES))
    check_labels(f"{path}, writer", writer, len(names))
    check_labels(f"{path}, is_test", is_test, 2)
    train = is_test == 0
    check_some(f"{path}, is_test = 0", int(train.sum()))
    check_some(f"{path}, is_test = 1", int((~train).sum()))
    trained, owners = np.unique(writer[train], return_inverse=True)
    return {
        "train_x": x[train][..., None],
        "train_y": y[train],
        "owners": owners.astype(np.int64),
        "names": names[trained],
        "test_x": x[~train][..., None],
        "test_y": y[~train],
    }


def _columns(path: Path) -> tuple[NDArray[Any], ...]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            missing = [name for name in (*COLUMNS, "writer_names") if name not in stored.files]
            if missing:
                raise wrong(path, f"arrays {', '.join(COLUMNS)} and writer_names", f"no {', '.join(missing)}")
            columns = tuple(stored[name] for name in COLUMNS)
            names = stored["writer_names"]
    except BadInput:
        raise
    except Exception as error:  # a damaged npz makes numpy and zipfile fail in many ways
        raise wrong(path, "a whole npz file", f"a damaged one ({error})") from None
    x = columns[0]
    if x.dtype != np.uint8 or x.shape[1:] != (28, 28):
        raise wrong(path, "x: bytes of shape (n, 28, 28)", f"{x.dtype} of shape {x.shape}")
    for name, column in zip(COLUMNS, columns, strict=True):
        if len(column) != len(x) or column.dtype.kind not in "iu" or (name != "x" and column.ndim != 1):
            raise wrong(path, f"{name}: {len(x)} whole numbers", f"{column.dtype} of shape {column.shape}")
    return (*columns, names)


def _hdf5(base: Path) -> Arrays:
    (train_x, train_y, owners, names), (test_x, test_y, _, _) = (_part(base / name) for name in HDF5)
    return {
        "train_x": train_x,
        "train_y": train_y,
        "owners": owners,
        "names": np.array(names),
        "test_x": test_x,
        "test_y": test_y,
    }


def _part(path: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], list[str]]:
    return joined(path, (_client(path, *client) for client in hdf5.clients(path, ("pixels", "label"))))


def _client(path: Path, name: str, columns: dict[str, NDArray[Any]]) -> tuple[str, NDArray[Any], NDArray[Any]]:
    pixels, labels = columns["pixels"], columns["label"].reshape(-1)
    where = f"{path}, client {name!r}"
    if pixels.shape != (len(labels), 28, 28):
        raise wrong(where, f"pixels of shape ({len(labels)}, 28, 28)", f"{pixels.shape}")
    check_numbers(where, pixels, 0, 1)
    check_labels(where, labels, len(NAMES))
    return name, bytes_of(pixels)[..., None], labels.astype(np.int64)
