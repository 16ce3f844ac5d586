"""Terms that add to the loss of a batch by looking at the model that was received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch.nn import functional

from fedrelay.errors import BadInput, within
from fedrelay.kernels.workspace import Workspace
from fedrelay.models import Network
from fedrelay.tasks import CrossEntropy, Task
from fedrelay.types import Vector, Visit
from fedrelay.visits.terms import Batch, Effect, Term


@dataclass(frozen=True)
class Distillation(Term):
    """Learn from the received model as well as from the labels: the loss gets `weight` times the divergence of the
    softened predictions from the received model's (Hinton et al. 2015; in a chain the teacher is the previous client).
    """

    weight: float = 1.0
    temperature: float = 2.0
    stacks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        within("weight", self.weight, least=0)
        within("temperature", self.temperature, above=0)

    def adapt(self, task: Task, /) -> Task:
        if not isinstance(task.loss, CrossEntropy):
            raise BadInput(f"distillation softens logits, and the model {task.model} has none; mlp or lenet5 have")
        return task

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        if not self.weight:
            return Effect()
        teacher = looking_at(received, visit)

        def loss(batch: Batch) -> torch.Tensor:
            with torch.no_grad():
                taught = self.soften(teacher.network(batch.x))
            divergence = functional.kl_div(self.soften(batch.output), taught, log_target=True, reduction="batchmean")
            # The square of the temperature keeps the gradient's scale, whatever the temperature.
            return self.weight * self.temperature**2 * divergence

        return Effect(losses=(loss,))

    def soften(self, logits: torch.Tensor) -> torch.Tensor:
        """Log-probabilities at the temperature, one row per prediction."""
        return functional.log_softmax(logits.reshape(-1, logits.shape[-1]) / self.temperature, dim=-1)


SMALL = 0.01
"""Beside a width below this, distances must be exact."""
AUTHORS_WIDTHS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 5, 10, 15, 20, 25, 30, 35, 100, 1e3, 1e4, 1e5, 1e6)
"""The Gaussians that are added up in the code of FedMMD's authors (they come from Bousmalis et al. 2016)."""


@dataclass(frozen=True)
class Discrepancy(Term):
    """Stay close to the received model in what the features look like: the loss gets `weight` times the squared maximum
    mean discrepancy between both models' features of the batch (FedMMD: Yao et al. 2018).

    `between` = "logits" compares outputs instead, as the authors' code does; it works with every model. The kernel is a
    Gaussian, or a sum of Gaussians of these `widths` (σ²). Paper: the width is left open. Features of a batch lie
    hundreds apart, where a Gaussian of width 1 is 0 and has no gradient: so the width is the median of the squared
    distances (`kernel` = "median"). "published" are the nineteen of the authors' code, from 1e-6 to 1e6, whose gradient
    is so steep that it wants a tiny lr.
    """

    weight: float = 0.1
    between: Literal["features", "logits"] = "features"
    widths: tuple[float, ...] = ()
    kernel: Literal["median", "published"] = "median"
    stacks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        within("weight", self.weight, least=0)
        if self.between not in ("features", "logits"):
            raise BadInput(f"between must be features or logits, not {self.between!r}")
        if self.kernel not in ("median", "published"):
            raise BadInput(f"kernel must be median or published, not {self.kernel!r}")
        if self.widths and self.kernel == "published":
            raise BadInput(f'kernel = "published" has widths of its own: leave out widths = {list(self.widths)}')
        for width in self.widths:
            within("every one of widths", width, above=0)

    def adapt(self, task: Task, /) -> Task:
        if not isinstance(task.loss, CrossEntropy):
            raise BadInput(f"FedMMD compares features or logits, and the model {task.model} has neither; mlp has both")
        if self.between == "features":
            check_features(task, "FedMMD")
        return task

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        if not self.weight:
            return Effect()
        reference = looking_at(received, visit)
        widths = AUTHORS_WIDTHS if self.kernel == "published" else self.widths

        def loss(batch: Batch) -> torch.Tensor:
            with torch.no_grad():
                before = reference.forward(batch.x)
            pair = (batch.output, before.output) if self.between == "logits" else (batch.features, before.features)
            assert pair[0] is not None
            assert pair[1] is not None
            return self.weight * discrepancy(pair[0].flatten(0, -2), pair[1].flatten(0, -2), widths)

        return Effect(losses=(loss,))


def discrepancy(a: torch.Tensor, b: torch.Tensor, widths: Sequence[float] = ()) -> torch.Tensor:
    """The squared maximum mean discrepancy of two samples (one a row): E k(a, a') + E k(b, b') - 2 E k(a, b).

    The kernel k is the sum of the Gaussians exp(-d² / 2w) over all widths w; without any, the one whose width is the
    median of the squared distances between two rows, which counts as a constant.
    """
    rows, size = torch.cat((a, b)), len(a)
    squares = squared_distances(rows, exact=bool(widths) and min(widths) < SMALL)
    k = torch.zeros_like(squares)
    for width in widths or (median_of(squares.detach()),):
        k = k + torch.exp(squares / (-2 * width))
    return k[:size, :size].mean() + k[size:, size:].mean() - 2 * k[:size, size:].mean()


def median_of(squares: torch.Tensor) -> float:
    """The median of the distances between different rows; 1 where they are all the same."""
    above = torch.triu_indices(len(squares), len(squares), offset=1, device=squares.device)
    return float(squares[above[0], above[1]].median()) or 1.0


def squared_distances(rows: torch.Tensor, *, exact: bool) -> torch.Tensor:
    """Of every row from every other: exactly, or by a matrix product, which is several times faster."""
    if exact:  # the product's rounding is large beside small widths, and at first both models are equal
        return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    centred = rows - rows.detach().mean(0)
    lengths = centred.square().sum(1)
    return (lengths.unsqueeze(1) + lengths - 2 * centred @ centred.T).clamp(min=0)


def looking_at(model: Vector, visit: Visit, name: str = "received") -> Workspace:
    """The side workspace of this name with this model in it: no dropout, running statistics. Wrap what runs there in
    no_grad."""
    workspace = visit.workspaces.side(name)
    workspace.load(model, training=False)
    return workspace


def check_features(task: Task, method: str) -> Network:
    """Refuse a model whose features cannot be looked at; the network that is returned has shapes but no numbers."""
    with torch.device("meta"):
        network = task.model(task.shape, task.outputs)
    if not isinstance(network, Network):
        raise BadInput(
            f"{method} needs a model with features, and {type(network).__name__} has no body and head: "
            "mlp, lenet5 and the other networks here have, and so has your own fedrelay.models.Network(body, head)"
        )
    return network
