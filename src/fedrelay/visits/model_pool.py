"""A visit that trains several models, each from the mean of those before it, and hands on the mean of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.system.devices import placed
from fedrelay.tasks import Task
from fedrelay.types import POOL_DISTANCES, Baton, Report, Result, Tree, Visit, Work
from fedrelay.visits.diversity import Diversity
from fedrelay.visits.training import Training


@dataclass(frozen=True)
class Pooling:
    """How many `models` a visit trains besides the one it received; whoever is the first to train the model of a run
    does so for `warm_up` epochs before that; with `own`, everybody begins the run with a random model of its own."""

    models: int = 5
    warm_up: int = 0
    own: bool = False
    distances: bool = False
    """Whether the client tells how far the models of its pool are from one another."""

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
        sending = next((term for term in self.work.terms if term.sends), None)
        if sending is not None:
            raise BadInput(
                f"{sending} sends something of one training, and a visit that trains a pool of models has several: "
                "only one of the two can be"
            )

    @property
    def keeps(self) -> tuple[str, ...]:
        return self.work.keeps

    @property
    def guard(self) -> float | None:
        return self.work.guard

    @property
    def brief(self) -> tuple[ModelPool, float]:
        work, longer = self.work.brief
        return ModelPool(work, replace(self.pooling, models=1, warm_up=0)), longer * self.pooling.models

    def counted(self, size: int, /) -> int:
        return self.work.counted(size)

    def adapt(self, task: Task, /) -> Task:
        return self.work.adapt(task)

    def specimen(self, task: Task, /) -> Tree:
        sides = (self.pooling.models + 1,) * 2
        return {POOL_DISTANCES: torch.empty(sides, device="meta")} if self.pooling.distances else {}

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        models = self.pooling.models
        pool = baton.params.new_zeros(models + 1, len(baton.params))  # it may be written to disk before it is full
        begun = self.begun(baton, visit, pool)
        weight, memory, reports = begun.weight, begun.memory, begun.reports
        for number in range(begun.trained + 1, models + 1):
            start = Baton(pool[:number].mean(0), baton.weight)
            here = replace(visit, memory=memory, pool=pool[:number], part=number)
            after, memory, report = self.work(start, here)
            pool[number] = after.params
            weight, reports = after.weight, (*reports, report)
            tell(visit, Begun(number, weight, memory, reports), pool)
        report = summed(reports)
        if self.pooling.distances:
            report = replace(report, uplink={POOL_DISTANCES: pairwise(pool[:, : visit.task.layout.trainable])})
        return Baton(pool.mean(0), weight), memory, report

    def begun(self, baton: Baton, visit: Visit, pool: torch.Tensor) -> Begun:
        """The pool with its first model, or as far as it was when somebody was stopped in this visit."""
        kept = None if visit.place is None else visit.place.find("pool")
        if kept is not None and kept["hop"] == visit.hop:
            trained = int(kept["trained"])
            kept = placed(kept, pool.device)
            pool[: trained + 1] = kept["models"]
            memory = visit.memory if kept["memory"] is None else kept["memory"]
            return Begun(trained, kept["weight"], memory, kept["reports"])
        first, reports = self.warmed(baton, visit)
        pool[0] = first.params
        begun = Begun(0, baton.weight, visit.memory, tuple(reports))
        tell(visit, begun, pool)
        return begun

    def warmed(self, baton: Baton, visit: Visit) -> tuple[Baton, list[Report]]:
        """The first model of the pool: the received one, trained if nobody has trained it yet."""
        if visit.round != 1 or baton.weight:
            return baton, []
        if self.pooling.own:
            own = seeds.derive(visit.seed, "own model", visit.client.id)
            baton = Baton(visit.task.init(own).to(baton.params.device), baton.weight)
        if not self.pooling.warm_up:
            return baton, []
        others = tuple(term for term in self.work.terms if not isinstance(term, Diversity))  # there is no pool yet
        plain = replace(self.work, epochs=self.pooling.warm_up, steps=None, terms=others)
        warm, _, report = plain(baton, visit)
        return warm, [report]


class Begun(NamedTuple):
    """A pool under way: how many models are trained, and what there is besides them."""

    trained: int
    weight: float
    memory: Tree
    reports: tuple[Report, ...]


def tell(visit: Visit, begun: Begun, pool: torch.Tensor) -> None:
    """Let others know how far the pool is, and keep it in case that somebody is stopped."""
    if visit.place is None:
        return
    memory = None if begun.memory is visit.memory else begun.memory  # who has kept nothing new goes on with the old one

    def tree() -> Tree:
        models = pool[: begun.trained + 1]
        return {"hop": visit.hop, **begun._asdict(), "memory": memory, "models": models}

    visit.place.keep("pool", tree)
    visit.place.tell("model", begun.trained, len(pool) - 1)


def summed(reports: Sequence[Report]) -> Report:
    """One report of several trainings at the same client."""
    sent = sorted({key for report in reports for key in report.uplink})
    if sent:
        raise BadInput(f"a visit that trains a pool of models cannot send {', '.join(sent)}, which is of one training")
    examples = sum(report.examples for report in reports)
    loss = sum(report.metrics["loss"] * report.examples for report in reports) / examples
    return Report(reports[-1].client, examples, {"loss": loss})


def pairwise(models: torch.Tensor) -> torch.Tensor:
    """How far every two models are apart: the length of their difference (FedELMY 2024, Fig. 10). Two at a time: a pool
    may be as large as memory allows."""
    found = models.new_zeros(len(models), len(models))
    for one in range(len(models)):
        for other in range(one):
            found[one, other] = found[other, one] = torch.linalg.vector_norm(models[one] - models[other])
    return found
