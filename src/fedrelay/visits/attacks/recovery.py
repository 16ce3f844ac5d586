"""GAN recovery: an attacker that makes images of the models it receives (FedSeq journal 2024, Section V-B).

It trains and sends as an honest client does. What it finds out stays in its memory, as that of one client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.tasks import Task
from fedrelay.tasks.images import image_shape, scaling
from fedrelay.types import Baton, Tree, Vector, Visit, Work
from fedrelay.vectors import is_finite
from fedrelay.visits.attacks import gan
from fedrelay.visits.attacks.attack import SPIED, Attack
from fedrelay.visits.training import Training

MAKER = "recovery makes"
"""Who makes images, for whoever has none."""
Source = Literal["received", "random", "own"]
SOURCES: tuple[Source, ...] = ("received", "random", "own")


@dataclass(frozen=True)
class Recovery(Attack):
    """Makes images with a generator, whose discriminator is the model that it received with a binary layer on top; real
    are its own images. It trains and sends as an honest client (FedSeq journal 2024, Section V-B; Hitaj et al. 2017).

    The generator is kept over rounds, the discriminator is new at every visit. At its first visit, and then whenever
    `every` rounds have passed, the attacker makes `images` from noise that is always the same. Generators of other
    discriminators are controls: what the received model is worth is how much nearer its images come than theirs.

    Args:
        discriminators: of what they are made, each with a generator of its own: the model "received", a "random" one,
            or one that the attacker has trained on its "own" examples alone, in as many visits.
        epochs: over the attacker's own images at every visit.
        batch: images of a step, real ones and made ones.
        width: filters of the generator's last hidden layer at 32 x 32 pixels; the layers before have 2 and 4 times as
            many.
        images: how many are made and kept.
        every: how many rounds pass, at least, before others are.
        output: "tanh" is the authors' code: images have -1 … 1 as the network takes them, which normalised data exceed,
            and are shown stretched, each from its darkest to its brightest; with "pixels" -1 … 1 is black … white.
    """

    discriminators: tuple[str, ...] = ("received",)
    epochs: int = 300
    batch: int = 64
    width: int = 128
    images: int = 5000
    every: int = 100
    output: Literal["tanh", "pixels"] = "tanh"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epochs", "width", "every"):
            within(name, getattr(self, name), least=1)
        within("batch", self.batch, least=2)
        within("images", self.images, least=2)
        if self.output not in ("tanh", "pixels"):
            raise BadInput(f"output must be tanh or pixels, not {self.output!r}")
        strange = [name for name in self.discriminators if name not in SOURCES]
        if strange or not self.discriminators or len(set(self.discriminators)) < len(self.discriminators):
            found = list(self.discriminators)
            raise BadInput(f"discriminators must be some of {', '.join(SOURCES)}, each once, not {found}")

    def fitted(self, task: Task, /) -> Recovery:
        shape = image_shape(task, MAKER)
        if task.target != "classes":
            raise BadInput(f"recovery takes a network that tells classes for a discriminator; here is {task.target}")
        black, white = (scaling(task, MAKER)(torch.full((2, *shape), end)) for end in (0.0, 1.0))
        try:
            gan.discriminator_of(task, task.init(0))(torch.cat((black, white)))
        except Exception as error:
            raise BadInput(f"recovery cannot make a discriminator of the model {task.model}: {error}") from error
        return self

    def check(self, work: Work, /) -> None:
        if "own" in self.discriminators:
            training_in(work)

    def spied(self, baton: Baton, visit: Visit, known: Tree, work: Work, /) -> Tree:
        if visit.client.size < 2:
            return known  # one image is no batch
        generators = dict(known.get("generators", {}))
        own = self.own_model(known.get("own"), visit, work) if "own" in self.discriminators else None
        labels = "recovery", "random", visit.client.id, visit.round
        random = visit.task.init(seeds.derive(visit.seed, *labels)).to(baton.params.device)
        models = {"received": baton.params, "random": random, "own": own}
        networks = {
            name: self.trained(generators.get(name), models[name], visit)  # type: ignore[arg-type]
            for name in self.discriminators
        }
        found: dict[str, Any] = {"generators": {name: gan.flat(network) for name, network in networks.items()}}
        found |= {} if own is None else {"own": own}
        if "round" in known and visit.round < known["round"] + self.every:
            return {**known, **found}
        made = {name: self.made(network, visit) for name, network in networks.items()}
        return {**found, "round": visit.round, "images": made}

    def own_model(self, before: Vector | None, visit: Visit, work: Work) -> Vector:
        """What the attacker knows without the others: the model of the first round, trained on its examples alone, in
        every visit as it trains for the others, without what methods add to that."""
        start = visit.task.init(visit.seed).to(visit.workspaces.device) if before is None else before
        plain = replace(training_in(work), terms=(), guard=None)
        after, _, _ = plain(Baton(start), replace(visit, memory={}))
        return after.params if is_finite(after.params) else start

    def trained(self, before: Vector | None, model: Vector, visit: Visit) -> nn.Module:
        """The generator after this visit. All discriminators see the same draws, so that only they differ."""
        labels = visit.client.id, visit.round, visit.hop
        with seeds.torch_seed(visit.seed, "recovery", "generator", visit.client.id):
            generator = gan.generator_of(image_shape(visit.task, MAKER), self.width).train().to(model.device)
        start = gan.flat(generator) if before is None else before
        gan.load(generator, start)
        with seeds.torch_seed(visit.seed, "recovery", *labels):
            discriminator = gan.discriminator_of(visit.task, model)
            gan.train(generator, discriminator, self.real(visit), self.as_taken(visit.task), self.batch)
        if not is_finite(gan.flat(generator)):
            gan.load(generator, start)
        return generator

    def real(self, visit: Visit) -> Iterator[torch.Tensor]:
        """The attacker's own images, as it trains on them; a last batch of one image is left out."""
        draw = seeds.rng(visit.seed, "recovery", "real", visit.client.id, visit.round, visit.hop)
        for _ in range(self.epochs):
            order = torch.from_numpy(draw.permutation(visit.client.size))
            for positions in torch.split(order, self.batch):
                if len(positions) > 1:
                    x, _ = visit.client.take(positions, draw)
                    assert isinstance(x, torch.Tensor)
                    yield x

    def as_taken(self, task: Task) -> gan.Images:
        """From what the generator says to what networks take."""
        if self.output == "tanh":
            return lambda images: images
        scaled = scaling(task, MAKER)
        return lambda images: scaled((images + 1) / 2)

    @torch.no_grad()
    def made(self, generator: nn.Module, visit: Visit) -> torch.Tensor:
        """Images in bytes, from the same noise every time."""
        with seeds.torch_seed(visit.seed, "recovery", "noise", visit.client.id):
            noise = torch.randn(self.images, gan.LATENT, 1, 1).to(visit.workspaces.device)
        return torch.cat([self.in_bytes(generator(some)) for some in torch.split(noise, self.batch)])

    def in_bytes(self, images: torch.Tensor) -> torch.Tensor:
        """As they are kept and shown: (n, channels, height, width)."""
        return to_bytes((images + 1) / 2) if self.output == "pixels" else stretched(images)


def training_in(work: Work) -> Training:
    """The training that a work is made of."""
    inner: Work | None = work
    while inner is not None and not isinstance(inner, Training):
        inner = getattr(inner, "work", None)
    if inner is None:
        raise BadInput(f'{type(work).__name__} trains in a way of its own: recovery cannot have the control "own" here')
    return inner


def stretched(images: torch.Tensor) -> torch.Tensor:
    """Every image from its darkest number (0) to its brightest (255)."""
    least, most = images.flatten(1).amin(1), images.flatten(1).amax(1)
    span = (most - least).clamp(min=1e-12)
    return to_bytes((images - least[:, None, None, None]) / span[:, None, None, None])


def to_bytes(images: torch.Tensor) -> torch.Tensor:
    """From 0 … 1."""
    return (images * 255).round().clamp(0, 255).to(torch.uint8)


def pictures_in(memory: Mapping[str, Any]) -> tuple[int, Mapping[str, torch.Tensor]] | None:
    """The last images that a client has made, by discriminator, and their round; None if it made none."""
    known = memory.get(SPIED)
    return None if not isinstance(known, Mapping) or "images" not in known else (known["round"], known["images"])
