"""Whether what a client sends besides the model has the form that its work says: else it would end a merge."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from fedrelay.engines.remote.messages import MOST
from fedrelay.engines.remote.trees import Malformed
from fedrelay.types import Tree
from fedrelay.vectors import is_finite


def check_told(uplink: Tree, specimen: Tree | None) -> None:
    """Refuse what is not of this form, or not finite; without one, only what is not finite."""
    for name, part in uplink.items():
        _check_finite(str(name), part)
    if specimen is not None:
        _check_like("what it tells", uplink, specimen)


def _check_finite(name: str, part: object) -> None:
    if isinstance(part, torch.Tensor):
        if part.is_floating_point() and not is_finite(part):
            raise Malformed(f"sent {name!r:.40}, which is not finite")
    elif isinstance(part, Mapping):
        for key, value in part.items():
            _check_finite(f"{name}.{key}", value)
    elif isinstance(part, list | tuple):
        for value in part:
            _check_finite(name, value)
    elif isinstance(part, int | float) and not abs(part) <= MOST:
        raise Malformed(f"sent {name!r:.40}, which is {part!s:.40}")


def _check_like(name: str, part: object, specimen: object) -> None:
    if isinstance(specimen, Mapping):
        _check_keys(name, part, specimen)
    elif isinstance(specimen, torch.Tensor):
        wanted = _form(specimen)
        found = _form(part) if isinstance(part, torch.Tensor) else f"a {type(part).__name__}"
        if found != wanted:
            raise Malformed(f"sent {name!r:.40} as {found:.100}, and it should be {wanted}")
        assert isinstance(part, torch.Tensor)
        if not part.is_floating_point() and part.dtype != torch.bool and part.numel() and int(part.min()) < 0:
            raise Malformed(f"sent {name!r:.40}, which counts something, with numbers below zero")
    elif isinstance(part, bool) or not isinstance(part, int | float) or not 0 < part < math.inf:
        raise Malformed(f"sent {name!r:.40}, which should be a number above zero")


def _check_keys(name: str, part: object, specimen: Mapping[str, object]) -> None:
    if not isinstance(part, Mapping):
        raise Malformed(f"sent {name!r:.40} as a {type(part).__name__}")
    for key in part.keys() ^ specimen.keys():
        raise Malformed(f"sent {key!r:.40}, which nobody asked for" if key in part else f"did not send {key!r:.40}")
    for key, value in specimen.items():
        _check_like(key, part[key], value)


def _form(part: torch.Tensor) -> str:
    return f"{str(part.dtype).removeprefix('torch.')} {tuple(part.shape)}"
