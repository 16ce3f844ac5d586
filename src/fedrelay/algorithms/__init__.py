"""Every method is a recipe that says what it changes of FedAvg: one file, one row in this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrelay.algorithms.centralized import centralized
from fedrelay.algorithms.change import Change, method
from fedrelay.algorithms.dense import dense
from fedrelay.algorithms.dfedavgm import dfedavgm
from fedrelay.algorithms.dfedsam import dfedsam
from fedrelay.algorithms.fedasyncseq import fedasyncseq
from fedrelay.algorithms.fedavg import fedavg
from fedrelay.algorithms.fedbn import fedbn
from fedrelay.algorithms.fedcyclic import fedcyclic
from fedrelay.algorithms.feddyn import feddyn
from fedrelay.algorithms.fedelmy import elmy, fedelmy
from fedrelay.algorithms.fedfusion import fedfusion
from fedrelay.algorithms.fedgsp import fedgsp, naivegsp, naivegsp_icg
from fedrelay.algorithms.fedmmd import fedmmd
from fedrelay.algorithms.fednova import fednova
from fedrelay.algorithms.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from fedrelay.algorithms.fedov import fedov
from fedrelay.algorithms.fedper import fedper
from fedrelay.algorithms.fedprox import fedprox
from fedrelay.algorithms.fedrep import fedrep
from fedrelay.algorithms.fedsam import fedsam
from fedrelay.algorithms.fedseq import fedseq
from fedrelay.algorithms.fedseq2par import fedseq2par
from fedrelay.algorithms.fedseqinter import fedseqinter
from fedrelay.algorithms.ida import ida
from fedrelay.algorithms.maecho import maecho
from fedrelay.algorithms.metafed import metafed
from fedrelay.algorithms.moon import moon
from fedrelay.algorithms.scaffold import scaffold
from fedrelay.algorithms.sequential import sequential
from fedrelay.merges.graphs import Circle
from fedrelay.plans.growth import Fixed


@dataclass(frozen=True)
class Rest:
    """How near to their optimum a method brings clients that all want the same (a law that is tested)."""

    rounds: int = 40
    precision: float = 1e-5
    fraction: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A row: the recipe, and what tests that run over the whole table must know of it."""

    recipe: Callable[..., Change]
    is_fedavg: Mapping[str, Any] | None = None
    """Settings with which it is FedAvg, where there are some (a law that is tested)."""
    needs_features: bool = False
    """Whether it only takes models with a body and a head."""
    needs_classes: bool = False
    """Whether it only takes data with classes."""
    adds_to_model: bool = False
    """Whether the trained model has parts that the user's does not have."""
    local: Mapping[str, Any] = field(default_factory=dict)
    """What it needs of the local training."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What a test with a few clients must set so that the method does what it is for."""
    rest: Rest = Rest()
    model: str = "mlp"
    """A model, of the table of models, that has what it needs."""


EVERYBODY = Fixed(10**6)  # plans have no more groups than clients

ALGORITHMS: dict[str, Method] = {
    "centralized": Method(centralized),
    "fedavg": Method(fedavg, is_fedavg={}),
    "fedcyclic": Method(fedcyclic),
    "sequential": Method(sequential),
    "metafed": Method(metafed, needs_features=True, settings={"preparation": 2}, local={"validation": 0.2}),
    "fedelmy": Method(fedelmy),
    "elmy": Method(elmy),
    "fedseq": Method(fedseq, is_fedavg={"max_clients": 1}, settings={"max_clients": 3}),
    "fedseqinter": Method(fedseqinter, is_fedavg={"max_clients": 1, "period": 1}, settings={"max_clients": 3}),
    "fedasyncseq": Method(fedasyncseq, is_fedavg={"max_clients": 1, "period": 1}, settings={"max_clients": 3}),
    "fedseq2par": Method(fedseq2par, is_fedavg={"growth": EVERYBODY}),
    "fedgsp": Method(fedgsp, is_fedavg={"growth": EVERYBODY, "equal": False}, needs_classes=True),
    "naivegsp": Method(naivegsp, settings={"groups": 4}),
    "naivegsp_icg": Method(naivegsp_icg, settings={"groups": 4}, needs_classes=True),
    "fedprox": Method(fedprox, is_fedavg={"mu": 0.0}),
    "scaffold": Method(scaffold, rest=Rest(fraction=1.0)),
    "feddyn": Method(feddyn, rest=Rest(60, fraction=1.0, settings={"alpha": 2.0})),
    # The gradient is taken this far from the optimum.
    "fedsam": Method(fedsam, is_fedavg={"rho": 0.0}, rest=Rest(precision=0.01, settings={"rho": 0.01})),
    "moon": Method(moon, is_fedavg={"mu": 0.0}, needs_features=True),
    "fedmmd": Method(fedmmd, is_fedavg={"weight": 0.0}, needs_features=True),
    "fedfusion": Method(fedfusion, needs_features=True, adds_to_model=True),
    "fedbn": Method(fedbn, model="mlp_norm"),
    "fedper": Method(fedper, needs_features=True),
    "fedrep": Method(fedrep, needs_features=True),
    "fednova": Method(fednova),
    "ida": Method(ida),
    "fedavgm": Method(fedavgm, is_fedavg={"momentum": 0.0}, rest=Rest(settings={"momentum": 0.3})),
    "fedadagrad": Method(fedadagrad, rest=Rest(settings={"server_lr": 1.0})),
    # Their steps do not get shorter of themselves.
    "fedadam": Method(fedadam, rest=Rest(100, 0.02, settings={"server_lr": 0.1})),
    "fedyogi": Method(fedyogi, rest=Rest(100, 0.02, settings={"server_lr": 0.1})),
    "maecho": Method(maecho),
    "dfedavgm": Method(dfedavgm, settings={"graph": Circle()}, rest=Rest(settings={"momentum": 0.5})),
    # As fedsam.
    "dfedsam": Method(dfedsam, settings={"graph": Circle()}, rest=Rest(precision=0.01, settings={"rho": 0.01})),
    "fedov": Method(fedov, needs_features=True, adds_to_model=True),
    "dense": Method(dense, needs_classes=True, settings={"steps": 2, "batch": 8, "threads": 1}),
}
"""All methods by name."""

__all__ = [
    "ALGORITHMS",
    "Change",
    "Method",
    "Rest",
    "centralized",
    "dense",
    "dfedavgm",
    "dfedsam",
    "elmy",
    "fedadagrad",
    "fedadam",
    "fedasyncseq",
    "fedavg",
    "fedavgm",
    "fedbn",
    "fedcyclic",
    "feddyn",
    "fedelmy",
    "fedfusion",
    "fedgsp",
    "fedmmd",
    "fednova",
    "fedov",
    "fedper",
    "fedprox",
    "fedrep",
    "fedsam",
    "fedseq",
    "fedseq2par",
    "fedseqinter",
    "fedyogi",
    "ida",
    "maecho",
    "metafed",
    "method",
    "moon",
    "naivegsp",
    "naivegsp_icg",
    "scaffold",
    "sequential",
]
