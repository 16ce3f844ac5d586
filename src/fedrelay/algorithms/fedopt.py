"""FedAvg whose server makes more of the mean change than a step along it (Reddi et al. 2021; Hsu et al. 2019)."""

from __future__ import annotations

from dataclasses import replace

from fedrelay.algorithms.fedavg import fedavg
from fedrelay.merges import Adagrad, Adam, Momentum, Yogi
from fedrelay.types import Algorithm
from fedrelay.visits.sgd import Sgd


def fedavgm(*, local: Sgd = Sgd(), fraction: float = 0.2, server_lr: float = 1.0, momentum: float = 0.9) -> Algorithm:
    """The server keeps momentum from round to round, which evens out who happened to be drawn.

    When rounds jump to and fro because few clients take part; clients keep nothing.
    """
    return replace(fedavg(local=local, fraction=fraction), merge=Momentum(server_lr, momentum))


def fedadagrad(
    *, local: Sgd = Sgd(), fraction: float = 0.2, server_lr: float = 0.1, beta1: float = 0.0, tau: float = 1e-3
) -> Algorithm:
    """The server scales every number's step by the sum of its past squares.

    When gradients are sparse (words, rare classes); clients keep nothing.
    """
    return replace(fedavg(local=local, fraction=fraction), merge=Adagrad(server_lr, beta1, tau))


def fedadam(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.2,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
) -> Algorithm:
    """The server is Adam, without bias correction.

    When one server step fits badly to all layers; clients keep nothing, but the server's step must be tuned.
    """
    return replace(fedavg(local=local, fraction=fraction), merge=Adam(server_lr, beta1, beta2, tau))


def fedyogi(
    *,
    local: Sgd = Sgd(),
    fraction: float = 0.2,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
) -> Algorithm:
    """As FedAdam, with a second moment that forgets more slowly.

    Where FedAdam is unsteady.
    """
    return replace(fedavg(local=local, fraction=fraction), merge=Yogi(server_lr, beta1, beta2, tau))
