"""The reference that federated methods are measured against: all data in one place."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.plans import Ring


def centralized() -> Change:
    """Ordinary training on the pooled data; a round is one visit to all of it. The upper reference, not federated.

    When you need the bound that no federated method passes: its accuracy is the target of the others. As the papers
    train it: `[local] momentum = 0.9`, `carry_momentum = true`, and the schedule `cosine` over 300 rounds of one epoch.

    Reference: [McMahan et al. 2017](https://arxiv.org/abs/1602.05629), Section 3 (SGD on the whole training set)
    """
    return Change(plan=Ring(), pooled=True, fraction=1.0)
