"""FedELMY: one pass over the clients, each of which trains a pool of unlike models and sends on their mean (2024)."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.algorithms.decentralised import decentralised
from fedrelay.algorithms.sequential import ONE_SHOT
from fedrelay.errors import within
from fedrelay.merges import Mixing
from fedrelay.plans import Order, Ring
from fedrelay.visits.diversity import Apart, Diversity, Scaling
from fedrelay.visits.model_pool import Pooling


def fedelmy(
    *,
    models: int = 5,
    warm_up: int = 30,
    alpha: float = 0.06,
    beta: float = 1.0,
    apart: Apart = "norm",
    scaling: Scaling = "each",
    order: Order = "random",
    shots: int = 1,
    parallel: bool = False,
    distances: bool = False,
) -> Change:
    """One pass over all clients: each trains several models, all unlike one another and none far from what it received,
    and sends on their mean.

    `[local] epochs` says how long every model trains.

    When a job can run only once, or a few times, at every client: more from one pass, for `models` times the work.

    Papers: models 5 (CIFAR-10), 10 (PACS, Office-Caltech-10), 3 (Tiny-ImageNet); warm_up 30 or 20; alpha 0.06, 1, 0.001
    or 1; beta 1, 1, 0.001 or 1; epochs 100 or 200 (FedELMY 2024)

    Args:
        models: how many every client trains, besides the one it received.
        warm_up: epochs that the first client trains the initial model for, before its pool, in the first round.
        alpha: how strongly models of a pool are driven apart (d1); 0 leaves it out.
        beta: how strongly they are held near the model received (d2); 0 leaves it out.
        apart: how far two models are from one another: the length of their difference ("norm"), its square, the sum of
            absolute values ("l1"), or one minus the cosine of their angle.
        scaling: distances are brought an order of magnitude below the loss of the batch: "each" by itself, both by the
            factor of d2 as in the published code ("published"), or not at all ("off").
        order: "random", a new one every round; "given", as clients are numbered; "by_size", large ones first;
            "by_domain", every domain in turn; or a list of all clients (or domains), by number or name.
        shots: passes over all clients: the rounds of the run, unless `rounds` says another number.
        parallel: every client trains its pool from a random model of its own at the same time, and the mean of all
            counts; there is no order then.
        distances: every client also tells how far the models of its pool are from one another (Fig. 10): one number
            for every two of them, of which the last client's go into the record.

    Reference: [Wang et al. 2024](https://arxiv.org/abs/2404.12130), Algs. 1-3
    """
    pool = elmy(
        models=models,
        warm_up=warm_up,
        alpha=alpha,
        beta=beta,
        apart=apart,
        scaling=scaling,
        own=parallel,
        distances=distances,
    )
    within("shots", shots, least=1)
    once = Change(fraction=1.0, rounds=shots, local=ONE_SHOT)
    if parallel:
        return pool + once + decentralised(Mixing(), "mean")
    return pool + once + Change(plan=Ring(order=order, least=2), serverless=True)


def elmy(
    *,
    models: int = 5,
    warm_up: int = 0,
    alpha: float = 0.06,
    beta: float = 1.0,
    apart: Apart = "norm",
    scaling: Scaling = "each",
    own: bool = False,
    distances: bool = False,
) -> Change:
    """Every visit trains a pool of models, unlike one another and near what was received, and sends on their mean: what
    FedELMY does at a client, for any plan.

    When visits are few and may be long: `fedseq+elmy` has pools along the chains of groups.

    Papers: models 5, alpha 0.06, beta 1 (FedELMY 2024, CIFAR-10)

    Args:
        models: how many every client trains, besides the one it received.
        warm_up: epochs that the first client of a chain trains the initial model for, before its pool.
        alpha, beta, apart, scaling: see `fedelmy`.
        own: whether everybody begins the run with a random model of its own.
        distances: see `fedelmy`.

    Reference: [Wang et al. 2024](https://arxiv.org/abs/2404.12130), Section 3
    """
    return Change(terms=(Diversity(alpha, beta, apart, scaling),), pooling=Pooling(models, warm_up, own, distances))
