"""Images out of models alone: a generator makes what several models agree on and one does not know yet (DENSE)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fedrelay.errors import Diverged
from fedrelay.tasks import Task
from fedrelay.tasks.images import image_shape, scaling
from fedrelay.types import Vector

LATENT = 256
"""How many random numbers an image is made of."""
LR, BETAS = 1e-3, (0.5, 0.999)
"""Of the generator's Adam: the authors' values."""
MAKER = "the server makes"
"""Who makes images, for whoever has none."""

Scores: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""From images, as networks take them, to the logits of the classes."""
Joined: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""What several models say together: from (models, images, outputs) to the logits of the classes."""


class Generator(nn.Module):
    """Random numbers to images between 0 and 1 (DENSE, App.): from a quarter of each side, doubled twice. Sides that
    are no multiple of four are cut."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, self.height, self.width = shape
        self.sides = (-(-self.height // 4), -(-self.width // 4))
        self.begin = nn.Linear(LATENT, 128 * math.prod(self.sides))
        self.rest = nn.Sequential(
            nn.BatchNorm2d(128),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(128, 128, 3, padding=1, bias=False),
            nn.BatchNorm2d(128),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(128, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(64, channels, 3, padding=1),
            nn.Sigmoid(),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.02)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, 1.0, 0.02)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        images: torch.Tensor = self.rest(self.begin(z).view(len(z), 128, *self.sides))
        return images[:, :, : self.height, : self.width]


class Models:
    """Several models of a task, asked together: one network that has each of their numbers in turn, at rest."""

    def __init__(self, task: Task, models: Sequence[Vector], joined: Joined) -> None:
        self.device = models[0].device
        self._network, self._joined = task.network().eval().to(self.device), joined
        self._pieces = [task.layout.pieces(model) for model in models]
        self._norms = [module for module in self._network.modules() if isinstance(module, _BatchNorm)]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._joined(torch.stack([self._one(pieces, x) for pieces in self._pieces]))

    def with_statistics(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The same, and how far the inputs of BatchNorm layers are from what each model has seen in training: summed
        over layers, the mean over models."""
        apart: list[torch.Tensor] = []

        def look(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            assert isinstance(module, _BatchNorm)
            if module.running_mean is not None and module.running_var is not None:
                apart.append(statistics_apart(args[0], module.running_mean, module.running_var))

        hooks = [module.register_forward_pre_hook(look) for module in self._norms]
        try:
            logits = self(x)
        finally:
            for hook in hooks:
                hook.remove()
        return logits, torch.stack(apart).sum() / len(self._pieces) if apart else x.new_zeros(())

    def _one(self, pieces: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = functional_call(self._network, pieces, (x,))
        return logits


# --- what makes an image a good one


def statistics_apart(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """‖var - running var‖ + ‖mean - running mean‖ of the inputs of a BatchNorm layer, channel by channel."""
    over = [dimension for dimension in range(x.ndim) if dimension != 1]
    spread, middle = x.var(over, unbiased=False), x.mean(over)
    apart: torch.Tensor = torch.linalg.vector_norm(spread - variance) + torch.linalg.vector_norm(middle - mean)
    return apart


def divergence(taught: torch.Tensor, own: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """T² KL(taught ‖ own) of every row of logits, both softened by T."""
    wanted, found = ((each / temperature).log_softmax(-1) for each in (taught, own))
    return temperature**2 * (wanted.exp() * (wanted - found)).sum(-1)


def boundary(taught: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Minus the divergence, where both choose another class: the less, the nearer to what the student gets wrong."""
    differ = taught.argmax(-1) != own.argmax(-1)
    return -(differ * divergence(taught, own)).mean()


@dataclass(frozen=True)
class Wanted:
    """How much counts besides the labels: BatchNorm's statistics (λ1), and what the student gets wrong (λ2)."""

    statistics: float
    boundary: float


def made_images(
    task: Task, teacher: Models, student: Scores, wanted: Wanted, *, batch: int, steps: int, where: str
) -> torch.Tensor:
    """A batch of images between 0 and 1: the best that a new generator has made in so many steps. Draws from torch's
    generator."""
    device = teacher.device  # what is drawn is drawn in main memory, and so the same everywhere
    scaled, generator = scaling(task, MAKER), Generator(image_shape(task, MAKER)).to(device)
    z = torch.randn(batch, LATENT).to(device).requires_grad_()
    labels = torch.randint(task.classes, (batch,)).sort().values.to(device)
    optimiser = torch.optim.Adam([*generator.parameters(), z], lr=LR, betas=BETAS)
    best: torch.Tensor | None = None
    lowest = math.inf
    for _ in range(steps):
        images = generator(z)
        x = scaled(moved(images))
        taught, apart = teacher.with_statistics(x) if wanted.statistics else (teacher(x), x.new_zeros(()))
        loss = functional.cross_entropy(taught, labels) + wanted.statistics * apart
        if wanted.boundary:
            loss = loss + wanted.boundary * boundary(taught, student(x))
        if float(loss.detach()) < lowest:
            best, lowest = images.detach(), float(loss.detach())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    if best is None:
        raise Diverged(f"{where}: no image could be made, because what the clients' models say of it is not finite")
    return best


# --- images as networks take them


def moved(images: torch.Tensor) -> torch.Tensor:
    """Every image shifted by up to an eighth of its side (black comes in), half of them flipped; gradients pass."""
    count, _, height, width = images.shape
    high, wide = height // 8, width // 8
    top, left = torch.randint(2 * high + 1, (count, 1)), torch.randint(2 * wide + 1, (count, 1))
    flipped = torch.rand(count, 1) < 0.5
    across = torch.arange(width).expand(count, -1)
    columns = left + torch.where(flipped, width - 1 - across, across)
    rows, here = top + torch.arange(height), torch.arange(count)[:, None, None]
    here, rows, columns = (part.to(images.device) for part in (here, rows, columns))
    around = functional.pad(images, (wide, wide, high, high))
    picked = around[here, :, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2)
