"""The data set that needs no download: the handwritten digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.data.federation import Examples, Rows, Source
from fedrelay.errors import BadInput


def digits(test: float = 0.2) -> Source:
    """1,797 grey images of 8 x 8 pixels in [0, 1], ten classes; always the same stratified split."""
    if not 0 < test < 1:
        raise BadInput(f"the test part of digits must be between 0 and 1, found {test}")
    from sklearn.datasets import load_digits  # here, because importing scikit-learn takes a second

    bunch = load_digits()
    images = torch.from_numpy((bunch.images / 16).astype(np.float32)).unsqueeze(-1)
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    train_rows, test_rows = _stratified(bunch.target, test)
    return Source(
        "digits",
        train=Examples(images[train_rows], labels[train_rows]),
        test=Examples(images[test_rows], labels[test_rows]),
        classes=10,
        class_names=tuple(str(digit) for digit in range(10)),
    )


def _stratified(labels: Rows, test: float) -> tuple[Rows, Rows]:
    """Rows to train on and rows to test on, the same share of every class. Fixed: it does not know the run's seed."""
    rng = seeds.rng(0, "digits")
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        most = len(rows) - 1
        chosen[rows[: min(max(round(test * len(rows)), 1), most)]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
