"""How the batons that came back become the next ones."""

from __future__ import annotations

from collections.abc import Callable

from fedrelay.merges.every import Every
from fedrelay.merges.graphs import GRAPHS, Graph
from fedrelay.merges.mean import InverseDistance, Mean, PlainMean, WithAbsent, mean_change, mean_model, merged, moved
from fedrelay.merges.mixing import Mixing
from fedrelay.merges.optimisers import Adagrad, Adam, Momentum, Yogi
from fedrelay.merges.robust import Clipped, Krum, Median, TrimmedMean
from fedrelay.types import Merge

MERGES: dict[str, Callable[..., Merge]] = {
    "mean": Mean,
    "plain_mean": PlainMean,
    "with_absent": WithAbsent,
    "inverse_distance": InverseDistance,
    "momentum": Momentum,
    "adagrad": Adagrad,
    "adam": Adam,
    "yogi": Yogi,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "krum": Krum,
    "clipped": Clipped,
}
"""What `merge = {name = …}` chooses from, for every method whose own merge is the mean."""

__all__ = [
    "GRAPHS",
    "MERGES",
    "Adagrad",
    "Adam",
    "Clipped",
    "Every",
    "Graph",
    "InverseDistance",
    "Krum",
    "Mean",
    "Median",
    "Mixing",
    "Momentum",
    "PlainMean",
    "TrimmedMean",
    "WithAbsent",
    "Yogi",
    "mean_change",
    "mean_model",
    "merged",
    "moved",
]
