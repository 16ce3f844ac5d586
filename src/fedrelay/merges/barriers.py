"""Which chains a merge waits for, where it does not wait for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedrelay.types import Outcome, State

SAME = 1e-9  # relative: sums of the same durations in another order end at the same moment


def first(state: State, outcomes: Sequence[Outcome]) -> tuple[Sequence[Outcome], Sequence[Outcome]]:
    """Take the chain that finishes first, with those that finish at the same moment; the others go on running."""
    running = sorted((*state.waiting, *outcomes), key=lambda outcome: outcome.chain.slot)
    now = min(outcome.finished_at for outcome in running)
    done = [math.isclose(outcome.finished_at, now, rel_tol=SAME) for outcome in running]
    return (
        [outcome for outcome, is_done in zip(running, done, strict=True) if is_done],
        [outcome for outcome, is_done in zip(running, done, strict=True) if not is_done],
    )
