"""USPS: scanned postal digits, as the usual HDF5 file or in the text format of LIBSVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.augment import Normalise
from fedrelay.data.federation import Examples, Source
from fedrelay.data.locate import Layout, find
from fedrelay.data.sources import hdf5
from fedrelay.data.sources.checks import bytes_of, check_labels, check_numbers, check_some, examples, wrong

LIBSVM = ("usps.bz2", "usps.t.bz2")
LAYOUTS = (Layout("hdf5", "usps", ("usps.h5",)), Layout("libsvm", "usps", LIBSVM))
SCALE = Normalise((0.2545,), (0.3846,))


def usps(folder: Path) -> Source:
    """9,298 grey digits of 16 x 16 pixels from envelopes (USPS)."""
    layout, base = find("usps", folder, LAYOUTS)
    if layout.kind == "hdf5":
        path = base / "usps.h5"
        with hdf5.opened(path) as file:
            columns = {
                part: [hdf5.column(path, file, f"{part}/{name}") for name in ("data", "target")] for part in PARTS
            }
        train, test = (_part(f"{path}, {part}", *columns[part]) for part in PARTS)
    else:
        train, test = (_part(str(base / name), *_libsvm(base / name)) for name in LIBSVM)
    return Source("usps", train, test, classes=10, class_names=tuple("0123456789"))


PARTS = ("train", "test")


def _part(where: str, data: NDArray[Any], target: NDArray[Any]) -> Examples:
    if data.dtype.kind != "f" or data.ndim < 2 or data[:1].size not in (0, 256):
        raise wrong(where, "256 grey values per digit", f"{data.dtype} of shape {data.shape}")
    if target.dtype.kind not in "iu" or target.shape != (len(data),):
        raise wrong(where, f"{len(data)} whole numbers as labels", f"{target.dtype} of shape {target.shape}")
    check_some(where, len(data))
    check_numbers(where, data, 0, 1)
    check_labels(where, target, 10)
    return examples(bytes_of(data).reshape(-1, 16, 16, 1), target, SCALE)


def _libsvm(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels 1 … 10 for the digits 0 … 9, grey values from -1 to 1."""
    from sklearn.datasets import load_svmlight_file

    try:
        sparse, labels = load_svmlight_file(str(path), n_features=256)
    except (OSError, EOFError, ValueError) as error:
        raise wrong(path, "a whole file of LIBSVM", f"a damaged one ({error})") from None
    check_numbers(path, labels, 1, 10)
    return (sparse.toarray() + 1) / 2, labels.astype(np.int64) - 1
