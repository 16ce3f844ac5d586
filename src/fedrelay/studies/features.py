"""Where a trained model puts the test examples: its features drawn in the plane, by class and by client (t-SNE).

The plane keeps neighbours together and little else: how far apart groups are, and how large, means nothing in it. So a
figure goes with it that is reckoned on the features themselves: how often the nearest example is of the same class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from threadpoolctl import threadpool_limits

from fedrelay import config, seeds
from fedrelay.config.federation import DATA, federate
from fedrelay.data.federation import Federation
from fedrelay.data.holdout import own_tests
from fedrelay.errors import BadInput, within
from fedrelay.models import Network
from fedrelay.report.measures import labels, percent
from fedrelay.report.progress import bars
from fedrelay.report.scatter import Cloud, cloud_figure, clouds_svg
from fedrelay.report.sheet import Column, sheet
from fedrelay.runs.folder import CONFIG, load, read_config
from fedrelay.runs.output import Trained
from fedrelay.studies.loading import load_trained
from fedrelay.system import files
from fedrelay.system.console import PlainConsole
from fedrelay.tasks import EVALUATION_BATCH

POINTS = 1000
"""So many examples are drawn, if there are more: enough to see groups, few enough to take seconds."""
FEWEST = 5
PERPLEXITY = 30.0

ALL = "all classes"
CAPTION = "Every point is a test example of the colour's class or client; neighbours have similar features."

Numbers = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Placed:
    """Test examples of one run in the plane, with what is known of each."""

    name: str
    places: Floats
    """(points, 2)"""
    labels: Numbers
    class_names: tuple[str, ...]
    right: NDArray[np.bool_]
    """Whether the model gets it right."""
    alike: NDArray[np.bool_]
    """Whether the example with the nearest features is of the same class."""
    clients: Numbers | None
    """Whose example it is, where clients have test examples of their own."""
    client_names: tuple[str, ...]
    of: int
    """How many test examples there are in all."""


def place(
    folder: Path | str,
    *,
    points: int = POINTS,
    perplexity: float = PERPLEXITY,
    seed: int = 0,
    client: str | None = None,
    data_dir: Path | None = None,
) -> Placed:
    """The test examples of the finished run in this folder (at most `points` of them, drawn by the seed), where t-SNE
    puts their features. `client` is one whose own model is asked, where clients have some."""
    within("points", points, least=FEWEST)
    within("perplexity", perplexity, above=0)
    trained, folder = load_trained(folder), Path(folder)
    network = featured(trained, client)
    federation = federation_of(folder, data_dir)
    rows, owners, names = tested_rows(federation)
    if not federation.test.classified or not trained.tells_classes:
        raise BadInput(f"the examples of {folder} do not have one class each, so features cannot be drawn by class")
    if len(rows) < FEWEST:
        raise BadInput(f"{folder} has {len(rows)} test examples: at least {FEWEST} are needed to draw their features")
    chosen = np.sort(seeds.rng(seed, "features").permutation(len(rows))[:points])
    features, answers = looked_at(network, federation, rows[chosen])
    check(features, folder)
    labels = federation.test.labels[rows[chosen]]
    return Placed(
        folder.name,
        in_the_plane(features, perplexity, seed),
        labels,
        trained.class_names,
        answers == labels,
        labels[nearest(features)] == labels,
        None if owners is None else owners[chosen],
        names,
        len(rows),
    )


def featured(trained: Trained, client: str | None) -> Network:
    """The network, if it has features to look at."""
    kind = trained.facts["predicts"]
    if client is None and kind not in ("one model", "one model per client"):
        raise BadInput(
            f"{trained.folder} predicts by several models ({kind}), which have no features in common to draw"
        )
    network = trained.network(client=client)
    if not isinstance(network, Network):
        raise BadInput(
            f"the model of {trained.folder} has no features to draw, because {type(network).__name__} has no body and "
            "head: mlp, lenet5 and the other networks here have"
        )
    return network


def federation_of(folder: Path, data_dir: Path | None) -> Federation:
    """The clients and test examples of the run, as its configuration has them."""
    tables = read_config(folder / CONFIG)
    section = config.section_of(tables, "data")
    if section.get("name") not in DATA:
        raise BadInput(
            f"the run in {folder} was made in Python, and its data is not in the folder: only runs of a configuration "
            "(fedrelay run, compare, tune) can be drawn"
        )
    return federate(section, int(tables.get("seed", 0)), data_dir)[0]


def tested_rows(federation: Federation) -> tuple[Numbers, Numbers | None, tuple[str, ...]]:
    """The rows of the test set that the run was tested on, whose they are, and the names of clients."""
    parts = own_tests(federation)
    if parts is None or parts.test_order is None or parts.test_starts is None:
        return np.arange(len(federation.test)), None, ()
    owners = np.repeat(np.arange(len(parts), dtype=np.int64), np.diff(parts.test_starts.numpy()))
    return parts.test_order.numpy().astype(np.int64, copy=False), owners, tuple(parts.names)


@torch.no_grad()
def looked_at(network: Network, federation: Federation, rows: Numbers) -> tuple[Floats, Numbers]:
    """The features of these test examples, and the class the model takes each for."""
    features, answers = [], []
    for x, _ in federation.test.picked(torch.from_numpy(rows)).batches(EVALUATION_BATCH):
        found = network.body(x)
        features.append(found.flatten(1).float())
        answers.append(network.head(found).argmax(-1))
    return torch.cat(features).numpy(), torch.cat(answers).numpy()


def check(features: Floats, folder: Path) -> None:
    """Refuse features that cannot be drawn."""
    if not np.isfinite(features).all():
        raise BadInput(f"some features of the model of {folder} are not finite: its training has diverged")
    if (features == features[0]).all():
        raise BadInput(
            f"all test examples have the same features under the model of {folder}: there is nothing to draw"
        )


def nearest(features: Floats) -> Numbers:
    """For every example the one with the nearest features."""
    from sklearn.neighbors import NearestNeighbors

    with threadpool_limits(1):
        found = NearestNeighbors(n_neighbors=1).fit(features).kneighbors(return_distance=False)
    places: Numbers = found[:, 0]
    return places


def in_the_plane(features: Floats, perplexity: float, seed: int) -> Floats:
    """t-SNE (van der Maaten and Hinton 2008) of these rows; the same for the same seed, whatever the number of cores.

    The perplexity is how many neighbours count; among few examples it is at most a third of them.
    """
    from sklearn.manifold import TSNE  # here, because importing it takes a second

    most = max((len(features) - 1) / 3, 1.0)
    start = "pca" if features.shape[1] > 1 else "random"
    with threadpool_limits(1):  # sums over threads come out in another order
        model = TSNE(perplexity=min(perplexity, most), init=start, random_state=seed % 2**32)
        found: Floats = model.fit_transform(features).astype(np.float32)
    return found


# --- the page and the picture


def draw(
    folders: Sequence[Path],
    out: Path,
    *,
    force: bool = False,
    points: int = POINTS,
    perplexity: float = PERPLEXITY,
    seed: int = 0,
    client: str | None = None,
    data_dir: Path | None = None,
    live: Console | None = None,
) -> list[Placed]:
    """A page (.html) or a picture (.svg) of the features of these runs; a file that is there is not overwritten."""
    if out.suffix.lower() not in WRITERS:
        raise BadInput(f"{out} does not say what to write: give a name that ends in {' or '.join(WRITERS)}")
    if out.is_dir() or (out.exists() and not force):
        what = "is a folder: name another --out" if out.is_dir() else "is there already: --force overwrites it"
        raise BadInput(f"{out} {what}; nothing was written")
    several = list({folder.resolve(): folder for folder in folders}.values())
    placed = []
    with bars(live or PlainConsole(stderr=True, quiet=True)) as progress:
        bar = progress.add_task("features", total=len(several), unit="runs", said="t-SNE")
        for folder in several:
            found = place(folder, points=points, perplexity=perplexity, seed=seed, client=client, data_dir=data_dir)
            placed.append(found)
            progress.advance(bar)
    placed = [replace(one, name=name) for one, name in zip(placed, names_of(several), strict=True)]
    content = WRITERS[out.suffix.lower()](placed).encode(errors="replace")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        files.write(out, content)
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}): name another --out") from None
    return placed


def names_of(folders: Sequence[Path]) -> list[str]:
    return labels([load(folder) for folder in folders])


def clouds(one: Placed) -> list[Cloud]:
    """By class, and by client where that is known."""
    found = [Cloud(f"{one.name}: by class", one.places, one.labels, one.class_names)]
    if one.clients is not None:
        found.append(Cloud(f"{one.name}: by client", one.places, one.clients, one.client_names))
    return found


def page(placed: Sequence[Placed]) -> str:
    """Pictures, and how often the nearest example is of the same class."""
    drawn = [cloud for one in placed for cloud in clouds(one)]
    figures = [cloud_figure(f"cloud{number}", cloud, CAPTION) for number, cloud in enumerate(drawn)]
    rows = shown_classes(placed)
    columns = [column for one in placed for column in columns_of(one, rows, several=len(placed) > 1)]
    notes = [f"{one.name}: {len(one.labels)} of {one.of} test examples." for one in placed]
    notes.append(
        "Right: what the model predicts. Nearest of the same class: of the examples with the nearest features, on the "
        "features themselves, not in the plane. How far groups are apart in the plane means little."
    )
    best = max(placed, key=lambda one: float(one.alike.mean()))
    whose = f"{best.name}: the" if len(placed) > 1 else "The"
    told = f"{whose} nearest features are of the same class for {percent(float(best.alike.mean()))} of the examples"
    return sheet("features", told, notes, rows, columns, figures, what="Class", pictures_first=True)


def picture(placed: Sequence[Placed]) -> str:
    return clouds_svg([cloud for one in placed for cloud in clouds(one)])


def shown_classes(placed: Sequence[Placed]) -> list[str]:
    """All together, then class by class: those that have points."""
    return [ALL, *dict.fromkeys(one.class_names[label] for one in placed for label in np.unique(one.labels))]


def columns_of(one: Placed, rows: Sequence[str], *, several: bool) -> list[Column]:
    """How many points of every class one run has, how many are right, how many have a neighbour of their class."""
    place = {name: number for number, name in enumerate(one.class_names)}
    mine = [np.full(len(one.labels), True) if name == ALL else one.labels == place.get(name, -1) for name in rows]

    def shares(flags: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(percent(float(flags[each].mean()) if each.any() else None) for each in mine)

    whose = f"{one.name}: " if several else ""
    return [
        Column(f"{whose}points", tuple(str(each.sum()) for each in mine)),
        Column(f"{whose}right", shares(one.right)),
        Column(f"{whose}nearest of the same class", shares(one.alike)),
    ]


WRITERS: dict[str, Callable[[Sequence[Placed]], str]] = {".html": page, ".svg": picture}
