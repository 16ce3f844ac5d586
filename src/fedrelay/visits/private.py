"""Parts of the model that stay at home: every client has its own, keeps it in its memory, and never sends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedrelay.errors import BadInput, within
from fedrelay.tasks import PRIVATE, Task
from fedrelay.types import Baton, Report, Result, Tree, Vector, Visit, Work
from fedrelay.vectors import is_finite
from fedrelay.visits.around import Around
from fedrelay.visits.places import Places, between, without
from fedrelay.visits.terms import Effect, Term
from fedrelay.visits.training import Training


@dataclass(frozen=True)
class Private:
    """What stays at home: `norm` (normalisation layers), `head` (the last layer), or patterns for names. In the first
    `first` epochs of a visit only that is trained, and then only the rest; 0 trains all at once."""

    parts: tuple[str, ...]
    first: int = 0

    def __post_init__(self) -> None:
        within("head_epochs", self.first, least=0)
        if not self.parts:
            raise BadInput("private names no part: norm, head, or patterns for the names of parameters")


@dataclass(frozen=True)
class Hold(Term):
    """These parts do not move in this visit, or, with `others`, all but these."""

    parts: tuple[str, ...]
    others: bool = False

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        places, trainable = visit.task.places(self.parts), visit.task.layout.trainable
        return Effect(
            held=between(places, trainable) if self.others else tuple(p for p in places if p.start < trainable)
        )


@dataclass(frozen=True)
class AtHome(Around):
    """Work with a model of which parts stay at home. At arrival they are replaced by the client's own; they stay behind
    at departure, when the model has again what it came with. The first time, that is what a client begins with."""

    private: Private

    def __post_init__(self) -> None:
        if self.private.first and not isinstance(self.work, Training):
            raise BadInput(f"{type(self.work).__name__} trains in a way of its own, so no part can be trained first")

    @property
    def keeps(self) -> tuple[str, ...]:
        return (*self.work.keeps, PRIVATE)

    @property
    def brief(self) -> tuple[Work, float]:
        work, longer = self.work.brief
        return (self, 1.0) if self.private.first else (AtHome(work, self.private), longer)

    def adapt(self, task: Task, /) -> Task:
        task = self.work.adapt(task)
        self.at_home(task)
        return task

    def at_home(self, task: Task, /) -> tuple[slice, ...]:
        places = task.places(self.private.parts)
        if not between(places, task.layout.trainable):
            raise BadInput(
                f"{', '.join(self.private.parts)} is all that the model trains, so nothing would be left to learn "
                f"together: that needs a model with features, and {task.parts.name} has no body and head"
            )
        return places

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        own = self.arrived(baton, visit)
        examples = 0
        if self.private.first:
            own, examples = self.begun(own, visit, self.beginning(own, self.aside(visit)))
        return self.left(baton, visit, self.rest(own, visit), examples)

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> list[Result]:
        owns = [self.arrived(baton, visit) for baton, visit in zip(batons, visits, strict=True)]
        examples = [0] * len(owns)
        if self.private.first:
            fitted = self.beginning.together(owns, [self.aside(visit) for visit in visits])
            begun = [self.begun(*each) for each in zip(owns, visits, fitted, strict=True)]
            owns, examples = [own for own, _ in begun], [count for _, count in begun]
        after = self.rest.together(owns, visits)
        return [self.left(*each) for each in zip(batons, visits, after, examples, strict=True)]

    @property
    def beginning(self) -> Training:
        """The training of what stays at home alone; what methods add to training is for what travels."""
        assert isinstance(self.work, Training)
        held = Hold(self.private.parts, others=True)
        return replace(self.work, epochs=self.private.first, steps=None, keep="last", terms=(held,))

    @property
    def rest(self) -> Work:
        """The training that follows: of all, or of what travels."""
        if not self.private.first:
            return self.work
        assert isinstance(self.work, Training)
        return replace(self.work, terms=(*self.work.terms, Hold(self.private.parts)))

    def aside(self, visit: Visit) -> Visit:
        """The same visit with other random numbers: hops count from 0."""
        return replace(visit, hop=-1 - visit.hop)

    def begun(self, own: Baton, visit: Visit, result: Result) -> tuple[Baton, int]:
        """The model after the first epochs: only what stays at home is new, not even statistics of the rest are."""
        places = self.at_home(visit.task)
        return with_part(own, places, part_of(result[0].params, places)), result[2].examples

    def arrived(self, baton: Baton, visit: Visit) -> Baton:
        """The model as this client has it."""
        own: Vector | None = visit.memory.get(PRIVATE)
        return baton if own is None else with_part(baton, self.at_home(visit.task), own)

    def left(self, baton: Baton, visit: Visit, result: Result, examples: int) -> Result:
        """What leaves the client, and what stays."""
        places = self.at_home(visit.task)
        after, memory, report = result
        own = part_of(after.params, places)
        if not is_finite(own):
            raise BadInput("the part that stays at home is not finite any more (a smaller [local] lr may help)")
        leaving = with_part(after, places, part_of(baton.params, places))
        return leaving, self.kept(memory, places, own), sent(report, places, visit.task, examples)

    def kept(self, memory: Tree, places: Places, own: Vector) -> Tree:
        """The client's new memory. Of what stays at home there are no sums of gradients to compare with others."""
        names = self.work.gradients if isinstance(self.work, Training) else ()
        cleared = {name: without(memory[name], places) for name in names if name in memory}
        return {**memory, **cleared, PRIVATE: own}


def sent(report: Report, places: Places, task: Task, examples: int) -> Report:
    """The report with nothing in it of what stays at home, and with these examples more."""
    lengths = (task.layout.trainable, task.layout.size)

    def public(value: object) -> object:
        like_model = isinstance(value, torch.Tensor) and value.ndim == 1 and len(value) in lengths
        return without(value, places) if like_model else value  # type: ignore[arg-type]

    uplink = {key: public(value) for key, value in report.uplink.items()}
    return replace(report, examples=report.examples + examples, uplink=uplink)


def part_of(vector: Vector, places: Places) -> Vector:
    """What is at these places (a copy)."""
    return torch.cat([vector[place] for place in places])


def with_part(baton: Baton, places: Places, part: Vector) -> Baton:
    """The baton with this at these places."""
    sizes = [place.stop - place.start for place in places]
    if len(part) != sum(sizes):
        raise BadInput(
            f"the part that stays at home has {len(part)} numbers, in this model {sum(sizes)}: another model's"
        )
    params = baton.params.clone()
    for place, values in zip(places, torch.split(part, sizes), strict=True):
        params[place] = values
    return replace(baton, params=params)
