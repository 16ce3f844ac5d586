"""Every method is a recipe: one file, one row in this table."""

from collections.abc import Callable

from fedrelay.algorithms.centralized import centralized
from fedrelay.algorithms.fedasyncseq import fedasyncseq
from fedrelay.algorithms.fedavg import fedavg
from fedrelay.algorithms.fedcyclic import fedcyclic
from fedrelay.algorithms.feddyn import feddyn
from fedrelay.algorithms.fedfusion import fedfusion
from fedrelay.algorithms.fedgsp import fedgsp, naivegsp, naivegsp_icg
from fedrelay.algorithms.fedmmd import fedmmd
from fedrelay.algorithms.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from fedrelay.algorithms.fedprox import fedprox
from fedrelay.algorithms.fedsam import fedsam
from fedrelay.algorithms.fedseq import fedseq
from fedrelay.algorithms.fedseq2par import fedseq2par
from fedrelay.algorithms.fedseqinter import fedseqinter
from fedrelay.algorithms.ida import ida
from fedrelay.algorithms.scaffold import scaffold
from fedrelay.types import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "centralized": centralized,
    "fedavg": fedavg,
    "fedcyclic": fedcyclic,
    "fedseq": fedseq,
    "fedseqinter": fedseqinter,
    "fedasyncseq": fedasyncseq,
    "fedseq2par": fedseq2par,
    "fedgsp": fedgsp,
    "naivegsp": naivegsp,
    "naivegsp_icg": naivegsp_icg,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "feddyn": feddyn,
    "fedsam": fedsam,
    "fedmmd": fedmmd,
    "fedfusion": fedfusion,
    "ida": ida,
    "fedavgm": fedavgm,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
}

__all__ = ["ALGORITHMS", *ALGORITHMS]
