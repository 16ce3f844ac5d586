"""Every method is a recipe: one file, one row in this table."""

from collections.abc import Callable

from fedrelay.algorithms.centralized import centralized
from fedrelay.algorithms.fedavg import fedavg
from fedrelay.algorithms.fedcyclic import fedcyclic
from fedrelay.algorithms.fedseq import fedseq
from fedrelay.types import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "centralized": centralized,
    "fedavg": fedavg,
    "fedcyclic": fedcyclic,
    "fedseq": fedseq,
}

__all__ = ["ALGORITHMS", *ALGORITHMS]
