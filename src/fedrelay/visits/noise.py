"""Noise that hides what a client has learned: on the whole change of a visit, on every step, or on a trait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.errors import BadInput
from fedrelay.kernels.per_example import clipped_sum
from fedrelay.kernels.workspace import Workspace
from fedrelay.tasks import Task
from fedrelay.types import Baton, Report, Result, Trait, Vector, Visit, Work
from fedrelay.visits.around import Around
from fedrelay.visits.places import between, without


@dataclass(frozen=True)
class PerExample:
    """Every example's gradient is made no longer than `clip`, and their sum gets Gaussian noise of deviation
    `noise * clip` (DP-SGD: Abadi et al. 2016). Batches are drawn by Poisson sampling, as accountants take for granted:
    every example is in a step with the same probability, whatever the others are."""

    clip: float
    noise: float

    def differentiate(
        self,
        workspace: Workspace,
        task: Task,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        batch: int,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """Fill the workspace's gradient with the noisy sum, divided by the expected size of a batch."""
        loss = clipped_sum(workspace, task.layout, task.loss, x, y, clip=self.clip)
        if self.noise:
            workspace.gradient.add_(gaussian(workspace.gradient, rng), alpha=self.noise * self.clip)
        workspace.gradient.div_(batch)
        return loss


@dataclass(frozen=True)
class Noised(Around):
    """Work whose change of the model is made no longer than `clip`, and gets Gaussian noise of deviation `noise * clip`
    before it leaves the client. Nothing else leaves it: no loss, and nothing besides the model.

    A trait is made no longer than `trait_clip` and gets noise in the same way.
    """

    clip: float
    noise: float
    trait_clip: float = 1.0

    def adapt(self, task: Task, /) -> Task:
        task = self.work.adapt(task)
        refuse_buffers(task, self.at_home(task))
        return task

    def describing(self, work: Work, /) -> Work:
        return Released(work, self.trait_clip, self.noise) if self.noise else work

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        return self.left(baton, visit, self.work(baton, visit))

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> list[Result]:
        after = self.work.together(batons, visits)
        return [self.left(*each) for each in zip(batons, visits, after, strict=True)]

    def left(self, baton: Baton, visit: Visit, result: Result) -> Result:
        """What leaves the client."""
        after, memory, report = result
        home = self.at_home(visit.task)
        step = without(after.params - baton.params, home)
        length = float(torch.linalg.vector_norm(step))
        if not self.noise and length <= self.clip:  # nothing to do, not even to round
            return result
        step.mul_(min(1.0, self.clip / length) if length else 1.0)
        if self.noise:
            step.add_(gaussian(step, noise_rng(visit)), alpha=self.noise * self.clip)
            report = silent(report)
        params = after.params.clone()
        for place in between(home, len(params)):
            params[place] = baton.params[place] + step[place]
        return replace(after, params=params), memory, report


@dataclass(frozen=True)
class Released(Work):
    """A description of a client's data, every vector of it made no longer than `clip`, with Gaussian noise of deviation
    `noise * clip`. What shares, counts and information cannot be, negative, is then taken away again."""

    work: Work
    clip: float
    noise: float

    def __post_init__(self) -> None:
        if not isinstance(self.work, Trait):
            raise BadInput(
                f"{type(self.work).__name__} tells the server of a client's examples, and no noise is known for it: "
                "take a sampler or a method that needs no such thing, or leave privacy out"
            )

    @property
    def reads_model(self) -> bool:
        return self.work.reads_model

    def adapt(self, task: Task, /) -> Task:
        return self.work.adapt(task)

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        after, memory, report = self.work(baton, visit)
        if len(report.uplink) != 1:
            raise BadInput("several traits at once are several releases: with privacy, clients are grouped by one")
        rng = noise_rng(visit)
        told = {key: self.blurred(value, rng) for key, value in report.uplink.items()}
        return after, memory, Report(report.client, report.examples, uplink=told)

    def blurred(self, trait: Vector, rng: np.random.Generator) -> Vector:
        assert isinstance(self.work, Trait)
        length = float(torch.linalg.vector_norm(trait.float()))
        numbers = trait.float() * min(1.0, self.clip / length if length else 1.0)
        numbers = numbers + self.noise * self.clip * gaussian(trait, rng)
        if self.work.kind == "weights":
            return numbers.to(trait.dtype)
        numbers = numbers.clamp(min=0.0)
        if self.work.kind == "shares":
            total = float(numbers.sum())
            numbers = numbers / total if total else torch.full_like(numbers, 1 / numbers.numel())
        return numbers.to(trait.dtype)


def silent(report: Report) -> Report:
    """The report with nothing in it that was computed from examples."""
    if report.uplink:
        raise BadInput(
            f"this method sends {', '.join(sorted(report.uplink))} besides the model, for which no noise is known: "
            "take another method, or leave privacy out"
        )
    return Report(report.client, report.examples)


def noise_rng(visit: Visit) -> np.random.Generator:
    """The generator of a visit's noise: it derives from the seed of the run, which all know, in a simulation only."""
    seed = visit.seed if visit.secret is None else visit.secret
    return seeds.rng(seed, "noise", visit.round, visit.hop, visit.client.id, visit.part)


def gaussian(like: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """As many independent numbers of deviation 1, where those are; they are drawn in main memory, so that they are the
    same wherever that is."""
    return torch.from_numpy(rng.standard_normal(like.shape, dtype=np.float32)).to(like.device)


def refuse_buffers(task: Task, home: Sequence[slice]) -> None:
    """Refuse a model that carries running statistics of the examples along, which no gradient and no bound covers."""
    size, trainable = task.layout.size, task.layout.trainable
    at_home = sum(min(place.stop, size) - max(place.start, trainable) for place in home if place.stop > trainable)
    if size - trainable > at_home:
        raise BadInput(
            f"the model {task.model} carries running statistics of the examples along (BatchNorm), which noise on "
            'gradients does not cover: take a model without (norm = "group"), or let them stay at home (private = '
            '"norm")'
        )


def check_clip(name: str, clip: float, noise: float) -> None:
    """Refuse noise without a bound on what it is to hide."""
    if noise and clip == math.inf:
        raise BadInput(f"no noise hides what may be of any length: {name} must be finite where there is noise")
