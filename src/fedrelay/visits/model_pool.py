"""A visit that trains several models, each from the mean of those before it, and hands on the mean of all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.tasks import Task
from fedrelay.types import Baton, Report, Result, Visit, Work
from fedrelay.visits.diversity import Diversity
from fedrelay.visits.training import Training


@dataclass(frozen=True)
class Pooling:
    """How many `models` a visit trains besides the one it received; whoever is the first to train the model of a run
    does so for `warm_up` epochs before that; with `own`, everybody begins the run with a random model of its own."""

    models: int = 5
    warm_up: int = 0
    own: bool = False

    def __post_init__(self) -> None:
        within("models", self.models, least=1)
        within("warm_up", self.warm_up, least=0)


@dataclass(frozen=True)
class ModelPool(Work):
    """Train a pool of models: it begins with the one received, every other starts at the mean of those that are there,
    and the mean of all is sent, running statistics too (FedELMY 2024, Alg. 1)."""

    work: Training
    pooling: Pooling

    def __post_init__(self) -> None:
        reading = next((term for term in self.work.terms if term.reads_steps or term.gradients), None)
        if reading is not None:
            raise BadInput(
                f"{reading} takes the way that a model went for a sum of gradients, and a visit that trains a pool of "
                "models sends their mean: only one of the two can be"
            )

    @property
    def keeps(self) -> tuple[str, ...]:
        return self.work.keeps

    @property
    def guard(self) -> float | None:
        return self.work.guard

    def counted(self, size: int, /) -> int:
        return self.work.counted(size)

    def adapt(self, task: Task, /) -> Task:
        return self.work.adapt(task)

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        first, reports = self.warmed(baton, visit)
        pool = torch.empty(self.pooling.models + 1, len(baton.params))
        pool[0] = first.params
        memory, after = visit.memory, baton
        for number in range(1, len(pool)):
            start = Baton(pool[:number].mean(0), baton.weight)
            here = replace(visit, memory=memory, pool=pool[:number], part=number)
            after, memory, report = self.work(start, here)
            pool[number] = after.params
            reports.append(report)
        return Baton(pool.mean(0), after.weight), memory, summed(reports)

    def warmed(self, baton: Baton, visit: Visit) -> tuple[Baton, list[Report]]:
        """The first model of the pool: the received one, trained if nobody has trained it yet."""
        if visit.round != 1 or baton.weight:
            return baton, []
        if self.pooling.own:
            own = seeds.derive(visit.seed, "own model", visit.client.id)
            baton = Baton(visit.task.init(own), baton.weight)
        if not self.pooling.warm_up:
            return baton, []
        others = tuple(term for term in self.work.terms if not isinstance(term, Diversity))  # there is no pool yet
        plain = replace(self.work, epochs=self.pooling.warm_up, steps=None, terms=others)
        warm, _, report = plain(baton, visit)
        return warm, [report]


def summed(reports: list[Report]) -> Report:
    """One report of several trainings at the same client."""
    sent = sorted({key for report in reports for key in report.uplink})
    if sent:
        raise BadInput(f"a visit that trains a pool of models cannot send {', '.join(sent)}, which is of one training")
    examples = sum(report.examples for report in reports)
    loss = sum(report.metrics["loss"] * report.examples for report in reports) / examples
    return Report(reports[-1].client, examples, {"loss": loss})
