"""Every method on a device: tiny runs, twice for the same bits, and near what the processor makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch

from fedrelay.algorithms import ALGORITHMS, method
from fedrelay.data import Federation
from fedrelay.data.partitions import Iid
from fedrelay.data.synthetic import synthetic
from fedrelay.engines import Inline, Stacked
from fedrelay.models import MODELS
from fedrelay.runs.loop import adapted, deployed, train
from fedrelay.studies.doctor.finding import Finding
from fedrelay.system import devices
from fedrelay.tasks import Task
from fedrelay.types import Engine
from fedrelay.visits import Sgd

ROUNDS, CLIENTS, EACH = 2, 6, 6
NEAR = 0.2
"""Another device rounds otherwise, and a few steps make more of it: so far apart may models be, in parts of the way
from an untrained one. Most are within a thousandth; in elmy rounding decides which way a model leaves itself: a tenth.
"""
LR, STILL = 0.05, 1e-30
"""A learning rate for few steps, and one that moves nothing."""
CONVOLUTIONS = "convolutions"
"""Besides the methods: a network with convolutions, which is what most GPUs are for."""
STACKED = "stacked"
"""And chains that advance together."""

Run = Callable[[str], torch.Tensor]
"""From a device to the model that comes out, in main memory."""


def checks() -> list[str]:
    """All that is tried."""
    return [*ALGORITHMS, CONVOLUTIONS, STACKED]


def findings(names: Iterable[str] | None = None) -> Iterator[Finding]:
    """Whether everything works on every device that there is; on a machine without any, that there is none."""
    names, others = list(names or checks()), devices.found()[1:]
    if not others:
        yield Finding("devices", "methods on a GPU", "not tried: torch sees none here")
    for device in others:
        failed = {name: why for name in names if (why := tried(name, device))}
        if failed:
            listed = "; ".join(f"{name}: {why}" for name, why in failed.items())
            remedy = 'these need device = "cpu"; the others work'
            yield Finding("devices", device, f"{len(failed)} of {len(names)} failed: {listed}", remedy, wrong=True)
        else:
            yield Finding("devices", device, f"all {len(names)} methods and networks passed")


def tried(name: str, device: str) -> str:
    """Why this does not work on a device; empty if it does."""
    run = run_of(name)
    try:
        once, again, expected, untrained = run(device), run(device), run("cpu"), run_of(name, lr=STILL)("cpu")
    except Exception as error:  # whatever goes wrong there is what we want to know
        return f"{type(error).__name__}: {error}"
    if not torch.equal(once, again):
        return "the same run gives other bits the second time"
    far = float(torch.linalg.vector_norm(once - expected) / torch.linalg.vector_norm(expected - untrained))
    return "" if far <= NEAR else f"the model ends {far:.2g} of its way from where the processor's does"


def run_of(name: str, lr: float = LR) -> Run:
    """What is run by this name."""
    if name == CONVOLUTIONS:
        return lambda device: trained("fedavg", lambda *at: Inline(*at, device=device), lr=lr, model="lenet5")
    if name == STACKED:
        return lambda device: trained("fedseq", lambda *at: Stacked(*at, device=device), lr=lr)
    return lambda device: trained(name, lambda *at: Inline(*at, device=device), lr=lr)


@cache
def clients() -> Federation:
    source = synthetic(examples=CLIENTS * EACH, test_examples=10, shape=(1, 16, 16), classes=4)
    return Federation.split(source, Iid(), CLIENTS)


def trained(
    name: str, engine: Callable[[Federation, Task, int], Engine], *, lr: float, model: str | None = None
) -> torch.Tensor:
    """What one would use after a few rounds of a method, as its row in the table of methods sets it for few clients."""
    row = ALGORITHMS[name]
    settings: dict[str, Any] = {"batch": 5, "momentum": 0.5, **row.local, "lr": lr}
    algorithm = method(row.recipe(**row.settings), local=Sgd(**settings), fraction=0.5)
    federation = clients().pooled() if algorithm.pooled else clients()
    made: Any = MODELS[model or row.model]
    task = adapted(algorithm, Task.of(made() if model else made(hidden=(8,)), federation))
    *_, state = train(algorithm, engine(federation, task, 1), rounds=algorithm.plan.rounds or ROUNDS)
    return torch.cat([vector.cpu() for vector in deployed(state, algorithm).vectors])
