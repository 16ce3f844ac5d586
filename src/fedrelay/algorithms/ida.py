"""IDA: models far from the others count less."""

from __future__ import annotations

from typing import Literal

from fedrelay.algorithms.change import Change
from fedrelay.merges import InverseDistance


def ida(*, norm: Literal[1, 2] = 1, by_examples: bool = False) -> Change:
    """FedAvg whose weights are the inverse distances of the models from their mean.

    When some clients are noisy or very different, and those are not the ones that matter.

    Args:
        norm: which distance: L1 or L2.
        by_examples: whether the examples a model has seen count too.

    Reference: [Yeganeh et al. 2020](https://arxiv.org/abs/2008.07665)
    """
    return Change(merge=InverseDistance(norm, by_examples))
