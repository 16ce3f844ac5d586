"""Sequential training: one model visits everybody once, and every client keeps its best epoch (Li et al. 2023)."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.plans import Order, Ring
from fedrelay.visits.optimisers import Adam

ONE_SHOT = Adam(batch=128, lr=5e-5, weight_decay=1e-4, keep="best", validation=0.1)
"""How clients train in FedELMY's experiments, all but how long: that is the user's to say (200 epochs there)."""


def sequential(*, order: Order = "random") -> Change:
    """One model visits all clients one after another, once; each sends on the epoch that is best on its own validation
    part. What FedELMY's paper calls FedSeq.

    When a job can run only once at every client: the plain way, and the reference for fedelmy. `[local] epochs` says
    how long every client trains.

    Papers: epochs 100 or 200, Adam, lr 5e-5 (FedELMY 2024)

    Args:
        order: "random", a new one every round; "given", as clients are numbered; "by_size", large ones first;
            "by_domain", every domain in turn; or a list of all clients (or domains), by number or name.

    Reference: [Li & Lyu 2023](https://arxiv.org/abs/2311.03154), Alg. 1; [Wang et al. 2024](https://arxiv.org/abs/2404.12130)
    """
    return Change(plan=Ring(order=order, least=2), fraction=1.0, rounds=1, local=ONE_SHOT, serverless=True)
