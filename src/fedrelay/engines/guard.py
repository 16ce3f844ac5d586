"""The guard against divergence: a model that exploded is noticed at once, and never reaches a merge."""

from __future__ import annotations

import torch

from fedrelay.types import Vector, Work
from fedrelay.vectors import is_finite

GUARD = 1e4
"""How many times longer than the received model a returned one may be, where the work has no `guard` of its own."""

ADVICE = "a smaller [local] lr, or [local] clip, may help"


def spoiled(work: Work, received: Vector, returned: Vector) -> str | None:
    """Why a returned model must not be used, or None if it may."""
    guard: float | None = getattr(work, "guard", GUARD)
    after = float(torch.linalg.vector_norm(returned))
    if guard is not None and after <= guard:  # nearly always, and it took one look at the model
        return None
    if not is_finite(returned):
        return f"returned a non-finite model ({ADVICE})"
    if guard is None:
        return None
    before = float(torch.linalg.vector_norm(received))
    # A model near zero may grow; only a length that no model of its size has is an explosion.
    if after <= guard * max(before, 1.0):
        return None
    return (
        f"its model exploded: the norm went from {before:.3g} to {after:.3g}, beyond guard = {guard:g} times ({ADVICE})"
    )
