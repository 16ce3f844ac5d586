"""Tiny-ImageNet: 200 classes, in the publisher's folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrelay.data.augment import Normalise
from fedrelay.data.federation import Source
from fedrelay.data.locate import Layout, find
from fedrelay.data.sources.cache import Arrays, cached
from fedrelay.data.sources.checks import check_some, examples, wrong
from fedrelay.data.sources.images import decode, images_in, subfolders

ANNOTATIONS = "val/val_annotations.txt"
FILES = ("train", ANNOTATIONS, "val/images")
LAYOUTS = tuple(Layout("folders", folder, FILES) for folder in ("tiny-imagenet-200", "tiny_imagenet"))
SCALE = Normalise((0.4802, 0.4481, 0.3975), (0.2302, 0.2265, 0.2262))
SIZE = 64


def tiny_imagenet(folder: Path) -> Source:
    """110,000 colour images of 64 x 64 pixels in 200 classes (Tiny-ImageNet); its validation part is tested on."""
    return tiny_imagenet_of(folder, classes=200)


def tiny_imagenet_of(folder: Path, *, classes: int) -> Source:
    """Tiny-ImageNet with this many classes."""
    _, base = find("tiny-imagenet", folder, LAYOUTS)
    names = [kind.name for kind in subfolders(base / "train")]
    if len(names) != classes:
        raise wrong(base / "train", f"{classes} folders of classes", f"{len(names)}")
    place = {name: number for number, name in enumerate(names)}
    train = [(image, place[name]) for name in names for image in _train(base / "train" / name)]
    test = _validation(base, place)
    check_some(base / "train", len(train))
    files = [image for image, _ in (*train, *test)]

    def build() -> Arrays:
        return {"x": decode(base, files, SIZE, "white")[0]}

    x = cached(base, "images", files, build)["x"]
    y = np.array([label for _, label in (*train, *test)], dtype=np.int64)
    return Source(
        "tiny-imagenet",
        train=examples(x[: len(train)], y[: len(train)], SCALE),
        test=examples(x[len(train) :], y[len(train) :], SCALE),
        classes=classes,
        class_names=_words(base, names),
    )


def _train(folder: Path) -> list[Path]:
    return images_in(folder / "images" if (folder / "images").is_dir() else folder)


def _validation(base: Path, place: dict[str, int]) -> list[tuple[Path, int]]:
    """Lines of an image and its class (and its box, which nobody needs here)."""
    path = base / ANNOTATIONS
    rows = [
        line.split("\t") for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
    ]
    bad = sum(len(row) < 2 or row[1] not in place for row in rows)
    if bad or not rows:
        found = f"{bad} of {len(rows)} lines with another class or none" if bad else "no lines"
        raise wrong(path, "lines of an image and one of the classes of the training part", found)
    images = [(base / "val/images" / row[0], place[row[1]]) for row in rows]
    missing = [image.name for image, _ in images if not image.exists()]
    if missing:
        raise wrong(base / "val/images", f"the {len(images)} images of {ANNOTATIONS}", f"{len(missing)} missing")
    return images


def _words(base: Path, names: list[str]) -> tuple[str, ...]:
    """The English names of the classes, where the file with them is there."""
    path = base / "words.txt"
    if not path.exists():
        return tuple(names)
    known = dict(
        line.split("\t", 1) for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if "\t" in line
    )
    return tuple(known.get(name, name) for name in names)
