"""Arrays of several inputs per example: a dict or tuple of arrays in the place of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedrelay.data.examples import Examples
from fedrelay.data.federation import Federation, Transform
from fedrelay.data.nests import Nest, form, joined, leaves
from fedrelay.data.own.assemble import Parts, assembled
from fedrelay.data.sources.checks import check_numbers, wrong
from fedrelay.data.stores.datasets import target_type


def is_several(pair: Any) -> bool:
    """Whether the inputs or the targets of a pair are a dict of arrays, or the inputs a tuple of arrays with a row for
    every target (otherwise they are the rows themselves)."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    if any(isinstance(part, Mapping) for part in pair):
        return True
    x, y = pair
    return _arrays(x) and len(x) != len(y) and all(len(part) == len(y) for part in x)


def _arrays(part: Any) -> bool:
    kinds = np.ndarray | torch.Tensor
    return isinstance(part, tuple) and bool(part) and all(isinstance(one, kinds) and one.ndim > 0 for one in part)


def from_several(
    name: str,
    pairs: Mapping[str, Any],
    *,
    test: Any,
    classes: int | None,
    class_names: Sequence[str],
    transform: Transform | None,
    channels: str,
) -> Federation:
    """The federation of clients with several inputs (or targets) per example."""
    share = float(test) if isinstance(test, int | float) else None
    given = dict(pairs) if share is not None else {**pairs, "test part": test}
    parts = {label: _part(label, pair, channels) for label, pair in given.items()}
    first, expected = next(iter(parts.items()))
    for label, part in parts.items():
        if (form(part.x), form(part.y)) != (form(expected.x), form(expected.y)):
            wanted = f"inputs {form(expected.x)} and targets {form(expected.y)} as in {first}"
            raise wrong(label, wanted, f"inputs {form(part.x)} and targets {form(part.y)}")
    whole = Examples(joined([p.x for p in parts.values()]), joined([p.y for p in parts.values()]), transform)
    sizes = [len(part) for part in parts.values()]
    mine = len(pairs)
    return assembled(
        name,
        Parts(whole, list(pairs), sizes[:mine], sizes[mine:]),
        share=share,
        classes=classes,
        class_names=class_names,
    )


def _part(name: str, pair: Any, channels: str) -> Examples:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise wrong(name, "a pair of inputs and targets", f"a {type(pair).__name__}")
    x = _tensors(name, "inputs", pair[0], lambda part: _stored(part, channels))
    y = _tensors(name, "targets", pair[1], target_type)
    counts = {len(leaf) for leaf in (*leaves(x), *leaves(y))}
    if len(counts) != 1 or 0 in counts:
        raise wrong(name, "the same number of rows everywhere, at least one", f"{sorted(counts)}")
    return Examples(x, y)


def _tensors(name: str, what: str, part: Any, convert: Any) -> Nest:
    if isinstance(part, Mapping):
        return {key: _tensors(name, f"{what} {key!r}", value, convert) for key, value in part.items()}
    if _arrays(part):
        return tuple(_tensors(name, f"{what} {place}", value, convert) for place, value in enumerate(part))
    array = part.detach().cpu().numpy() if isinstance(part, torch.Tensor) else np.asarray(part)
    if array.dtype.kind not in "fiub" or array.ndim < 1:
        raise wrong(name, f"{what} to be numbers of shape (n, …)", f"{array.dtype} of shape {array.shape}")
    check_numbers(f"{name}, {what}", array)
    return convert(torch.from_numpy(np.require(array, requirements=("C", "W"))))


def _stored(part: torch.Tensor, channels: str) -> torch.Tensor:
    """As `Examples` has them: images with their channels last, bytes as -1 … 1, floats of single precision."""
    if part.ndim == 4 and channels == "first":
        part = part.permute(0, 2, 3, 1).contiguous()
    if part.ndim == 4 and part.dtype == torch.uint8:
        return part.float() / 127.5 - 1
    return part.float() if part.is_floating_point() else part
