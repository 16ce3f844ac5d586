"""FedAvg: chains of one."""

from __future__ import annotations

from fedrelay.algorithms.change import Change


def fedavg() -> Change:
    """A fraction of the clients train alone; their models are averaged by examples.

    When clients are alike, and first of all: nothing is cheaper, and everything is compared with it.

    Reference: [McMahan et al. 2017](https://arxiv.org/abs/1602.05629)
    """
    return Change()
