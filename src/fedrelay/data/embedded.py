"""The data sets that need no download, because they come with scikit-learn: digits, and a regression."""

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


def diabetes(test: float = 0.2) -> Source:
    """442 patients: how far their diabetes has gone after a year (a number from 25 to 346), from age, sex, body mass,
    blood pressure and six blood values, all standardised; always the same split."""
    if not 0 < test < 1:
        raise BadInput(f"the test part of diabetes must be between 0 and 1, found {test}")
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes()
    x = torch.from_numpy(
        (bunch.data * len(bunch.data) ** 0.5).astype(np.float32)
    )  # scikit-learn has columns of length 1
    y = torch.from_numpy(bunch.target.astype(np.float32))
    order = torch.from_numpy(seeds.rng(0, "diabetes").permutation(len(y)))
    held = min(max(round(test * len(y)), 1), len(y) - 1)
    return Source(
        "diabetes",
        train=Examples(x[order[held:]], y[order[held:]]),
        test=Examples(x[order[:held]], y[order[:held]]),
        classes=1,
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
