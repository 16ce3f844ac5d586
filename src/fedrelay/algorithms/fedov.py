"""FedOV: one round; clients also learn what they do not know, so that their models can vote (FedOV 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedrelay import seeds
from fedrelay.algorithms.change import Change
from fedrelay.algorithms.dense import Student
from fedrelay.algorithms.outliers import SMALLEST, outliers
from fedrelay.errors import BadInput
from fedrelay.kernels.workspace import Forward
from fedrelay.merges.mean import mean_model, merged
from fedrelay.models import Network, Open
from fedrelay.models.fused import cut
from fedrelay.plans import Once
from fedrelay.tasks import CrossEntropy, OpenSet, OpenSetVote, Task, unlike
from fedrelay.types import Merge, Outcome, State, Vector, Visit
from fedrelay.visits.loss_terms import check_features
from fedrelay.visits.terms import Batch, Effect, Term
from fedrelay.visits.training import labels

Variant = Literal["intended", "published"]

MASKED = -1e4
"""What the score of the true class is set to, so that unknown must be the next best answer."""
STEPS, SIZE, REACH = 5, 0.002, 0.5
"""How outliers are made harder: steps, their length, and how far they may lead."""
MIXED = 0.01
"""How much mixtures of two classes count."""
IGNORED = 11
"""The class that the authors' code leaves out by mistake, where there are so many."""


def fedov(
    *,
    lowest: int | None = None,
    renormalise: bool = False,
    distil: bool = False,
    variant: Variant = "intended",
) -> Change:
    """Clients also learn to say "unknown", of outliers made of their images; their models vote, the sure ones first.

    Besides outliers (seven kinds of damage) they learn it of outliers that were made harder, of their own examples
    without the true class, and of mixtures of two classes; models with BatchNorm of the plain outliers only, in one
    batch with the images. The result is an ensemble. A second round would start from the mean of all models.

    When clients can be asked once, data are images, and clients know few classes each; using it costs all models.

    Papers: Adam, lr 1e-3, weight_decay 1e-5, batch 64, 200 epochs (authors' code)

    Args:
        lowest: how many models vote on an image, those that find it least unknown; by default all.
        renormalise: whether every model gives away a whole vote, and not only what it does not keep for unknown.
        distil: whether the server teaches one model by the vote, with images that it makes as dense does; then every
            further round is an epoch of that, so say `rounds` too.
        variant: intended, or published: the authors' code, where nothing limits how far harder outliers may lead, and
            of more than ten classes one is never learned.

    Reference: [Diao et al. 2023](https://openreview.net/forum?id=rzrqh85f4Sc), Alg. 1
    """
    vote, term = OpenSetVote(lowest, renormalise), OutlierTerm(variant)
    if distil:
        merge = Student(joined=vote)
        return Change(plan=Once(), terms=(term,), merge=merge, predictor=taught_by_vote, fraction=1.0)
    return Change(terms=(term,), merge=Voters(), predictor=ByVote(vote), fraction=1.0, rounds=1)


# --- at the client


@dataclass(frozen=True)
class OutlierTerm(Term):
    """The loss gets what the model makes of outliers; the model has an output more."""

    variant: Variant = "intended"
    sole: ClassVar[str] = "how the model is run"
    stacks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.variant not in ("intended", "published"):
            raise BadInput(f"variant must be intended or published, not {self.variant!r}")

    def adapt(self, task: Task, /) -> Task:
        if isinstance(task.model, Open):
            return task
        check_features(task, "FedOV")
        check_images(task)
        wider = replace(task, model=Open(task.model))
        found = check_features(wider, "FedOV").head.out_features
        if found != task.classes + 1:
            raise BadInput(
                f"FedOV needs an output for unknown after those of the {task.classes} classes, and your network has "
                f"{found} outputs: give its head {task.classes + 1}"
            )
        return wider

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        draw = seeds.rng(visit.seed, "outliers", *labels(visit)[1:])
        workspace, unknown = visit.workspaces.main, visit.task.classes
        strange: list[torch.Tensor] = []

        def run(x: torch.Tensor) -> Forward:
            made = outliers(x, draw)
            both = workspace.forward(torch.cat((x, made)))
            strange[:] = made, both.output[len(x) :]
            features = None if both.features is None else both.features[: len(x)]
            return Forward(features, both.output[: len(x)])

        def loss(batch: Batch) -> torch.Tensor:
            made, output = strange
            total = to_unknown(output, unknown) + self.left_out(batch)
            if visit.task.parts.by_batch:  # the mean over images and outliers: half of what training has of the images
                return (total - functional.cross_entropy(batch.output, batch.y)) / 2
            network = workspace.network
            assert isinstance(network, Network)
            reach = REACH if self.variant == "intended" else None
            total = total + to_unknown(masked(batch.output, batch.y), unknown)
            total = total + to_unknown(network(harder(network, made, unknown, reach=reach)), unknown)
            return total + MIXED * mixed(network, batch, unknown, draw)

        return Effect(losses=(loss,), run=run)

    def left_out(self, batch: Batch) -> torch.Tensor:
        """What the loss of the examples is less by, because of a class that does not count: as published only."""
        there = batch.y != IGNORED
        if self.variant == "intended" or bool(there.all()):
            return batch.output.new_zeros(())
        each = functional.cross_entropy(batch.output, batch.y, reduction="none")
        return each[there].sum() / there.sum().clamp(min=1) - each.mean()


def check_images(task: Task) -> None:
    """Refuse what outliers cannot be made of, and classes that cannot be told from unknown."""
    if task.loss != CrossEntropy() or task.target != "classes":
        raise BadInput(f"FedOV learns one class or unknown, by cross_entropy that counts all alike; {unlike(task)}")
    shape = task.shape
    image = isinstance(shape, tuple) and len(shape) == 3 and all(isinstance(side, int) for side in shape)
    if not image or min(shape[1:]) < SMALLEST:
        raise BadInput(
            f"FedOV makes outliers of images of at least {SMALLEST}x{SMALLEST} pixels, by damage that has no meaning "
            f"elsewhere, and inputs here have the shape {shape}"
        )


def to_unknown(output: torch.Tensor, unknown: int) -> torch.Tensor:
    """The loss of answers that should be unknown."""
    return functional.cross_entropy(output, torch.full((len(output),), unknown, device=output.device))


def masked(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The scores as if the true class were not among them."""
    return output.scatter(1, y[:, None], MASKED)


def harder(
    network: nn.Module, made: torch.Tensor, unknown: int, *, steps: int = STEPS, reach: float | None = REACH
) -> torch.Tensor:
    """Outliers after a few short steps towards what the model knows, none of their numbers moved by more than `reach`.

    Paper: the authors measure the reach from where a step begins, so that it limits nothing. Five steps of 0.002 stay
    within 0.5 anyway.
    """
    x = made.detach()
    for _ in range(steps):
        x = x.requires_grad_()
        (slope,) = torch.autograd.grad(to_unknown(network(x), unknown), x)
        x = x.detach() + SIZE * slope.sign()
        if reach is not None:
            x = torch.clamp(x, made - reach, made + reach)
    return x


def mixed(network: Network, batch: Batch, unknown: int, draw: np.random.Generator) -> torch.Tensor:
    """The loss of mixtures of two examples of different classes, after the convolutions, that should be unknown."""
    order = torch.from_numpy(draw.permutation(len(batch.y))).to(batch.y.device)
    share = float(draw.beta(1, 1))
    pairs = torch.nonzero(batch.y != batch.y[order])[:, 0]
    if not len(pairs):
        return batch.output.new_zeros(())
    extractor, rest = cut(network.body)
    hidden = extractor(batch.x)
    blend = share * hidden[pairs] + (1 - share) * hidden[order[pairs]]
    return to_unknown(network.head(rest(blend)), unknown)


# --- at the server


@dataclass(frozen=True)
class Voters(Merge):
    """The server keeps all models that came back; where another round follows, it starts from their mean."""

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        models = tuple(outcome.baton.params for outcome in outcomes)
        return replace(merged(state, mean_model(outcomes)), server={"models": models})


@dataclass(frozen=True)
class ByVote:
    """What one would use now: the models that came back last, or those that are still on their way."""

    vote: OpenSetVote

    def __call__(self, state: State, /) -> OpenSet:
        server = state.server.get("merge", state.server)  # where models are merged now and then, ours is inside
        models = () if len(state.batons) > 1 else server.get("models", ())
        return OpenSet(models or tuple(baton.params for baton in state.batons), self.vote)


def taught_by_vote(state: State) -> OpenSet:
    """What one would use now: the student, which never answers unknown."""
    return OpenSet((state.batons[0].params,))
