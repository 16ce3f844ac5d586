"""One tensor, or a tuple or dict of them (nested as deep as one likes): several inputs, or several targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import torch

Nest: TypeAlias = Any
"""A tensor, or a tuple or dict of nests."""

Shape: TypeAlias = Any
"""Of one tensor: its numbers; of a nest: a tuple or dict of shapes."""


def mapped(nest: Nest, function: Callable[[Any], Any]) -> Nest:
    """The same nest of what the function makes of every tensor."""
    if isinstance(nest, dict):
        return {key: mapped(part, function) for key, part in nest.items()}
    return tuple(mapped(part, function) for part in nest) if isinstance(nest, tuple) else function(nest)


def leaves(nest: Nest) -> Iterator[Any]:
    """All tensors, in order."""
    for _, leaf in named(nest):
        yield leaf


def named(nest: Nest, name: str = "") -> Iterator[tuple[str, Any]]:
    """All tensors with where they are: `image`, `1`, `scan.pixels`; a lone one has no name."""
    if isinstance(nest, dict | tuple):
        parts = nest.items() if isinstance(nest, dict) else enumerate(nest)
        for key, part in parts:
            yield from named(part, f"{name}.{key}" if name else str(key))
    else:
        yield name, nest


def joined(nests: Sequence[Nest], function: Callable[[list[Any]], Any] = torch.cat) -> Nest:
    """Nests of one form, tensor by tensor put together."""
    first = nests[0]
    if isinstance(first, dict):
        return {key: joined([nest[key] for nest in nests], function) for key in first}
    if isinstance(first, tuple):
        return tuple(joined([nest[place] for nest in nests], function) for place in range(len(first)))
    return function(list(nests))


def split(nest: Nest, size: int) -> Iterable[Nest]:
    """In parts of at most this many rows."""
    if isinstance(nest, torch.Tensor):
        return torch.split(nest, size)
    parts = [slice(start, start + size) for start in range(0, rows_in(nest), size)]
    return [mapped(nest, itemgetter(part)) for part in parts]


def rows_in(nest: Nest) -> int:
    """How many rows the first tensor has."""
    return nest.shape[0] if isinstance(nest, torch.Tensor) else len(next(leaves(nest)))


def form(nest: Nest) -> str:
    """What one row is, in words."""
    parts = [
        f"{name}{' ' if name else ''}{tuple(leaf.shape[1:])} of {str(leaf.dtype).removeprefix('torch.')}"
        for name, leaf in named(nest)
    ]
    return ", ".join(parts)
