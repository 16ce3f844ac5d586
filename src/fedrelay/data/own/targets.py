"""What the targets of somebody's own data are: classes, next tokens, a class for every pixel, labels, or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.examples import Target
from fedrelay.data.sources.checks import check_numbers, wrong
from fedrelay.data.sources.tokens import NOTHING
from fedrelay.errors import BadInput

Arrays = Sequence[tuple[str, NDArray[Any]]]
"""The name and the targets of every client and of the test part."""
MANY, SPARSE = 10_000, 100
"""From so many classes on, and if so many times as many occur as there are, a label is rather a mistake."""
FEW = 20
"""Floats that are whole numbers, and only so many different ones, are rather classes than numbers."""


def understood(name: str, found: Arrays, wanted: Target | None, *, tokens: bool) -> tuple[Target, Arrays]:
    """What kind of targets these are, as it is said or else as they look, and the targets in the form of that kind."""
    if wanted is not None and wanted not in get_args(Target):
        raise BadInput(f"target must be one of {', '.join(get_args(Target))}, not {wanted!r}")
    for part, y in found:
        if y.dtype.kind not in "fiub" or not y.ndim:
            raise wrong(part, "targets to be numbers of shape (n, …)", f"{y.dtype} of shape {y.shape}")
    kind = wanted or _looks_like(name, found, tokens=tokens)
    return kind, [(part, _FORMS[kind](part, y)) for part, y in found]


def number_of(name: str, kind: Target, found: Arrays, given: int | None) -> int:
    """How many labels or numbers an example has; where it is given, it must be that."""
    shape = found[0][1].shape
    count = shape[1] if len(shape) == 2 else 1
    if given is not None and given != count:
        raise wrong(name, f"{given} {kind} an example, as `classes` says", f"{count}")
    return count


def check_classes(name: str, found: Arrays, classes: int, *, gaps: bool) -> None:
    """Refuse classes outside 0 … classes - 1; with gaps, -100 stands for a place that does not count."""
    bad = [int((((y < 0) | (y >= classes)) & ~(gaps & (y == NOTHING))).sum()) for _, y in found]
    places = [part for (part, _), count in zip(found, bad, strict=True) if count]
    if places:
        outside = f"{sum(bad)} outside, in {len(places)} places, the first {places[0]}"
        raise wrong(name, f"labels from 0 to {classes - 1}", outside)


def check_dense(name: str, largest: int, different: int) -> None:
    """Refuse labels of which almost none occur: one mistyped label of ten million would make as many classes."""
    if largest >= MANY and largest >= SPARSE * different:
        found = f"a label {largest:,} where only {different:,} different ones occur"
        raise wrong(name, "labels to be 0, 1, 2, …", f"{found}: correct it, make labels texts, or say `classes`")


def _looks_like(name: str, found: Arrays, *, tokens: bool) -> Target:
    """What targets of these types and shapes are; what could be two things must be said."""
    first = found[0][1]
    if any(y.dtype.kind == "f" for _, y in found):
        if _few_whole(found):
            raise wrong(
                name,
                'classes to be whole numbers, or target="numbers" to be said',
                f"{first.dtype} targets that are whole numbers, of at most {FEW} different values",
            )
        return "numbers"
    if first.ndim == 1:
        return "classes"
    if first.ndim == 2 and tokens:
        return "tokens"
    if first.ndim == 2 and first.shape[1] > 1 and all(((y == 0) | (y == 1)).all() for _, y in found):
        return "labels"
    if first.ndim == 3:
        return "mask"
    raise wrong(
        name,
        "targets of shape (n) for classes, (n, labels) of 0 and 1, (n, height, width) for masks, or floats for numbers",
        f"{first.dtype} of shape {first.shape}; for next tokens say tokens=True",
    )


def _few_whole(found: Arrays) -> bool:
    values: set[float] = set()
    for _, y in found:
        different = np.unique(y)
        if not (np.isfinite(different) & (different == np.round(different))).all():
            return False
        values |= set(different.tolist())
    return len(values) <= FEW


def _whole(part: str, y: NDArray[Any], dimensions: int, what: str) -> NDArray[np.int64]:
    if y.dtype.kind == "f" and not (np.isfinite(y) & (y == np.round(y))).all():
        raise wrong(part, f"{what} to be whole numbers", f'{y.dtype} with fractions; numbers are target="numbers"')
    if y.ndim != dimensions:
        raise wrong(part, f"{what} in {dimensions} dimensions, examples first", f"targets of shape {y.shape}")
    return np.array(y, dtype=np.int64)


def _labels(part: str, y: NDArray[Any]) -> NDArray[np.bool_]:
    if y.ndim != 2 or not ((y == 0) | (y == 1)).all():
        raise wrong(part, "labels to be 0 or 1, of shape (n, labels)", f"{y.dtype} of shape {y.shape} with others")
    return np.array(y, dtype=np.bool_)


def _numbers(part: str, y: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        numbers = np.array(y, dtype=np.float32)
    check_numbers(f"targets of {part}", numbers)
    return numbers


_FORMS: dict[Target, Any] = {
    "classes": lambda part, y: _whole(part, y, 1, "classes"),
    "tokens": lambda part, y: _whole(part, y, 2, "next tokens"),
    "mask": lambda part, y: _whole(part, y, 3, "masks"),
    "labels": _labels,
    "numbers": _numbers,
}
