"""SVHN: street-view house numbers, in the publisher's cropped MATLAB files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrelay.data.augment import Normalise
from fedrelay.data.federation import Examples, Source
from fedrelay.data.locate import Layout, find
from fedrelay.data.sources.checks import check_labels, check_some, examples, wrong
from fedrelay.data.sources.matlab import read_mat

FILES = ("train_32x32.mat", "test_32x32.mat")
LAYOUTS = (Layout("mat", "SVHN", FILES), Layout("mat", "svhn", FILES))
SCALE = Normalise((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))


def svhn(folder: Path) -> Source:
    """99,289 colour digits of 32 x 32 pixels from house numbers (SVHN, cropped)."""
    _, base = find("svhn", folder, LAYOUTS)
    train, test = (_part(base / name) for name in FILES)
    return Source("svhn", train, test, classes=10, class_names=tuple("0123456789"))


def _part(path: Path) -> Examples:
    found = read_mat(path, ("X", "y"))
    missing = [name for name in ("X", "y") if name not in found]
    if missing:
        raise wrong(path, "variables X and y", f"no {' and no '.join(missing)}")
    x, y = found["X"], found["y"]
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[:3] != (32, 32, 3):
        raise wrong(path, "X: bytes of shape (32, 32, 3, n)", f"{x.dtype} of shape {x.shape}")
    labels = y.reshape(-1)
    if labels.dtype.kind not in "iuf" or len(labels) != x.shape[3]:
        raise wrong(path, f"y: {x.shape[3]} numbers", f"{y.dtype} of shape {y.shape}")
    check_some(path, len(labels))
    labels = labels.astype(np.int64)
    labels[labels == 10] = 0  # the publisher calls a zero 10
    check_labels(path, labels, 10)
    return examples(x.transpose(3, 0, 1, 2), labels, SCALE)
