"""DENSE: clients train once; the server makes images of their models and teaches a student with them (DENSE 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from fedrelay import seeds
from fedrelay.algorithms.change import Change
from fedrelay.algorithms.synthesis import (
    MAKER,
    Joined,
    Models,
    Wanted,
    divergence,
    made_images,
    moved,
)
from fedrelay.engines.pool.dispatch import cores
from fedrelay.errors import BadInput, within
from fedrelay.kernels.workspace import Computing
from fedrelay.merges import merged
from fedrelay.plans import Once
from fedrelay.system.threads import operator_threads
from fedrelay.tasks import CrossEntropy, OneModel, Task, Workspaces, unlike
from fedrelay.tasks.images import scaling
from fedrelay.types import Merge, Outcome, State, Vector

Variant = Literal["intended", "published"]
WANTED = {"intended": Wanted(1.0, 0.5), "published": Wanted(0.0, 1.0)}
"""Paper: the authors' code never finds a BatchNorm layer, so that statistics do not count there, and its example has 1
for the boundary."""
MOMENTUM = 0.9


def dense(
    *,
    bn: float | None = None,
    boundary: float | None = None,
    steps: int = 30,
    batch: int = 256,
    lr: float = 0.005,
    temperature: float = 20.0,
    variant: Variant = "intended",
    threads: int | None = None,
) -> Change:
    """Clients train in the first round; in every round the server makes a batch of images and teaches a student.

    So `rounds` is the number of the server's epochs, each of which goes once over all images made so far. What is
    tested is the student after the last one.

    When clients can be asked once, data are images, and the server has time: it runs all clients' models at every step.

    Papers: 200 rounds; at the clients SGD, lr 0.01, momentum 0.9, batch 128 (authors' code)

    Args:
        bn: how much the statistics that BatchNorm layers have seen count; by default 1, as published 0.
        boundary: how much counts what the student gets wrong; by default 0.5, as published 1.
        steps: of the generator in every round.
        batch: images that every round adds, and those of a step of the student.
        lr: of the student's SGD, with momentum 0.9.
        temperature: how much the student's lessons are softened.
        variant: intended, or published: the weights that the authors' code comes to.
        threads: of the server, for the same bits on another machine; by default all cores.

    Reference: [Zhang et al. 2022](https://arxiv.org/abs/2112.12371), Alg. 1
    """
    if variant not in WANTED:
        raise BadInput(f"variant must be intended or published, not {variant!r}")
    usual = WANTED[variant]
    wanted = Wanted(usual.statistics if bn is None else bn, usual.boundary if boundary is None else boundary)
    merge = Student(wanted, steps, batch, lr, temperature, threads)
    return Change(plan=Once(), merge=merge, predictor=student_of, fraction=1.0)


def student_of(state: State) -> OneModel:
    """What one would use now."""
    return OneModel(state.batons[0].params, "the student")


@dataclass(frozen=True)
class MeanLogits:
    """Models speak with one voice: the mean of their logits."""

    classes: int

    def __call__(self, outputs: torch.Tensor, /) -> torch.Tensor:
        return outputs[..., : self.classes].mean(0)


@dataclass(frozen=True)
class Student(Merge):
    """One epoch of the server: images are made, and the student goes over all of them. The server keeps the clients'
    models, all images (in bytes) and the student's velocity.

    Paper: the authors report the best epoch on the test set; here it is the last one, because a test set must not
    choose.
    """

    wanted: Wanted = WANTED["intended"]
    steps: int = 30
    batch: int = 256
    lr: float = 0.005
    temperature: float = 20.0
    threads: int | None = None
    joined: Joined | None = None
    """What the clients' models say together; None: the mean of their logits."""
    task: Task | None = field(default=None, compare=False, repr=False)
    seed: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        within("bn", self.wanted.statistics, least=0)
        within("boundary", self.wanted.boundary, least=0)
        within("steps", self.steps, least=1)
        within("batch", self.batch, least=2)
        within("lr", self.lr, above=0)
        within("temperature", self.temperature, above=0)
        if self.threads is not None:
            within("threads", self.threads, least=1)

    def fitted(self, task: Task, seed: int, /) -> Student:
        if not isinstance(task.loss, CrossEntropy) or task.target != "classes":
            raise BadInput(f"a student is taught which class an image is of; {unlike(task)}")
        scaling(task, MAKER)
        return replace(self, task=task, seed=seed)

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        assert self.task is not None
        server, round = dict(state.server), state.round + 1
        if outcomes:
            # Paper: the student starts anew, and not from what the clients started from.
            models = tuple(outcome.baton.params for outcome in outcomes)
            student = self.task.init(seeds.derive(self.seed, "student")).to(models[0].device)
            velocity = student.new_zeros(self.task.layout.trainable)
            server |= {"models": models, "images": None, "velocity": velocity}
        else:
            student = state.batons[0].params
        joined = self.joined or MeanLogits(self.task.classes)
        teacher = Models(self.task, server["models"], joined)
        drawing = seeds.torch_seed(self.seed, "server", round, device=student.device)
        with operator_threads(self.threads or cores()), drawing:
            new = self.made(teacher, student, round)
            server["images"] = new if server["images"] is None else torch.cat((server["images"], new))
            taught, server["velocity"] = self.taught(teacher, student, server["images"], server["velocity"])
        return replace(merged(state, taught), server=server)

    def made(self, teacher: Models, student: Vector, round: int) -> torch.Tensor:
        """New images, in bytes."""
        assert self.task is not None
        own = Models(self.task, [student], MeanLogits(self.task.classes))
        images = made_images(
            self.task, teacher, own, self.wanted, batch=self.batch, steps=self.steps, where=f"round {round}"
        )
        return (images * 255).round().to(torch.uint8)

    def taught(self, teacher: Models, student: Vector, images: torch.Tensor, velocity: Vector) -> tuple[Vector, Vector]:
        """The student after one pass over all images, and its velocity."""
        assert self.task is not None
        workspace = Workspaces(self.task, computing=Computing(student.device)).main
        scaled, classes = scaling(self.task, MAKER), self.task.classes
        workspace.load(student, training=True)
        weights, velocity = workspace.weights, velocity.clone()
        for rows in torch.split(torch.randperm(len(images)).to(images.device), self.batch):
            x = scaled(moved(images[rows].float() / 255))
            with torch.no_grad():
                wanted = teacher(x)

            def lesson(x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
                return divergence(wanted, workspace.network(x)[:, :classes], self.temperature).mean()

            workspace.differentiate(x, wanted, lesson)
            weights.sub_(velocity.mul_(MOMENTUM).add_(workspace.gradient), alpha=self.lr)
        return workspace.model(), velocity
