"""Samplers: which clients (or groups) head the chains of a round, and with which weight."""

from collections.abc import Callable

from fedrelay.plans.sampling.basic import BySize, Full, Multinomial, Original, Subset, Uniform
from fedrelay.plans.sampling.sampler import (
    Distributions,
    Draw,
    Drawn,
    Sampler,
    Usually,
    check,
    check_fraction,
    draw,
    share,
    taking_part,
    weight_variance,
)
from fedrelay.plans.sampling.similarity import BySimilarity
from fedrelay.plans.sampling.target import Census, Target
from fedrelay.plans.sampling.urns import Urn, Urns, by_clusters, by_size, multinomial

SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "uniform": Uniform,
    "original": Original,
    "full": Full,
    "md": Multinomial,
    "by_size": BySize,
    "by_similarity": BySimilarity,
    "target": Target,
}

__all__ = [
    "SAMPLERS",
    "BySimilarity",
    "BySize",
    "Census",
    "Distributions",
    "Draw",
    "Drawn",
    "Full",
    "Multinomial",
    "Original",
    "Sampler",
    "Subset",
    "Target",
    "Uniform",
    "Urn",
    "Urns",
    "Usually",
    "by_clusters",
    "by_size",
    "check",
    "check_fraction",
    "draw",
    "multinomial",
    "share",
    "taking_part",
    "weight_variance",
]
