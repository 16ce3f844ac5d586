"""What a client, and the server that relays, do against a model that somebody before in the chain has spoiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedrelay.tasks import OneModel, Task, evaluate
from fedrelay.types import LAST_GLOBAL, SKIPPED, Baton, Result, Visit
from fedrelay.visits.around import Around


@dataclass(frozen=True)
class Defended(Around):
    """Work along a chain whose clients trust one another less.

    Args:
        work: what is done at the client.
        bound: how far a hop may move the model; whoever relays shortens a longer step (`engines/guard.py`).
        tolerance: a client that gets a model whose loss on the client's own examples is more than so many times that
            of the last global model goes on from the last global model, and what the chain had gathered is lost.
    """

    bound: float | None = None
    tolerance: float = math.inf

    @property
    def reads_global(self) -> bool:
        return self.tolerance < math.inf

    def stacks(self, task: Task, /) -> bool:
        return not self.reads_global and self.work.stacks(task)

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        if not self.reads_global:
            return self.work(baton, visit)
        skips = visit.hop > 0 and self.worse(baton, visit)
        start = Baton(visit.shared[LAST_GLOBAL]) if skips else baton
        after, memory, report = self.work(start, visit)
        return after, memory, replace(report, metrics={**report.metrics, SKIPPED: float(skips)})

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> Sequence[Result]:
        return self.work.together(batons, visits)

    def worse(self, baton: Baton, visit: Visit) -> bool:
        """Whether the model received is worse than the last global one, on this client's own examples. One that has no
        finite loss is."""
        own = visit.client.examples.picked(visit.client.rows)
        models = baton.params, visit.shared[LAST_GLOBAL]
        here, last = (evaluate(OneModel(model), own, visit.workspaces)["loss"] for model in models)
        return not here <= self.tolerance * last
