"""MNIST and its relatives: the idx format, gzipped or not, and the writers that QMNIST found again."""

from __future__ import annotations

import gzip
import math
import string
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.augment import Normalise
from fedrelay.data.federation import Rows, Source
from fedrelay.data.locate import Layout, find
from fedrelay.data.sources.checks import check_labels, check_some, examples, wrong
from fedrelay.errors import BadInput

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_GZIPPED = 1032  # deflate cannot make anything smaller by more than this factor
WRITERS = "qmnist-train-labels-idx2-int"

SPLITS = {
    "byclass": string.digits + string.ascii_uppercase + string.ascii_lowercase,
    "bymerge": string.digits + string.ascii_uppercase + "abdefghnqrt",
    "balanced": string.digits + string.ascii_uppercase + "abdefghnqrt",
    "letters": string.ascii_uppercase,
    "digits": string.digits,
    "mnist": string.digits,
}
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def _either(name: str) -> str:
    return f"{name}|{name}.gz"


def _layouts(*folders: str, train: str = "train", test: str = "t10k") -> tuple[Layout, ...]:
    files = tuple(
        _either(f"{part}-{content}-ubyte") for part in (train, test) for content in ("images-idx3", "labels-idx1")
    )
    return tuple(Layout("idx", folder, files) for folder in folders)


MNIST_LAYOUTS = _layouts("MNIST/raw", "mnist")
FASHION_LAYOUTS = _layouts("FashionMNIST/raw", "fashion-mnist")


def emnist_layouts(split: str) -> tuple[Layout, ...]:
    """Where the files of one of the six versions of EMNIST may lie."""
    return _layouts("EMNIST/raw", "EMNIST/gzip", "emnist", train=f"emnist-{split}-train", test=f"emnist-{split}-test")


def mnist(folder: Path) -> Source:
    """70,000 grey digits of 28 x 28 pixels (MNIST); with the labels of QMNIST beside them, by their 539 writers."""
    return _source("mnist", folder, MNIST_LAYOUTS, string.digits, Normalise((0.1307,), (0.3081,)))


def fashion_mnist(folder: Path) -> Source:
    """70,000 grey pictures of clothes, 28 x 28 pixels, in 10 classes (Fashion-MNIST)."""
    return _source("fashion-mnist", folder, FASHION_LAYOUTS, FASHION, Normalise((0.2860,), (0.3530,)))


def emnist(folder: Path, *, version: str = "byclass") -> Source:
    """Grey digits and letters of 28 x 28 pixels (EMNIST). `version` is one of its six versions; byclass has 62 classes.

    (balanced and bymerge 47, letters 26, digits and mnist 10.)
    """
    if version not in SPLITS:
        raise BadInput(f"emnist has no version {version!r}: use one of {', '.join(SPLITS)}")
    scale = Normalise((0.1736,), (0.3317,))
    return _source("emnist", folder, emnist_layouts(version), SPLITS[version], scale, split=version)


def _source(
    name: str,
    folder: Path,
    layouts: tuple[Layout, ...],
    class_names: str | tuple[str, ...],
    scale: Normalise,
    split: str | None = None,
) -> Source:
    layout, base = find(name, folder, layouts)
    paths = [_existing(base, wanted) for wanted in layout.files]
    first = 1 if split == "letters" else 0  # the only version whose labels start at 1
    train_x, train_y = _labelled(paths[0], paths[1], len(class_names), first)
    test_x, test_y = _labelled(paths[2], paths[3], len(class_names), first)
    if split is not None:  # EMNIST keeps its images lying on their side
        train_x, test_x = train_x.swapaxes(1, 2), test_x.swapaxes(1, 2)
    writers = _existing(base, _either(WRITERS)) if name == "mnist" else None
    owners, owner_names = (None, ()) if writers is None else _writers(writers, train_y)
    return Source(
        name,
        train=examples(train_x, train_y, scale),
        test=examples(test_x, test_y, scale),
        classes=len(class_names),
        owners=owners,
        owner_names=owner_names,
        class_names=tuple(class_names),
    )


def _existing(base: Path, wanted: str) -> Path | None:
    return next((base / name for name in wanted.split("|") if (base / name).exists()), None)


def _labelled(
    images: Path | None, labels: Path | None, classes: int, first: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    assert images is not None  # `find` has seen them
    assert labels is not None
    x, y = read_idx(images), read_idx(labels)
    if x.dtype != np.uint8 or x.ndim != 3:
        raise wrong(images, "images: bytes in 3 dimensions", f"{x.dtype} in {x.ndim}")
    if y.dtype != np.uint8 or y.ndim != 1:
        raise wrong(labels, "labels: bytes in 1 dimension", f"{y.dtype} in {y.ndim}")
    if len(x) != len(y):
        raise wrong(labels, f"one label for each of the {len(x)} images of {images.name}", f"{len(y)}")
    check_some(images, x.size)
    classes_found = y.astype(np.int64) - first
    check_labels(labels, classes_found, classes)
    return x[..., None], classes_found


def _writers(path: Path, labels: NDArray[np.int64]) -> tuple[Rows, tuple[str, ...]]:
    """Who wrote each training digit: column 2 of the labels of QMNIST (Yadav and Bottou 2019)."""
    table = read_idx(path)
    if table.ndim != 2 or table.shape[1] < 3 or not np.issubdtype(table.dtype, np.integer):
        raise wrong(path, "whole numbers in 2 dimensions with at least 3 columns", f"{table.dtype} {table.shape}")
    if len(table) != len(labels):
        raise wrong(path, f"a row for each of the {len(labels)} training images", f"{len(table)} rows")
    differ = int((table[:, 0] != labels).sum())
    if differ:
        raise wrong(path, "the labels of the training images", f"{differ} of {len(labels)} labels that differ")
    names, owners = np.unique(table[:, 2], return_inverse=True)
    return owners.astype(np.int64), tuple(f"writer {name}" for name in names)


def read_idx(path: Path) -> NDArray[Any]:
    """An idx file: two zero bytes, the type, the number of dimensions, the dimensions, the values."""
    size = path.stat().st_size
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            dtype, shape = _header(path, stream)
            length = math.prod(shape) * dtype.itemsize
            most = size * MOST_GZIPPED if path.suffix == ".gz" else size
            if length > most:
                raise wrong(path, f"{length} bytes of values of shape {shape}", f"a file of only {size} bytes")
            data = _read(stream, length + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise wrong(path, "a whole gzip file", f"a damaged one ({error})") from None
    if len(data) != length:
        found = f"{len(data)}" if len(data) < length else "more"
        raise wrong(path, f"{length} bytes of values of shape {shape}", found)
    values: NDArray[Any] = np.frombuffer(data, dtype=dtype).reshape(shape)
    return values.astype(dtype.newbyteorder("="), copy=False)


def _read(stream: IO[bytes] | gzip.GzipFile, most: int) -> bytes:
    """Piece by piece, so that a header that lies about the length costs no memory."""
    pieces, left = [], most
    while left and (piece := stream.read(min(left, 1 << 24))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _header(path: Path, stream: IO[bytes] | gzip.GzipFile) -> tuple[np.dtype[Any], tuple[int, ...]]:
    start = stream.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 1 <= start[3] <= 4:
        raise wrong(
            path, "the idx format (two zero bytes, a type, a number of dimensions)", f"it to start with {start!r}"
        )
    sizes = stream.read(4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise wrong(path, f"{start[3]} dimensions in its header", f"{len(sizes) // 4}")
    return np.dtype(TYPES[start[2]]), struct.unpack(f">{start[3]}I", sizes)
