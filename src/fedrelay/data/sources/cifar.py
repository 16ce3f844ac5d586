"""CIFAR-10 and CIFAR-100, in the binary and the python version of the publisher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.augment import Normalise
from fedrelay.data.federation import Source
from fedrelay.data.locate import Layout, find
from fedrelay.data.sources import pickles
from fedrelay.data.sources.checks import check_labels, examples, wrong

PIXELS = 3 * 32 * 32
SCALE = Normalise((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
"""For both sets, as in the published code of FedSeq."""

CIFAR10_LAYOUTS = (
    Layout("binary", "cifar-10-batches-bin", (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")),
    Layout("python", "cifar-10-batches-py", (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")),
)
CIFAR100_LAYOUTS = (
    Layout("binary", "cifar-100-binary", ("train.bin", "test.bin")),
    Layout("python", "cifar-100-python", ("train", "test")),
)
CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


Batch = tuple[NDArray[np.uint8], NDArray[Any]]
"""Images and labels of one file."""


@dataclass(frozen=True)
class _Format:
    """How the batches of a set are stored: label bytes before the pixels, which of them counts, its pickled name."""

    classes: int
    label_bytes: int
    key: str


def cifar10(folder: Path) -> Source:
    """60,000 colour images of 32 x 32 pixels in 10 classes (CIFAR-10)."""
    return cifar10_of(folder, records=10_000)


def cifar100(folder: Path) -> Source:
    """60,000 colour images of 32 x 32 pixels in 100 classes (CIFAR-100, fine labels)."""
    return cifar100_of(folder, records=(50_000, 10_000))


def cifar10_of(folder: Path, *, records: int) -> Source:
    """CIFAR-10 with this many images in every batch file."""
    layout, base = find("cifar10", folder, CIFAR10_LAYOUTS)
    *train, test = (base / name for name in layout.files)
    form = _Format(10, label_bytes=1, key="labels")
    return _source(
        "cifar10", form, CIFAR10_NAMES, [_batch(p, form, records) for p in train], _batch(test, form, records)
    )


def cifar100_of(folder: Path, *, records: tuple[int, int]) -> Source:
    """CIFAR-100 with this many images to train on and to test on."""
    layout, base = find("cifar100", folder, CIFAR100_LAYOUTS)
    form = _Format(100, label_bytes=2, key="fine_labels")
    train, test = (_batch(base / name, form, count) for name, count in zip(layout.files, records, strict=True))
    return _source("cifar100", form, _names100(base), [train], test)


def _source(name: str, form: _Format, names: tuple[str, ...], train: Sequence[Batch], test: Batch) -> Source:
    x, y = np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train])
    return Source(
        name,
        train=examples(x, y, SCALE),
        test=examples(*test, SCALE),
        classes=form.classes,
        class_names=names,
    )


def _batch(path: Path, form: _Format, records: int) -> Batch:
    pixels, labels = _binary(path, form) if path.suffix == ".bin" else _pickled(path, form)
    if len(labels) != records:
        raise wrong(path, f"{records} images", f"{len(labels)}")
    check_labels(path, labels, form.classes)
    # Published channel by channel; we keep the channels of a pixel together.
    images = np.empty((len(labels), 32, 32, 3), dtype=np.uint8)
    for channel, plane in enumerate(np.split(pixels, 3, axis=1)):  # three times as fast as one transposition
        images[..., channel] = plane.reshape(-1, 32, 32)
    return images, labels


def _binary(path: Path, form: _Format) -> Batch:
    record = form.label_bytes + PIXELS
    size = path.stat().st_size
    if size % record:
        raise wrong(path, f"a whole number of records of {record} bytes", f"{size} bytes ({size / record:.2f} records)")
    data = np.fromfile(path, dtype=np.uint8).reshape(-1, record)
    return data[:, form.label_bytes :], data[:, form.label_bytes - 1]


def _pickled(path: Path, form: _Format) -> Batch:
    batch = pickles.load(path)
    pixels, labels = pickles.array(path, batch, "data"), pickles.numbers(path, batch, form.key)
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise wrong(path, f"bytes of shape (n, {PIXELS})", f"{pixels.dtype} of shape {pixels.shape}")
    if len(pixels) != len(labels):
        raise wrong(path, "one label per image", f"{len(pixels)} images and {len(labels)} labels")
    return pixels, labels


def _names100(base: Path) -> tuple[str, ...]:
    """The names of the classes, which come in a file of their own; without it they have none."""
    text, meta = base / "fine_label_names.txt", base / "meta"
    if text.exists():
        names = tuple(text.read_text(encoding="utf-8", errors="replace").split())
    elif meta.exists():
        listed = pickles.load(meta).get("fine_label_names", [])
        names = tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in listed)
    else:
        return ()
    return names if len(names) == 100 else ()
