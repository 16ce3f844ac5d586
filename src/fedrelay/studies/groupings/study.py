"""Describe the clients, build every grouping that was asked for, and measure it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from fedrelay import config, seeds
from fedrelay.errors import RunFailed
from fedrelay.plans import Groups, Traits
from fedrelay.plans.grouping.traits import collect, complete, components, inner_products, longest, reasons, similarity
from fedrelay.report.progress import Watched, bars
from fedrelay.runs.measures import Box, balance_ratio, class_distances, covered_classes, group_counts
from fedrelay.runs.surveys import ClientSurvey
from fedrelay.studies.groupings.apart import Apart, chosen, distances, named_classes
from fedrelay.studies.groupings.request import Request, read
from fedrelay.tasks import Task
from fedrelay.types import Trait, Work
from fedrelay.visits.traits import ClassHistogram, ClassifierWeights, Confidence, SeveralTraits, linear_layers

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
MANY = 2000
"""Of more rows than this, the median distance is that of a random part."""
SIDE = 100
"""A similarity matrix is shown with at most so many rows and columns, each the mean of a few clients."""


@dataclass(frozen=True)
class Made:
    """One grouping criterion, its measures (means over the repeats) and the groups of the first repeat."""

    trait: str
    grouper: str
    distance: str
    number: float
    balance: float
    covered: float
    apart: float | None
    """The median distance of the class mixes of two groups."""
    apart_mean: float | None
    """Their mean distance."""
    box: Box | None
    """How those of the first repeat are spread."""
    seconds: float
    groups: Groups
    counts: Counts


@dataclass(frozen=True)
class Pretrained:
    """The clients' models after some epochs alone (FedSeq 2022, Figs. 3-5): how alike they are, the norm of the matrix
    of their similarities, and the share of the principal components that hold 90 % of the classifiers' variance."""

    epochs: int
    norm: float
    components: float
    similarity: Floats


@dataclass(frozen=True)
class Findings:
    """All that the laboratory found."""

    source: str
    sizes: Sequence[int]
    class_names: tuple[str, ...]
    clients_box: Box | None
    """How far the class mixes of two clients are apart."""
    made: tuple[Made, ...]
    between: tuple[Apart, ...]
    """How far some clients are apart by every trait."""
    pretrained: tuple[Pretrained, ...]
    described: Mapping[str, float]
    """Seconds that describing all clients took, by traits."""
    missing: Mapping[str, tuple[tuple[int, str], ...]]
    """Clients that could not be described, with the reason, by trait."""

    @property
    def clients_apart(self) -> float | None:
        """The median distance of the class mixes of two clients."""
        return None if self.clients_box is None else self.clients_box.median


def study(tables: Mapping[str, Any], console: Console, data_dir: Path | str | None = None) -> Findings:
    """Build and compare groupings of the clients of a configuration; nothing is trained but what describes them."""
    rest = {key: value for key, value in tables.items() if key != "groups"}
    algorithm = config.section_of(rest, "algorithm")
    experiment = config.build({**rest, "algorithm": {"name": "fedavg"}}, data_dir)
    task, source = experiment.task, experiment.federation.source
    request = read(config.section_of(tables, "groups"), algorithm, exemplars=task.public is not None)
    sizes, seed = experiment.federation.sizes, experiment.engine.seed
    request.limits.check(sizes)
    local = experiment.algorithm.update
    used = {trait for trait, *_ in request.combinations()}
    traits = {name: trait.trained_like(local) for name, trait in request.traits.items() if name in used}
    known, seconds = dict[str, Traits](), dict[str, float]()
    with bars(console) as progress:
        survey = ClientSurvey(Watched(experiment.engine, progress), task.init(seed))
        counts = class_counts(survey, len(sizes))
        shown = chosen(request.clients, counts, source.class_names)  # a mistake is refused before anybody trains
        for together in by_training(traits):
            began = time.perf_counter()
            known |= learn_traits(together, survey, len(sizes), seed)
            seconds[", ".join(together)] = time.perf_counter() - began
        made = build(request, known, counts, sizes, seed, progress)
        alone = tuple(pretrained(epochs, survey, counts, local) for epochs in request.epochs)
    names = named_classes(source.class_names, counts.shape[1])
    commonest = [names[number] for number in counts.argmax(axis=1)]
    return Findings(
        source=source.name,
        sizes=sizes,
        class_names=source.class_names,
        clients_box=apart(counts),
        made=made,
        between=distances(traits, known, shown, commonest, request.client),
        pretrained=alone,
        described=seconds,
        missing={name: found.missing for name, found in known.items() if found.missing},
    )


def by_training(traits: Mapping[str, Trait]) -> list[dict[str, Trait]]:
    """Traits that take the same training at the client together, so that it is done once."""
    found: dict[object, dict[str, Trait]] = {}
    for name, trait in traits.items():
        training = (trait.epochs, trait.local) if isinstance(trait, ClassifierWeights | Confidence) else name
        found.setdefault(training, {})[name] = trait
    return list(found.values())


def learn_traits(traits: Mapping[str, Trait], survey: ClientSurvey, clients: int, seed: int) -> dict[str, Traits]:
    """What every client tells, by trait."""
    for trait in traits.values():
        trait.check(survey.task)
    parts = tuple(trait for trait in traits.values() if isinstance(trait, ClassifierWeights | Confidence))
    keys = [f"trait{number}" for number in range(len(parts))] or ["trait"]
    work = SeveralTraits(parts) if parts else next(iter(traits.values()))
    found = collect(survey(work), clients, keys, most=longest(survey.task))
    return {
        name: complete(trait, collected, survey.task.classes, seeds.rng(seed, "laboratory", name))
        for (name, trait), collected in zip(traits.items(), found, strict=True)
    }


def class_counts(survey: ClientSurvey, clients: int) -> Counts:
    """What every client has of each class (of each token of a text): the truth that groupings are measured by."""
    ClassHistogram().check(survey.task)
    (found,) = collect(survey(ClassHistogram()), clients, most=longest(survey.task))
    if found.rows is None or found.missing:
        raise RunFailed(f"not every client's classes can be counted: {reasons(found.missing)}")
    return found.rows.astype(np.int64)


def build(
    request: Request, known: Mapping[str, Traits], counts: Counts, sizes: Sequence[int], seed: int, progress: Progress
) -> tuple[Made, ...]:
    """Every combination, `repeats` times with other random numbers but the same traits."""
    combinations = request.combinations()
    bar = progress.add_task("grouping", total=len(combinations) * request.repeats, unit="groupings", said="")
    found = []
    for trait, grouper, distance, grouping in combinations:
        groupings, seconds = [], []
        for repeat in range(request.repeats):
            began = time.perf_counter()
            rng = seeds.rng(seed, "laboratory", trait, grouper, distance, repeat)
            groupings.append(
                grouping(known.get(trait, Traits(np.zeros((len(sizes), 0)), 0)), sizes, request.limits, rng)
            )
            seconds.append(time.perf_counter() - began)
            progress.advance(bar)
        # The fastest: the first k-means also waits for its library to be loaded.
        found.append(measured(trait, grouper, distance, groupings, counts, min(seconds)))
    return tuple(found)


def measured(trait: str, grouper: str, distance: str, groupings: list[Groups], counts: Counts, seconds: float) -> Made:
    """A grouping with its measures: means over the groups, and over the repeats."""
    by_group = [group_counts(counts, groups) for groups in groupings]
    boxes = [found for mixes in by_group if (found := apart(mixes)) is not None]
    return Made(
        trait,
        grouper,
        distance,
        number=float(np.mean([len(groups) for groups in groupings])),
        balance=float(np.mean([balance_ratio(mixes).mean() for mixes in by_group])),
        covered=float(np.mean([covered_classes(mixes).mean() for mixes in by_group])),
        apart=float(np.mean([box.median for box in boxes])) if boxes else None,
        apart_mean=float(np.mean([box.mean for box in boxes])) if boxes else None,
        box=boxes[0] if boxes else None,
        seconds=seconds,
        groups=groupings[0],
        counts=by_group[0],
    )


def apart(counts: Counts) -> Box | None:
    """How far the class mixes of two rows are apart (CPD; FedGSP 2022, Eq. 14); None if there are no two."""
    if len(counts) > MANY:
        counts = counts[seeds.rng(0, "laboratory", "rows").choice(len(counts), MANY, replace=False)]
    return Box.of(class_distances(counts)) if len(counts) > 1 else None


def pretrained(epochs: int, survey: ClientSurvey, counts: Counts, local: Work) -> Pretrained:
    """Let every client train alone, and compare the models (FedSeq 2022, Sections IV-B1 and IV-B2)."""
    work = ClassifierWeights("model", epochs=epochs).trained_like(local)
    (found,) = collect(survey(work), len(counts), most=longest(survey.task))
    kept = np.setdiff1d(np.arange(len(counts)), list(found.missing))
    if found.rows is None or len(kept) < 2:
        raise RunFailed(f"after {epochs} epochs alone there are no two models to compare: {reasons(found.missing)}")
    rows = found.rows[kept] if found.missing else found.rows
    alike = similarity(rows)
    # Inner products add up over the layers, so that the classifier need not be cut out of hundreds of models.
    products = sum((inner_products(rows[:, layer]) for layer in classifier(survey.task)), np.zeros(alike.shape))
    values = np.linalg.eigvalsh(products)[::-1].astype(np.float64)
    # Clients of the same class side by side, so that blocks show.
    order = np.lexsort((kept, counts[kept].argmax(axis=1)))
    return Pretrained(
        epochs,
        norm=float(np.linalg.norm(alike)),
        components=components(values, 0.9) / len(values),
        similarity=smaller(alike[np.ix_(order, order)]),
    )


def classifier(task: Task) -> list[slice]:
    """Where the weights of the linear layers are in a model's vector; all of it if it has none."""
    names = linear_layers(task.network(), "model")
    found = [slice(entry.start, entry.start + entry.size) for entry in task.layout.entries if entry.name in names]
    return found or [slice(0, task.layout.trainable)]


def smaller(matrix: Floats) -> Floats:
    """A picture of a large matrix: means of blocks."""
    edges = np.linspace(0, len(matrix), min(len(matrix), SIDE) + 1).round().astype(int)
    sums = np.add.reduceat(np.add.reduceat(matrix, edges[:-1], axis=0), edges[:-1], axis=1)
    result: Floats = sums / np.outer(np.diff(edges), np.diff(edges))
    return result
