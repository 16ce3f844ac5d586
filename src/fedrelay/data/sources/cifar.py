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


@dataclass(frozen=True)
class _Format:
    """How the batches of a set are stored: label bytes before the pixels, which of them counts, its pickled name."""

    classes: int
    label_bytes: int
    key: str
    records: int | None
    names: str


def cifar10(folder: Path, *, records: int | None = 10_000) -> Source:
    """60,000 colour images of 32 x 32 pixels in 10 classes (CIFAR-10). `records` is the length of each batch file."""
    layout, base = find("cifar10", folder, CIFAR10_LAYOUTS)
    form = _Format(10, label_bytes=1, key="labels", records=records, names="label_names")
    *train, test = (base / name for name in layout.files)
    return _source("cifar10", train, test, form, CIFAR10_NAMES)


def cifar100(folder: Path, *, records: tuple[int, int] | None = (50_000, 10_000)) -> Source:
    """60,000 colour images of 32 x 32 pixels in 100 classes (CIFAR-100, fine labels).

    `records` are the lengths of the two files.
    """
    layout, base = find("cifar100", folder, CIFAR100_LAYOUTS)
    train, test = (base / name for name in layout.files)
    form = _Format(100, label_bytes=2, key="fine_labels", records=None, names="fine_label_names")
    source = _source("cifar100", [train], test, form, _names100(base))
    if records is not None and (len(source.train), len(source.test)) != records:
        found = f"{len(source.train)} and {len(source.test)}"
        raise wrong(base, f"{records[0]} images to train on and {records[1]} to test on", found)
    return source


def _source(name: str, train: Sequence[Path], test: Path, form: _Format, names: tuple[str, ...]) -> Source:
    batches = [_batch(path, form) for path in train]
    x, y = np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])
    return Source(
        name,
        train=examples(x, y, SCALE),
        test=examples(*_batch(test, form), SCALE),
        classes=form.classes,
        class_names=names,
    )


def _batch(path: Path, form: _Format) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    pixels, labels = _binary(path, form) if path.suffix == ".bin" else _pickled(path, form)
    if form.records is not None and len(labels) != form.records:
        raise wrong(path, f"{form.records} images", f"{len(labels)}")
    if not len(labels):
        raise wrong(path, "images", "none")
    check_labels(path, labels, form.classes)
    # Published channel by channel; we keep the channels of a pixel together.
    images = np.empty((len(labels), 32, 32, 3), dtype=np.uint8)
    for channel, plane in enumerate(np.split(pixels, 3, axis=1)):  # three times as fast as one transposition
        images[..., channel] = plane.reshape(-1, 32, 32)
    return images, labels


def _binary(path: Path, form: _Format) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    record = form.label_bytes + PIXELS
    size = path.stat().st_size
    if size % record:
        raise wrong(path, f"a whole number of records of {record} bytes", f"{size} bytes ({size / record:.2f} records)")
    data = np.fromfile(path, dtype=np.uint8).reshape(-1, record)
    return data[:, form.label_bytes :], data[:, form.label_bytes - 1]


def _pickled(path: Path, form: _Format) -> tuple[NDArray[np.uint8], NDArray[Any]]:
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
        names = tuple(text.read_text(errors="replace").split())
    elif meta.exists():
        listed = pickles.load(meta).get("fine_label_names", [])
        names = tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in listed)
    else:
        return ()
    return names if len(names) == 100 else ()
