"""Testing at a client, on examples of its own that it does not train on: only figures and a count leave it."""

from __future__ import annotations

from dataclasses import dataclass

from fedrelay.errors import BadInput
from fedrelay.tasks import OneModel, Task, evaluate
from fedrelay.types import Baton, Report, Result, Tree, Visit, Work
from fedrelay.visits.around import Around
from fedrelay.visits.private import AtHome


@dataclass(frozen=True)
class OwnTest(Work):
    """Tests the model that comes on what the client has held out of training, and tells how many examples that were and
    the mean of every figure over them. Where parts of the model stay `home`, it is tested with the client's own."""

    home: AtHome | None = None

    @property
    def guard(self) -> float | None:
        return None  # the model goes back as it came

    def specimen(self, task: Task, /) -> Tree:
        return {}

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        rows = visit.client.held_out
        if rows is None or not len(rows):
            raise BadInput("the client has held nothing out of training to test on")
        own = baton if self.home is None else self.home.arrived(baton, visit)
        figures = evaluate(OneModel(own.params), visit.client.examples.picked(rows), visit.workspaces)
        return baton, visit.memory, Report(visit.client.id, len(rows), figures)


def own_test_of(update: Work) -> OwnTest:
    """The test that goes with this update, whatever is done around it."""
    while isinstance(update, Around) and not isinstance(update, AtHome):
        update = update.work
    return OwnTest(update if isinstance(update, AtHome) else None)
