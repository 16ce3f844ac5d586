"""How near an attacker's images come to those of the other clients, round after round, and what that is beside.

A distance alone says little: the real images of the attacker are among what the generator learns from, and two sets of
real images are not at distance 0 either. So every distance has two others beside it, of as many images: that of other
clients' images (how near it gets), and that of the attacker's own images, shown again and again.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay import config, seeds
from fedrelay.data.federation import Federation
from fedrelay.errors import BadInput, within
from fedrelay.models import Logistic
from fedrelay.runs import recovered
from fedrelay.runs.folder import Run, load
from fedrelay.runs.recovered import Made
from fedrelay.studies.features import federation_of
from fedrelay.studies.recovery.distances import FewImages, few, fid, kid
from fedrelay.studies.recovery.networks import FeatureNetwork
from fedrelay.tasks import Task
from fedrelay.tasks.images import scaling
from fedrelay.visits.attacks.recovery import stretched, to_bytes

Floats = NDArray[np.float64]
OTHERS, OWN_IMAGES = "other clients' images", "the attacker's own images"


@dataclass(frozen=True)
class Point:
    """Images of one attacker in one round: how far from the other clients' images."""

    kind: str
    """Of what the discriminator was made."""
    client: int
    round: int
    accuracy: float | None
    """Of the model before that round, where it was tested."""
    fid: float
    kid: float
    visits: float = 0
    """In how many the generator was trained until then."""


@dataclass(frozen=True)
class Near:
    """What there is at some accuracy."""

    fid: float
    kid: float
    visits: float


@dataclass(frozen=True)
class Beside:
    """What distances are beside: of images that nobody has made."""

    kind: str
    fid: float
    kid: float


@dataclass(frozen=True)
class Measured:
    """All that is known of one run."""

    network: str
    images: int
    features: int
    points: tuple[Point, ...]
    beside: tuple[Beside, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(point.kind for point in self.points))

    def of(self, kind: str) -> list[Point]:
        return [point for point in self.points if point.kind == kind]


def measure(
    folder: Path, network: FeatureNetwork, *, images: int | None = None, data_dir: Path | None = None
) -> Measured:
    """The distances of the images in this run folder; `images` are compared at most, as many of each kind."""
    if images is not None:
        within("images", images, least=2)
    run = load(folder)
    tables = run.config
    made = recovered.read(folder, len(run.rounds))
    if not made:
        raise BadInput(
            f'{folder} has no images of an attacker: a run makes some with [attack] name = "recovery", at the first '
            "visit of an attacker"
        )
    federation = federation_of(folder, data_dir)
    output, seed = str(config.section_of(tables, "attack").get("output", "tanh")), int(tables.get("seed", 0))
    count = min([images or len(all_of(made[0])), *(len(all_of(one)) for one in made)])
    points: list[Point] = []
    beside: list[Beside] = []
    for client in sorted({one.client for one in made}):
        sample = Sample.of(federation, client, network, output=output, seed=seed, count=count)
        mine = [one for one in made if one.client == client]
        points += [point for one in mine for point in points_of(one, run, sample, network)]
        beside += [*sample.others(), sample.own()]
    width, count = sample.real.shape[1], len(sample.real)
    notes = (few(count, width),) if count <= width else ()
    return Measured(network.name, count, width, tuple(points), tuple(beside), notes)


def all_of(made: Made) -> Any:
    return next(iter(made.images.values()))


def points_of(made: Made, run: Run, sample: Sample, network: FeatureNetwork) -> list[Point]:
    before = accuracy_before(run, made.round)
    visits = sum(hit.client == made.client for log in run.rounds[: made.round] for hit in log.attacked)
    found = []
    for kind, images in made.images.items():
        features = network(torch.from_numpy(images[: len(sample.real)]))
        found.append(Point(kind, made.client, made.round, before, *apart(features, sample.real), visits))
    return found


def apart(one: Floats, other: Floats) -> tuple[float, float]:
    """FID and KID; that images are few is said once for all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewImages)
        return fid(one, other), kid(one, other)


def accuracy_before(run: Run, round: int) -> float | None:
    """Of the last model that was tested before this round: what the attacker got is not older."""
    tested = [log.accuracy for log in run.rounds[: round - 1] if log.accuracy is not None]
    return tested[-1] if tested else None


# --- real images


@dataclass(frozen=True)
class Sample:
    """Images of the clients that are no attackers, as many as are compared; their features are `real`."""

    federation: Federation
    client: int
    network: FeatureNetwork
    output: str
    seed: int
    rows: torch.Tensor
    """All training examples of everybody else, in an order that the seed draws."""
    real: Floats

    @classmethod
    def of(
        cls, federation: Federation, client: int, network: FeatureNetwork, *, output: str, seed: int, count: int
    ) -> Sample:
        rows = rows_of_others(federation, client, seed)
        real = network(shown(federation, rows[:count], output))
        return cls(federation, client, network, output, seed, rows, real)

    def others(self) -> list[Beside]:
        """How far other images of the same clients are; nothing where there are not enough."""
        count = len(self.real)
        rest = self.rows[count : 2 * count]
        return [Beside(OTHERS, *apart(self.features(rest), self.real))] if len(rest) == count else []

    def own(self) -> Beside:
        """How far the attacker's own images are: as many, each as often as that takes."""
        own = self.features(self.federation.client(self.client).rows[: len(self.real)])
        drawn = seeds.rng(self.seed, "recovery", "own").integers(0, len(own), len(self.real))
        return Beside(OWN_IMAGES, apart(own[drawn], self.real)[0], kid(own, self.real))

    def features(self, rows: torch.Tensor) -> Floats:
        return self.network(shown(self.federation, rows, self.output))


def rows_of_others(federation: Federation, client: int, seed: int) -> torch.Tensor:
    first, last = int(federation.starts[client]), int(federation.starts[client + 1])
    rows = torch.cat((federation.order[:first], federation.order[last:]))
    if len(rows) < 2:
        raise BadInput("the attacker has all examples: there are no other clients' images to recover")
    return rows[torch.from_numpy(seeds.rng(seed, "recovery", "others").permutation(len(rows)))]


def shown(federation: Federation, rows: torch.Tensor, output: str) -> torch.Tensor:
    """These training images in bytes, as the attacker's are kept."""
    train = federation.source.train
    x, _ = train.take(rows)
    assert isinstance(x, torch.Tensor)
    if output == "tanh":
        return stretched(x)
    task = Task(Logistic(), train.shape, max(federation.source.classes, 1), transform=train.transform)
    scaled = scaling(task, "recovery compares")
    black, white = (scaled(torch.full_like(x[:1], end)) for end in (0.0, 1.0))
    return to_bytes((x - black) / (white - black))


# --- at equal accuracy


def common_accuracy(several: Sequence[Measured], kind: str = "received") -> float | None:
    """The highest accuracy at which there are images of all runs; None if there is none."""
    known = [[point.accuracy for point in one.of(kind) if point.accuracy is not None] for one in several]
    if not known or not all(known):
        return None
    level = min(max(values) for values in known)
    return level if level >= max(min(values) for values in known) else None


def at_accuracy(points: Sequence[Point], level: float) -> Near | None:
    """FID, KID and visits at this accuracy, on the line between the two measured ones around it."""
    known = sorted(
        (point.accuracy, point.fid, point.kid, point.visits) for point in points if point.accuracy is not None
    )
    if not known or not known[0][0] <= level <= known[-1][0]:
        return None
    accuracy, *columns = (np.array(column) for column in zip(*known, strict=True))
    return Near(*(float(np.interp(level, accuracy, column)) for column in columns))


def figures_at(found: Measured, level: float | None) -> dict[str, float | None]:
    """FID and KID by discriminator at this accuracy (`fid_received`, `kid_own` …), that accuracy, and how often the
    attacker was visited until then."""
    figures: dict[str, float | None] = {"accuracy": level, "visits": None}
    for kind in found.kinds:
        near = None if level is None else at_accuracy(found.of(kind), level)
        figures |= {f"{what}_{kind}": None if near is None else getattr(near, what) for what in ("fid", "kid")}
        figures["visits"] = figures["visits"] if near is None else near.visits
    return figures


def as_record(found: Measured) -> dict[str, Any]:
    """Plain data of it."""
    return {
        **{key: getattr(found, key) for key in ("network", "images", "features")},
        "points": [vars(point) for point in found.points],
        "beside": [vars(one) for one in found.beside],
        "notes": list(found.notes),
    }


def from_record(found: Mapping[str, Any]) -> Measured:
    """The same again; whatever is none raises LookupError or TypeError."""
    points = tuple(Point(**point) for point in found["points"])
    beside = tuple(Beside(**one) for one in found["beside"])
    return Measured(found["network"], found["images"], found["features"], points, beside, tuple(found["notes"]))
