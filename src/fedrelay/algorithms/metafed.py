"""MetaFed: models go round a ring of clients, which learn from one another, and then each makes its own of the last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch.nn import functional

from fedrelay.algorithms.change import Change
from fedrelay.errors import BadInput, within
from fedrelay.plans.chains import last_holder
from fedrelay.tasks import OneModel, PerClient, Task, evaluate
from fedrelay.types import Baton, Chain, Merge, Outcome, Plan, Planned, Result, State, Survey, Tree, Vector, Visit, Work
from fedrelay.visits.loss_terms import check_features, looking_at
from fedrelay.visits.optimisers import Sgd
from fedrelay.visits.terms import Batch, Effect, Term
from fedrelay.visits.training import Training
from fedrelay.visits.validation import held_out

THRESHOLDS = {"intended": 0.6, "published": 1.1}
AS_PUBLISHED = Sgd(lr=0.01, batch=32, validation=0.2)


def metafed(
    *,
    iters: int = 2,
    preparation: int = 30,
    threshold: float | None = None,
    teacher_threshold: float = 0.5,
    weight: float = 1.0,
    variant: Literal["intended", "published"] = "intended",
    tested: Literal["common", "personal"] = "common",
) -> Change:
    """Every client teaches the next one in a ring, by its model or by its features; then each makes its own model of
    the last one.

    A run has a round of preparation, `iters` - 1 rounds along the ring and one in which everybody makes its own model.
    Everybody takes part, whatever the fraction. Both the common model and the clients' own are tested.

    When there is no server, clients are few, and each wants a model of its own; everybody holds examples out to see how
    good models are.

    Papers: threshold 0.6, or 1.1 (published commands); teacher_threshold 0.4 (PACS, VLCS) or 0.5; weight 1; lr 0.01
    (authors' code)

    Args:
        iters: rounds of both phases; the last one is for the clients' own models.
        preparation: epochs that everybody trains alone for, at first; 0 leaves that round out.
        threshold: the accuracy, on a client's validation part, above which it keeps its own model and learns features
            from its predecessor's; below, it goes on with the predecessor's. By default 0.6; above 1 it is never
            reached.
        teacher_threshold: if the common model is no better than a client's own, and below this accuracy, it teaches
            nothing in the last round.
        weight: how much features count beside the loss (λ0).
        variant: intended, or published: a threshold of 1.1, so that features never count, and a client that goes on
            with another's model takes it anew at every epoch, so that only the last one counts.
        tested: which figures are the run's: those of the model that all have in common (the last of the ring), or the
            mean of those of the clients' own; the others are recorded beside them.

    Reference: [Chen et al. 2023](https://arxiv.org/abs/2206.08516), Section III
    """
    phases = Phases(iters, preparation > 0)
    found = THRESHOLDS.get(variant) if threshold is None else threshold
    if found is None or tested not in ("common", "personal"):
        raise BadInput(
            f"variant must be intended or published, tested common or personal, not {variant!r} and {tested!r}"
        )
    lessons = Lessons(phases, preparation, found, teacher_threshold, weight, again=variant == "published")
    return Change(
        plan=Cycle(phases),
        visit=lessons,
        merge=Passed(phases),
        serverless=True,
        predictor=Personal(phases, tested == "personal"),
        fraction=1.0,
        local=AS_PUBLISHED,
    )


@dataclass(frozen=True)
class Phases:
    """Which round is for what. Rounds count from 1."""

    iters: int
    prepared: bool

    def __post_init__(self) -> None:
        within("iters", self.iters, least=2)

    @property
    def rounds(self) -> int:
        return self.iters + self.prepared

    def of(self, round: int) -> Literal["preparation", "common", "personal"]:
        if round == self.rounds:
            return "personal"
        return "preparation" if self.prepared and round == 1 else "common"


# --- who trains after whom, and what becomes of it


@dataclass(frozen=True)
class Cycle(Plan):
    """Everybody alone; then one chain of all, as they are numbered, again and again; then everybody with the last
    model, which goes round the ring once more."""

    phases: Phases

    @property
    def rounds(self) -> int:
        return self.phases.rounds

    def init(self, survey: Survey, sizes: Sequence[int], rng: np.random.Generator, /) -> Tree:
        if len(sizes) < 2:
            raise BadInput("one client is no ring: MetaFed passes models on from client to client")
        return {"clients": len(sizes), "holder": None}

    def __call__(self, state: State, rng: np.random.Generator, /) -> Planned:
        count, start, phase = state.memo["clients"], state.batons[0], self.phases.of(state.round + 1)
        if phase == "common":
            return Planned(state.memo, [Chain(start, tuple(range(count)), holder=state.memo["holder"])], 1)
        back = phase == "personal"  # in the ring everybody gets it from the one before
        chains = [Chain(start, (client,), slot=client, holder=(client - back) % count) for client in range(count)]
        return Planned(state.memo, chains, count)

    def learn(self, planned: Planned, outcomes: Sequence[Outcome], /) -> Tree:
        if len(planned.chains) > 1:
            return planned.memo
        return {**planned.memo, "holder": last_holder(outcomes[0])}


@dataclass(frozen=True)
class Passed(Merge):
    """The first baton is the common model, which the ring passes on; behind it everybody's own, where each has made
    one."""

    phases: Phases

    def init(self, params: Vector, clients: int, /) -> tuple[Tree, Tree]:
        return {}, {"clients": clients}

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        if self.phases.of(state.round + 1) == "common":
            return replace(state, batons=(outcomes[0].baton,))
        common, made = state.batons[0], {outcome.chain.slot: outcome.baton for outcome in outcomes}
        own = (made.get(client, common) for client in range(state.server["clients"]))
        return replace(state, batons=(common, *own))


@dataclass(frozen=True)
class Personal:
    """The common model, and everybody's own, where each has made one."""

    phases: Phases
    own: bool

    def __call__(self, state: State, /) -> PerClient:
        common, *others = (baton.params for baton in state.batons)
        return PerClient(common, dict(enumerate(others)), tested="own" if self.own else "common", beside=True)


# --- what happens at a client


@dataclass(frozen=True)
class Lessons:
    """When a client learns from a model, and how; `again` takes the model that came anew at every epoch."""

    phases: Phases
    preparation: int
    threshold: float
    teacher_threshold: float
    weight: float
    again: bool = False

    def __post_init__(self) -> None:
        within("preparation", self.preparation, least=0)
        within("threshold", self.threshold, least=0)
        within("teacher_threshold", self.teacher_threshold, least=0)
        within("weight", self.weight, least=0)

    def __call__(self, local: Work, /) -> CyclicVisit:
        if not isinstance(local, Training):
            raise BadInput(f"{type(local).__name__} trains in a way of its own, which MetaFed cannot")
        return CyclicVisit(local, self)

    @property
    def reachable(self) -> bool:
        """Whether an accuracy can be above the threshold."""
        return self.threshold < 1

    def of_last(self, teacher: float, own: float) -> float:
        """How much features count in the last round (λ), by the accuracies of the common model and the client's own."""
        if not (math.isfinite(teacher) and math.isfinite(own)):
            return 0.0
        if teacher <= own and teacher < self.teacher_threshold:
            return 0.0
        return float(self.weight * 10 ** min(1.0, 5 * (teacher - own)) / 10)


@dataclass(frozen=True)
class CyclicVisit(Work):
    """Learn from the model that comes: go on with it, or, if one's own is good, with one's own and its features.

    Paper: the authors' code computes a client's features in a second pass, so that running statistics move twice in a
    step; here they move once.
    """

    training: Training
    lessons: Lessons

    def __post_init__(self) -> None:
        if self.lessons.reachable and not self.training.validation:
            raise BadInput(
                "MetaFed's clients see by a validation part of their own how good models are: say [local] validation = "
                '0.2, or threshold = 1.1 (variant = "published"), which is never reached'
            )

    @property
    def keeps(self) -> tuple[str, ...]:
        return (*self.training.keeps, "own")

    @property
    def guard(self) -> float | None:
        return self.training.guard

    def counted(self, size: int, /) -> int:
        return self.training.counted(size)

    def specimen(self, task: Task, /) -> Tree | None:
        return self.training.specimen(task)

    def adapt(self, task: Task, /) -> Task:
        task = self.training.adapt(task)
        if not self.lessons.reachable:
            return task
        check_features(task, "MetaFed")
        if not (task.headline.share and task.headline.higher_is_better):
            raise BadInput(
                f"MetaFed asks whether models are good by a figure between 0 and 1, and {task.headline.name} is none"
            )
        return task

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        phase, own = self.lessons.phases.of(visit.round), visit.memory.get("own", baton.params)
        good = "good" in visit.memory and bool(visit.memory["good"])
        if phase == "preparation":
            alone = replace(self.training, epochs=self.lessons.preparation, steps=None)
            return self.left(alone(baton, visit), visit, good=good)
        if not baton.weight:  # nobody teaches the first client of all
            return self.left(self.training(Baton(own, baton.weight), visit), visit, good=good)
        if not good:
            return self.left(self.copying(baton, visit), visit, good=good)
        weight = self.lessons.weight
        if phase == "personal":
            weight = self.lessons.of_last(self.accuracy(baton.params, visit), self.accuracy(own, visit))
        taught = replace(self.training, terms=(*self.training.terms, FeaturesLike(weight)))
        here = replace(visit, memory={**visit.memory, "teacher": baton.params})
        return self.left(taught(Baton(own, baton.weight), here), visit, good=good)

    def copying(self, baton: Baton, visit: Visit) -> Result:
        """Go on with the model that came."""
        training = self.training
        if self.lessons.again and training.steps is None:
            training = replace(training, epochs=1)  # all but the last are overwritten
        return training(baton, visit)

    def left(self, result: Result, visit: Visit, *, good: bool) -> Result:
        """What the client keeps: its model, and whether it has ever been good."""
        baton, memory, report = result
        if self.lessons.reachable and not good:
            good = self.accuracy(baton.params, visit) > self.lessons.threshold
        kept = {key: value for key, value in memory.items() if key != "teacher"}
        return baton, {**kept, "own": baton.params, "good": baton.params.new_tensor([float(good)])}, report

    def accuracy(self, params: Vector, visit: Visit) -> float:
        """On the client's validation part; 0 if it is too small to have one."""
        held = held_out(visit, self.training.validation)
        return 0.0 if held is None else evaluate(OneModel(params), held, visit.workspaces)[visit.task.headline.name]


@dataclass(frozen=True)
class FeaturesLike(Term):
    """The loss gets `weight` times the mean squared difference of the features from the teacher's, who is in the
    client's memory for this visit."""

    weight: float
    stacks: ClassVar[bool] = False

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        if not self.weight:
            return Effect()
        teacher = looking_at(visit.memory["teacher"], visit, "teacher")

        def loss(batch: Batch) -> torch.Tensor:
            assert batch.features is not None
            with torch.no_grad():
                features = teacher.network.body(batch.x)  # type: ignore[operator]
            return self.weight * functional.mse_loss(batch.features, features)

        return Effect(losses=(loss,))
