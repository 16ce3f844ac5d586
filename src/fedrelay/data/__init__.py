"""Data sets, and how they become clients."""

from __future__ import annotations

from collections.abc import Callable

from fedrelay.data import own, sources
from fedrelay.data.access import PerExample
from fedrelay.data.augment import Augment, Normalise
from fedrelay.data.embedded import diabetes, digits
from fedrelay.data.examples import Examples, Store, Transform
from fedrelay.data.federation import ClientData, Federation, Partition, Rows, Source
from fedrelay.data.heterogeneity import describe
from fedrelay.data.holdout import hold_out, matched_tests, owned_tests, thinned, with_validation
from fedrelay.data.own import from_arrays, from_datasets, from_folder, from_frames, from_loaders, from_table
from fedrelay.data.partitions import (
    PARTITIONS,
    Dirichlet,
    DirichletClients,
    Domains,
    Iid,
    Natural,
    OneClass,
    Quantiles,
    QuantitySkew,
    Shards,
)
from fedrelay.data.picture import heatmap, rendered
from fedrelay.data.splitfile import load_split, save_split
from fedrelay.data.synthetic import optimum, quadratic, quadratic_of, synthetic
from fedrelay.data.weights import class_weights

SOURCES: dict[str, Callable[..., Source]] = {
    "digits": digits,
    "diabetes": diabetes,
    "synthetic": synthetic,
    "quadratic": quadratic,
}

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "Augment",
    "ClientData",
    "Dirichlet",
    "DirichletClients",
    "Domains",
    "Examples",
    "Federation",
    "Iid",
    "Natural",
    "Normalise",
    "OneClass",
    "Partition",
    "PerExample",
    "Quantiles",
    "QuantitySkew",
    "Rows",
    "Shards",
    "Source",
    "Store",
    "Transform",
    "class_weights",
    "describe",
    "diabetes",
    "digits",
    "from_arrays",
    "from_datasets",
    "from_folder",
    "from_frames",
    "from_loaders",
    "from_table",
    "heatmap",
    "hold_out",
    "load_split",
    "matched_tests",
    "optimum",
    "own",
    "owned_tests",
    "quadratic",
    "quadratic_of",
    "rendered",
    "save_split",
    "sources",
    "synthetic",
    "thinned",
    "with_validation",
]
