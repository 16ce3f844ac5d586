"""What every reader refuses: wrong files, labels out of range, values that are no numbers, empty clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.federation import Examples, Transform
from fedrelay.errors import BadInput


def wrong(where: Path | str, expected: str, found: str) -> BadInput:
    """The error for a file that is not what it should be."""
    return BadInput(f"{where}: expected {expected}, found {found}")


def check_labels(where: Path | str, labels: NDArray[Any], classes: int) -> None:
    """Refuse labels outside 0 … classes - 1, with their count and the first of them."""
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(bad):
        first = int(bad[0])
        raise wrong(
            where,
            f"labels from 0 to {classes - 1}",
            f"{len(bad)} of {labels.size} outside, the first being {labels.ravel()[first]} at {first}",
        )


def check_numbers(where: Path | str, values: NDArray[Any], least: float = -np.inf, most: float = np.inf) -> None:
    """Refuse values that are not numbers or outside their range, with their count."""
    if not np.issubdtype(values.dtype, np.floating):
        return
    unknown = int(np.isnan(values).sum())
    if unknown:
        raise wrong(where, "numbers", f"{unknown} of {values.size} values that are NaN")
    outside = int(((values < least) | (values > most) | np.isinf(values)).sum())
    if outside:
        limits = "finite values" if least == -np.inf else f"values from {least:g} to {most:g}"
        raise wrong(where, limits, f"{outside} of {values.size} outside")


def check_clients(where: Path | str, names: Sequence[str], sizes: NDArray[Any] | Sequence[int]) -> None:
    """Refuse clients without examples, by name and with their count."""
    empty = [str(name) for name, size in zip(names, sizes, strict=True) if not size]
    if empty:
        named = ", ".join(empty[:10]) + (" …" if len(empty) > 10 else "")
        raise wrong(where, "examples for every client", f"{len(empty)} of {len(names)} clients with none: {named}")


def check_some(where: Path | str, count: int) -> None:
    """Refuse a part of a data set without any example."""
    if not count:
        raise wrong(where, "at least one example", "none")


def examples(x: NDArray[Any], y: NDArray[Any], transform: Transform | None) -> Examples:
    """Arrays as a reader has checked them: inputs as they are stored, labels as torch wants them."""
    inputs = np.require(x, requirements=("C", "W"))  # torch wants memory that it may write to
    return Examples(torch.from_numpy(inputs), torch.from_numpy(np.array(y, dtype=np.int64)), transform)


def bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Grey values in [0, 1] as bytes."""
    result: NDArray[np.uint8] = np.rint(np.asarray(values, dtype=np.float64) * 255).astype(np.uint8)
    return result
