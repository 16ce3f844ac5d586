"""Curves of what the model is worth on all clients' own examples, and how unlike clients are in it (clustered sampling
2021, Figs. 1 and 2)."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.report import measures
from fedrelay.report.figures import ROUNDS, Figure, Measure, lines
from fedrelay.runs.folder import Run
from fedrelay.tasks import Headline

CAPTIONS = {
    "train_loss": "The mean over all training examples of all clients: what training makes small.",
    "train": "The mean over all training examples of all clients.",
    "test": "The mean over the test parts of all clients, by their examples.",
    "deviation": "The standard deviation over clients, each counted once.",
}


def curves(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
    """One picture for every figure that some run has over clients, the global training loss first."""
    keys = dict.fromkeys(key for run in runs for log in run.rounds for key in log.over_clients)
    by, found = measures.headline(runs), []
    for key in keys:
        measure = measure_of(key, by)
        if not measures.once(runs, measure.of):  # a curve of one point is no curve
            spec = lines(runs, names, measure, ROUNDS)
            found.append(Figure(f"clients_{key}", measure.title, caption(key), spec, measure=measure))
    return found


def measure_of(key: str, by: Headline) -> Measure:
    """What is drawn of it; a share of the headline in percent."""
    percent = by.share and key.split("_", 1)[1].removesuffix("_deviation") == by.name
    hover, factor = ("%{y:.1f} %", 100) if percent else ("%{y:.4~g}", 1)
    return Measure(lambda log: log.over_clients.get(key), title_of(key) + (" (%)" if percent else ""), hover, factor)


def title_of(key: str) -> str:
    """Such as: Test accuracy of clients, deviation."""
    if key == "train_loss":
        return "Global training loss"
    part, _, name = key.partition("_")
    words = f"{'Training' if part == 'train' else 'Test'} {measures.words(name.removesuffix('_deviation'))} of clients"
    return f"{words}, deviation" if key.endswith("_deviation") else words


def caption(key: str) -> str:
    return CAPTIONS.get(key) or CAPTIONS["deviation" if key.endswith("_deviation") else key.partition("_")[0]]
