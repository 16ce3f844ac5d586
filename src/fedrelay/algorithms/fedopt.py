"""FedAvg whose server makes more of the mean change than a step along it."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.merges import Adagrad, Adam, Momentum, Yogi


def fedavgm(*, server_lr: float = 1.0, momentum: float = 0.9) -> Change:
    """The server keeps momentum from round to round, which evens out who happened to be drawn.

    When rounds jump to and fro because few clients take part; clients keep nothing.

    Papers: momentum 0.9 (Reddi et al. 2021)

    Args:
        server_lr: the server's step.
        momentum: how much of the last round's step goes on; 0 (with server_lr 1) is FedAvg.

    Reference: [Hsu et al. 2019](https://arxiv.org/abs/1909.06335)
    """
    return Change(merge=Momentum(server_lr, momentum))


def fedadagrad(*, server_lr: float = 0.1, beta1: float = 0.0, tau: float = 1e-3) -> Change:
    """The server scales every number's step by the sum of its past squares.

    When gradients are sparse (words, rare classes); clients keep nothing.

    Papers: beta1 0, tau 1e-3, server_lr from a grid (Reddi et al. 2021)

    Args:
        server_lr: the server's step.
        beta1: the momentum.
        tau: how little a number must have moved to count as not moved.

    Reference: [Reddi et al. 2021](https://arxiv.org/abs/2003.00295), Alg. 2
    """
    return Change(merge=Adagrad(server_lr, beta1, tau))


def fedadam(*, server_lr: float = 0.01, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3) -> Change:
    """The server is Adam, without bias correction.

    When one server step fits badly to all layers; clients keep nothing, but the server's step must be tuned.

    Papers: beta1 0.9, beta2 0.99, tau 1e-3, server_lr from a grid (Reddi et al. 2021)

    Args:
        server_lr: the server's step.
        beta1, beta2: how long the moments remember.
        tau: how little a number must have moved to count as not moved.

    Reference: [Reddi et al. 2021](https://arxiv.org/abs/2003.00295), Alg. 2
    """
    return Change(merge=Adam(server_lr, beta1, beta2, tau))


def fedyogi(*, server_lr: float = 0.01, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3) -> Change:
    """As FedAdam, with a second moment that forgets more slowly.

    When FedAdam is unsteady.

    Papers: beta1 0.9, beta2 0.99, tau 1e-3, server_lr from a grid (Reddi et al. 2021)

    Args:
        server_lr: the server's step.
        beta1, beta2: how long the moments remember.
        tau: how little a number must have moved to count as not moved.

    Reference: [Reddi et al. 2021](https://arxiv.org/abs/2003.00295), Alg. 2
    """
    return Change(merge=Yogi(server_lr, beta1, beta2, tau))
