"""A generator of images and a discriminator made of a model that was received (FedSeq journal 2024, and its code).

Both stay in training all the time, as there: batch statistics are those of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from fedrelay.models import LeNet5, Network
from fedrelay.tasks import Task
from fedrelay.tasks.images import image_shape
from fedrelay.types import Vector

LATENT = 100
"""How many random numbers an image is made of."""
LR, BETAS = 2e-4, (0.5, 0.999)
"""Of both Adams."""
DOUBT = 0.1
"""The deviation of the targets around 1 (real) and 0 (made)."""
SLOPE = 0.2
"""Of leaky ReLUs."""
WIDEST = 8
"""The first layer of a generator has at most so many times the filters of its last but one."""

Images = Callable[[torch.Tensor], torch.Tensor]


# --- the generator


def generator_of(shape: tuple[int, int, int], width: int) -> nn.Module:
    """A new one for images of this shape (DCGAN). With a width of 128, that of the authors' code for 32 x 32 pixels
    (512, 256 and 128 filters), and that for 28 x 28 pixels (256, 128 and 64).

    Paper: their code asks for other initial weights, but of the outermost module only, which has none: in effect it
    has PyTorch's.
    """
    return OddGenerator(shape[0], width) if shape[1:] == (28, 28) else Generator(shape, width)


class Generator(nn.Module):
    """From one point to about 4 x 4, then doubled until the image is covered; what is too much is cut."""

    def __init__(self, shape: tuple[int, int, int], width: int) -> None:
        super().__init__()
        channels, self.height, self.width = shape
        doublings = max(math.ceil(math.log2(max(shape[1:]) / 4)), 1)
        kernel = (-(-self.height // 2**doublings), -(-self.width // 2**doublings))
        filters = [width * min(2**place, WIDEST) for place in reversed(range(doublings))]
        layers: list[nn.Module] = [nn.ConvTranspose2d(LATENT, filters[0], kernel, bias=False), *normed(filters[0])]
        for before, after in pairwise(filters):
            layers += [nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False), *normed(after)]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(filters[-1], channels, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        images: torch.Tensor = self.layers(z)
        return images[:, :, : self.height, : self.width]


class OddGenerator(nn.Module):
    """For 28 x 28 pixels: 1, 3, 7, 15 and 28 of a side."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        filters = (LATENT, 2 * width, width, max(width // 2, 1))
        layers: list[nn.Module] = []
        for before, after in pairwise(filters):
            layers += [nn.ConvTranspose2d(before, after, 3, 2, bias=False), *normed(after)]
        last = nn.ConvTranspose2d(filters[-1], channels, 3, 2, padding=2, output_padding=1, bias=False)
        self.layers = nn.Sequential(*layers, last, nn.Tanh())

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        images: torch.Tensor = self.layers(z)
        return images


def normed(filters: int) -> list[nn.Module]:
    """Running statistics would never be used."""
    return [nn.BatchNorm2d(filters, track_running_stats=False), nn.ReLU(inplace=True)]


# --- the discriminator


class Discriminator(nn.Module):
    """A network that tells classes, and a binary layer on top of what it tells: real or made. There is no class for
    what is made."""

    def __init__(self, network: nn.Module, outputs: int) -> None:
        super().__init__()
        self.network, self.binary = network, nn.Linear(outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.binary(self.network(x))
        return logits.squeeze(1)


def discriminator_of(task: Task, params: Vector) -> Discriminator:
    """One made of this model. LeNet is changed as in the authors' code: strides for max-pooling, new BatchNorm layers
    and leaky ReLUs. Every other network is as it is, but for leaky ReLUs, and without dropout, as theirs for EMNIST."""
    network = task.network().to(params.device)
    tensors = dict(network.named_parameters()) | dict(network.named_buffers())
    with torch.no_grad():
        for name, piece in task.layout.pieces(params).items():
            tensors[name].copy_(piece)
    strided = isinstance(task.model, LeNet5) and even(task.shape)
    changed = lenet_with_strides(network) if strided else leaky(network)
    with torch.no_grad():  # a method may have added outputs to the model
        blank = params.new_zeros(1, *image_shape(task, "a discriminator takes"))
        outputs = changed.to(params.device).eval()(blank).shape[1]
    return Discriminator(changed, outputs).to(params.device).train()


def even(shape: object) -> bool:
    """Whether strides lead to the same numbers of pixels as max-pooling does: (n - 4) and ((n - 4) / 2 - 4) are
    even."""
    return isinstance(shape, tuple) and all(side % 4 == 0 for side in shape[1:])


def lenet_with_strides(network: nn.Module) -> nn.Module:
    """Every convolution, max-pooling and ReLU becomes a convolution with a stride, BatchNorm and leaky ReLU."""
    assert isinstance(network, Network)
    assert isinstance(network.body, nn.Sequential)
    layers: list[nn.Module] = []
    for layer in network.body:
        if isinstance(layer, nn.Conv2d):
            layer.stride = (2, 2)
            layers += [layer, nn.BatchNorm2d(layer.out_channels)]
        elif not isinstance(layer, nn.MaxPool2d):
            layers.append(leaky(layer))
    network.body = nn.Sequential(*layers)
    return network


def leaky(module: nn.Module) -> nn.Module:
    """The module with leaky ReLUs and without dropout."""
    if isinstance(module, nn.ReLU):
        return nn.LeakyReLU(SLOPE, inplace=module.inplace)
    if isinstance(module, nn.Dropout):
        return nn.Identity()
    for name, child in module.named_children():
        setattr(module, name, leaky(child))
    return module


# --- training


def train(
    generator: nn.Module, discriminator: nn.Module, real: Iterable[torch.Tensor], made: Images, batch: int
) -> None:
    """One step of the discriminator and one of the generator for every batch of real images; `made` turns what the
    generator says into what the discriminator takes. Draws from torch's generator of main memory, wherever they are.

    Paper: targets may be outside 0 … 1 there, which PyTorch takes no more: here they are clamped.
    """
    generating, telling = (
        torch.optim.Adam(module.parameters(), lr=LR, betas=BETAS) for module in (generator, discriminator)
    )
    device = next(generator.parameters()).device
    certain = torch.ones(batch, device=device)
    for x in real:
        telling.zero_grad()
        told(discriminator(x), doubted(torch.ones(len(x), device=device))).backward()  # type: ignore[no-untyped-call]
        images = made(generator(torch.randn(batch, LATENT, 1, 1).to(device)))
        told(discriminator(images.detach()), doubted(torch.zeros(batch, device=device))).backward()  # type: ignore[no-untyped-call]
        telling.step()
        generating.zero_grad()
        told(discriminator(images), certain).backward()  # type: ignore[no-untyped-call]
        generating.step()


def told(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(logits, targets)


def doubted(targets: torch.Tensor) -> torch.Tensor:
    """Targets with some doubt, between 0 and 1."""
    return (targets + DOUBT * torch.randn(len(targets)).to(targets.device)).clamp(0, 1)


def flat(module: nn.Module) -> Vector:
    """All weights of a generator in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def load(module: nn.Module, vector: Vector) -> None:
    """Put them back."""
    parameters = list(module.parameters())
    pieces = torch.split(vector, [parameter.numel() for parameter in parameters])
    with torch.no_grad():
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))
