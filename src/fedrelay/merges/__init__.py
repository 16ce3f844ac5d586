"""How the batons that came back become the next ones."""

from __future__ import annotations

from collections.abc import Callable

from fedrelay.merges.centres import CentredClipping, GeometricMedian
from fedrelay.merges.every import Every
from fedrelay.merges.graphs import GRAPHS, Graph
from fedrelay.merges.mean import InverseDistance, Mean, PlainMean, WithAbsent, mean_change, mean_model, merged, moved
from fedrelay.merges.mixed import Bucketing, NearestNeighbours
from fedrelay.merges.mixing import Mixing
from fedrelay.merges.optimisers import Adagrad, Adam, Momentum, Yogi
from fedrelay.merges.robust import Clipped, Krum, Median, TrimmedMean
from fedrelay.merges.spectral import DivideAndConquer
from fedrelay.merges.trust import Trust
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
    "geometric_median": GeometricMedian,
    "centred_clipping": CentredClipping,
    "bucketing": Bucketing,
    "nearest_neighbours": NearestNeighbours,
    "dnc": DivideAndConquer,
    "trust": Trust,
}
"""What `merge = {name = …}` chooses from, for every method whose own merge is the mean."""

__all__ = [
    "GRAPHS",
    "MERGES",
    "Adagrad",
    "Adam",
    "Bucketing",
    "CentredClipping",
    "Clipped",
    "DivideAndConquer",
    "Every",
    "GeometricMedian",
    "Graph",
    "InverseDistance",
    "Krum",
    "Mean",
    "Median",
    "Mixing",
    "Momentum",
    "NearestNeighbours",
    "PlainMean",
    "TrimmedMean",
    "Trust",
    "WithAbsent",
    "Yogi",
    "mean_change",
    "mean_model",
    "merged",
    "moved",
]
