"""Folders of images: decoded and scaled once, then read from a cache."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay import seeds
from fedrelay.data.augment import Normalise
from fedrelay.data.federation import Rows
from fedrelay.data.sources import dicom
from fedrelay.data.sources.checks import wrong
from fedrelay.data.sources.pictures import Depth, Look, decoded, look
from fedrelay.system.cores import usable

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}) | dicom.SUFFIXES
SCALE = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The mean and the spread of ImageNet, which everybody uses for photographs."""
DEEP_SCALE = Normalise((0.5,), (0.5,))
"""From 0 … 1, to which deep pictures are scaled by their range, to -1 … 1."""


def subfolders(folder: Path) -> list[Path]:
    """Sorted; hidden ones are left out."""
    with os.scandir(folder) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, sorted; anything else (and hidden files) is left out."""
    with os.scandir(folder) as entries:
        names = [entry.path for entry in entries if entry.is_file() and not entry.name.startswith(".")]
    return sorted(Path(name) for name in names if Path(name).suffix.lower() in SUFFIXES)


def others_in(folder: Path, images: Sequence[Path]) -> list[str]:
    """All files below a folder that are none of these images, but for hidden ones."""
    known = set(images)
    paths = ((path, path.relative_to(folder)) for path in folder.rglob("*"))
    return sorted(
        name.as_posix()
        for path, name in paths
        if path not in known and not any(part.startswith(".") for part in name.parts) and path.is_file()
    )


def decode(base: Path, paths: Sequence[Path], size: int, background: str | None) -> tuple[NDArray[Any], list[str]]:
    """The images scaled to size x size, and what there is to say of them."""
    deep, notes = looked_at(base, paths)
    return scaled_images(paths, size, background, deep=deep), notes


def looked_at(base: Path, paths: Sequence[Path]) -> tuple[bool, list[str]]:
    """Whether these images are grey with more than 8 bits, and what there is to say of them."""
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(usable()) as pool:
        looks = list(pool.map(look, paths))
    return depth(base, paths, looks) == "deep", list(remarks(looks))


def scaled_images(paths: Sequence[Path], size: int, background: str | None, *, deep: bool) -> NDArray[Any]:
    """In colour as bytes (n, size, size, 3), or, if they are deep, as floats (n, size, size, 1)."""
    # Pillow warns about odd metadata (an image that cannot be decoded is an error), and it lets go of the interpreter
    # while it decodes.
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(usable()) as pool:
        shape = (len(paths), size, size, 1 if deep else 3)
        result: NDArray[Any] = np.empty(shape, dtype=np.float32 if deep else np.uint8)

        def put(place: int) -> None:
            result[place] = decoded(paths[place], size, background)

        for _ in pool.map(put, range(len(paths))):
            pass
    return result


def depth(base: Path, paths: Sequence[Path], looks: Sequence[Look]) -> Depth:
    """Of all images; where they differ they are refused, because one scale would not do for both."""
    counts = Counter(each.depth for each in looks)
    if len(counts) > 1:
        first = {kind: paths[[each.depth for each in looks].index(kind)].relative_to(base) for kind in counts}
        found = (
            f"{counts['bytes']} of 8 bits (the first {first['bytes']}) and {counts['deep']} grey ones with more "
            f"(the first {first['deep']})"
        )
        raise wrong(base, "images of one depth", found)
    return looks[0].depth


def remarks(looks: Sequence[Look]) -> Iterator[str]:
    """What is done to images without being asked."""
    grey = sum(each.grey for each in looks if each.depth == "bytes")
    colour = sum(not each.grey for each in looks)
    if grey and colour:
        yield f"{grey} grey images are taken in colour, as the {colour} others are"
    several = sum(each.frames > 1 for each in looks)
    if several:
        yield f"of {several} images with several frames only the first is taken"


def held_out(groups: Rows, share: float, label: str) -> tuple[Rows, Rows]:
    """Rows to train on and rows to test on: the same share of every group, always the same ones.

    A group keeps at least one row to train on, and of two or more at least one is tested on.
    """
    rng = seeds.rng(0, "held out", label)
    chosen = np.zeros(len(groups), dtype=bool)
    order = np.argsort(groups, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        count = min(max(round(share * len(rows)), 1), len(rows) - 1)
        chosen[rng.permutation(rows)[:count]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
