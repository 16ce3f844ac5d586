"""Parts of a model by name: its normalisation layers, its head, or what patterns match."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedrelay.errors import BadInput
from fedrelay.models import Network
from fedrelay.vectors import Layout

PRIVATE = "private"
"""Where a client's memory has the parts that stay at home."""

NORM = re.compile("Norm(?!al)")
"""Every normalisation layer says so in the name of its class, whoever wrote it."""


@dataclass(frozen=True)
class Parts:
    """The modules of a network that have a role, by name."""

    name: str
    """The network's class."""
    norm: tuple[str, ...]
    head: tuple[str, ...]
    """The last linear layer, or whatever the network says is its head; empty if it has none."""
    by_batch: bool
    """Whether an example's output depends on the others of its batch, in training (BatchNorm)."""


def parts_of(network: nn.Module) -> Parts:
    """What a network consists of."""
    named = list(network.named_modules())
    return Parts(
        type(network).__name__,
        tuple(name for name, module in named if NORM.search(type(module).__name__)),
        head_of(network, named),
        any(normalises_by_batch(module) for _, module in named),
    )


def head_of(network: nn.Module, named: Sequence[tuple[str, nn.Module]]) -> tuple[str, ...]:
    """The name of the head. timm's networks have a method that returns it."""
    if isinstance(network, Network):
        return ("head",)
    told = getattr(network, "get_classifier", None)
    head = told() if callable(told) else None
    linear = [name for name, module in named if isinstance(module, nn.Linear)]
    return tuple(name for name, module in named if module is head) or tuple(linear[-1:])


def normalises_by_batch(module: nn.Module) -> bool:
    """Whether it will look at the whole batch in training: not if its owner has put it in `.eval()`."""
    known = isinstance(module, _BatchNorm)
    if not known and "BatchNorm" not in type(module).__name__:
        return False
    return module.training or (known and module.running_mean is None)


def places(layout: Layout, parts: Parts, patterns: Sequence[str]) -> tuple[slice, ...]:
    """Where in a model's vector these parts are: `norm`, `head`, or patterns for names (`body.3`, `*.bias`). A part
    that is not there is refused."""
    chosen: set[str] = set()
    for pattern in patterns:
        modules = {"norm": parts.norm, "head": parts.head}.get(pattern)
        wanted = (pattern,) if modules is None else modules
        found = {entry.name for entry in layout.entries if any(inside(entry.name, each) for each in wanted)}
        if not found:
            raise BadInput(nothing(layout, pattern))
        chosen |= found
    return joined([slice(e.start, e.start + e.size) for e in layout.entries if e.name in chosen])


def inside(name: str, pattern: str) -> bool:
    """Whether a tensor is the one of this name, or in the module of this name."""
    return not pattern or fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def nothing(layout: Layout, pattern: str) -> str:
    """Why a part is refused."""
    if pattern == "norm":
        return "no normalisation layer of the model trains, so none can stay at home: it needs a model with BatchNorm"
    if pattern == "head":
        return "the model has no head that trains, after features: mlp, lenet5 and the other networks here have"
    names = [entry.name for entry in layout.entries]
    return f"nothing in the model is called {pattern!r}: it has {', '.join(names[:8])}{' …' if len(names) > 8 else ''}"


def joined(slices: Sequence[slice]) -> tuple[slice, ...]:
    """The same places, neighbours as one."""
    found: list[slice] = []
    for place in sorted(slices, key=lambda each: int(each.start)):
        if found and found[-1].stop == place.start:
            found[-1] = slice(found[-1].start, place.stop)
        else:
            found.append(place)
    return tuple(found)
