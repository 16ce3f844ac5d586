"""Folders of images: decoded and scaled once, then read from a cache."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrelay import seeds
from fedrelay.data.augment import Normalise
from fedrelay.data.federation import Rows
from fedrelay.data.sources.checks import wrong

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
SCALE = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The mean and the spread of ImageNet, which everybody uses for photographs."""


def subfolders(folder: Path) -> list[Path]:
    """Sorted; hidden ones are left out."""
    with os.scandir(folder) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, sorted; anything else (and hidden files) is left out."""
    with os.scandir(folder) as entries:
        names = [entry.path for entry in entries if entry.is_file() and not entry.name.startswith(".")]
    return sorted(Path(name) for name in names if Path(name).suffix.lower() in SUFFIXES)


def decode(paths: Sequence[Path], size: int) -> NDArray[np.uint8]:
    """The images in colour, scaled to size x size: (n, size, size, 3)."""
    result = np.empty((len(paths), size, size, 3), dtype=np.uint8)

    def put(place: int) -> None:
        result[place] = image(paths[place], size)

    # Pillow warns about odd metadata (an image that cannot be decoded is an error), and it lets go of the interpreter
    # while it decodes.
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(put, range(len(paths))):
            pass
    return result


def image(path: Path, size: int) -> NDArray[np.uint8]:
    """One image in colour, scaled to size x size."""
    from PIL import Image

    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (2 * size, 2 * size))
            colour = opened.convert("RGB")
    except Exception as error:  # a damaged image makes its decoder fail in many ways
        raise wrong(path, "an image", f"a damaged or other file ({type(error).__name__}: {error})") from None
    if colour.size != (size, size):
        colour = colour.resize((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.asarray(colour, dtype=np.uint8)


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
