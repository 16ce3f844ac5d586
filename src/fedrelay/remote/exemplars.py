"""Exemplars of a run whose clients bring their own data: the server's, sent to every client before it is described."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fedrelay import seeds
from fedrelay.config import schema
from fedrelay.config.federation import say_fewer
from fedrelay.data import hold_out
from fedrelay.data.examples import Examples, Store
from fedrelay.data.federation import Source
from fedrelay.engines.remote.trees import Malformed
from fedrelay.errors import BadInput


def with_exemplars(source: Source, data: Mapping[str, Any], seed: int, given: Store | None = None) -> Source:
    """The source with public exemplars: those `given`, or as many of every class as [data] says, of what the server
    tests on, which it then does not test on."""
    wanted = schema.convert(data.get("exemplars", 0), int, "[data].exemplars")
    if given is not None:
        if wanted:
            raise BadInput(f"--exemplars and [data].exemplars = {wanted}: give one of them")
        return replace(source, public=given)
    if not wanted:
        return source
    if not len(source.test):
        raise BadInput(
            f"[data].exemplars = {wanted} are taken of what the server tests on, and it has nothing: --test PATH says "
            "what, or --exemplars PATH names exemplars"
        )
    try:
        rest, public = hold_out(source, wanted, seeds.rng(seed, "exemplars"), allow_fewer=True)
    except BadInput as error:
        raise BadInput(f"[data].exemplars: {error}") from error
    say_fewer(source, public, wanted)
    return replace(rest, public=public)


def told(public: Store | None) -> dict[str, Any]:
    """As clients are told: inputs before they are scaled, and targets; nothing if there are none."""
    if public is None:
        return {}
    assert isinstance(public, Examples)
    return {"x": public.x, "y": public.y}


def fingerprint(exemplars: Mapping[str, Any]) -> str:
    """By which a client knows that they are those it has."""
    digest = hashlib.sha256()
    for name in sorted(exemplars):
        digest.update(exemplars[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def received(exemplars: Mapping[str, Any], own: Store) -> Store | None:
    """The exemplars at a client, scaled as its own examples are; what is of another form is refused."""
    if not exemplars:
        return None
    assert isinstance(own, Examples)
    found = []
    for name, mine in (("x", own.x), ("y", own.y)):
        part = exemplars.get(name)
        if not isinstance(part, torch.Tensor) or not isinstance(mine, torch.Tensor) or not alike(part, mine):
            raise Malformed("the server's exemplars have another form than our examples")
        found.append(part)
    return Examples(found[0], found[1], own.transform)


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both have rows of the same form."""
    return one.dtype == other.dtype and one.dim() == other.dim() and one.shape[1:] == other.shape[1:]
