"""The guard against divergence: a model that exploded is noticed at once, and never reaches a merge. And the bound on
what one hop may do, where a method has one."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from fedrelay.types import BOUNDED, Baton, Drop, Result, Vector, Work
from fedrelay.vectors import is_finite

LARGE = 100.0
"""No model that works has weights whose root mean square is above this (or above a hundredth of a larger guard)."""

NON_FINITE, EXPLODED = "returned a non-finite model", "its model exploded"
"""How the reasons begin for which a model is not used."""

ADVICE = "a smaller [local] lr, or [local] clip, may help"


def spoiled(work: Work, received: Vector, returned: Vector, trainable: int | None = None) -> str | None:
    """Why a returned model must not be used, or None if it may. Only the first `trainable` numbers are weights: running
    statistics may be of any length."""
    guard = work.guard
    count = returned.shape[0] if trainable is None else trainable
    most = 0.0 if guard is None else max(LARGE, guard / 100) * math.sqrt(count)
    # Nearly always, and it took one look at the model, the quickest there is.
    if guard is not None and returned.ndim == 1 and math.sqrt(returned.dot(returned)) <= min(guard, most):
        return None
    if not is_finite(returned):
        return f"{NON_FINITE} ({ADVICE})"
    if guard is None:
        return None
    before, after = norm(received[:trainable]), norm(returned[:trainable])
    # A model near zero may grow; only a length that no model of its size has is an explosion.
    if after > guard * max(before, 1.0):
        return f"{EXPLODED}: {grew(before, after)}, beyond guard = {guard:g} times ({ADVICE})"
    # What grows a little at every visit explodes too. Who received such a model and made it shorter is not to blame.
    if after > most and after > before:
        size = after / math.sqrt(count)
        return f"{EXPLODED}: {grew(before, after)}, which is {size:.3g} for every weight ({ADVICE})"
    return None


def diverged(drop: Drop) -> bool:
    """Whether a client was lost for what became of its model, and not because something around it failed."""
    return drop.reason.startswith((NON_FINITE, EXPLODED))


def bounded(work: Work, received: Baton, result: Result | Drop, trainable: int | None = None) -> Result | Drop:
    """What whoever relays makes of a visit: its step shortened to the bound of the work if it is longer. Buffers, which
    are no weights, stay as they are."""
    if work.bound is None or isinstance(result, Drop):
        return result
    after, memory, report = result
    step = after.params[:trainable] - received.params[:trainable]
    length = norm(step)
    shortened = length > work.bound
    if shortened:
        params = after.params.clone()
        params[:trainable] = received.params[:trainable] + step * (work.bound / length)
        after = replace(after, params=params)
    return after, memory, replace(report, metrics={**report.metrics, BOUNDED: float(shortened)})


def norm(vector: Vector) -> float:
    return float(torch.linalg.vector_norm(vector))


def grew(before: float, after: float) -> str:
    return f"the norm went from {before:.3g} to {after:.3g}"
