"""Testing what a run has so far: one model, or those of the clients, as the method says; centrally, or on what every
client has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedrelay.data.examples import Store
from fedrelay.data.federation import ClientData, Federation
from fedrelay.data.holdout import own_tests
from fedrelay.system.devices import deterministic
from fedrelay.tasks import EVALUATION_BATCH, OneModel, PerClient, Predictor, Workspaces, evaluate, evaluate_clients
from fedrelay.tasks.predictors import Outputs
from fedrelay.types import Vector


def figures_of(
    predictor: Predictor, test: Store, workspaces: Workspaces, federation: Federation | None = None
) -> dict[str, float]:
    """The figures of what is tested; of what is tested beside it, under names that say what it is of."""
    if not isinstance(predictor, PerClient) or not predictor.own:
        return evaluate(predictor, test, workspaces)
    found = clients_tested(predictor, test, workspaces, federation)
    if not predictor.beside:
        return found
    other = replace(predictor, tested="own" if predictor.tested == "common" else "common")
    more = clients_tested(other, test, workspaces, federation)
    name = "personal" if other.tested == "own" else "common"
    return found | {f"{name}_{key}": value for key, value in more.items()}


def clients_tested(
    predictor: PerClient, test: Store, workspaces: Workspaces, federation: Federation | None
) -> dict[str, float]:
    """Everybody's own model on the client's test part; where there is none, or that is wanted, those of some clients on
    the whole test set; or the model that they have in common."""
    if predictor.tested == "common":
        return evaluate(OneModel(predictor.common), test, workspaces)
    if predictor.tested == "each" or federation is None or federation.test_order is None:
        return evaluate_clients(predictor, ((client, test) for client in predictor.some), workspaces)
    rows = ((client, federation.client_test(client).rows) for client in range(len(federation)))
    test = federation.test.on(workspaces.device)
    parts = ((client, test.picked(own)) for client, own in rows if len(own))
    return evaluate_clients(predictor, parts, workspaces)


# --- client by client


def over_clients(
    predictor: Predictor, federation: Federation, workspaces: Workspaces, *, tested: bool = True
) -> dict[str, float]:
    """What is learned, on the training examples of all clients (`train_…`), and, if that is wanted, on the test parts
    of those that have some (`test_…`): loss and headline, and their deviations over clients.

    `train_loss` is Σ p_i L_i, what training makes small (clustered sampling 2021, Eq. 1 and Fig. 1).
    """
    parts = own_tests(federation) if tested else None
    held = {"train": [federation.client(number) for number in range(len(federation))]}
    held |= {} if parts is None else {"test": own_test_parts(parts)}
    found: dict[str, float] = {}
    for what, mine in held.items():
        figures = [(part.size, each) for part, each in by_client(predictor, mine, workspaces)]
        for name in dict.fromkeys(("loss", workspaces.task.headline.name)):
            found |= {f"{what}_{key}": value for key, value in mean_and_deviation(figures, name).items()}
    return found


def mean_and_deviation(figures: Sequence[tuple[int, Mapping[str, float]]], name: str) -> dict[str, float]:
    """The mean of this figure by the examples of clients, and its standard deviation, which counts every client once.
    A metric that a client's examples do not have (AUROC, if all are of one class) is not counted, a loss always is."""
    known = [(size, each[name]) for size, each in figures if name == "loss" or not math.isnan(each[name])]
    if not known:
        return {}
    sizes, values = np.array(known, dtype=np.float64).T
    return {name: float(sizes @ values / sizes.sum()), f"{name}_deviation": float(values.std())}


def own_test_parts(federation: Federation) -> list[ClientData]:
    """Those of clients that have one."""
    parts = (federation.client_test(client) for client in range(len(federation)))
    return [part for part in parts if part.size]


def by_client(
    predictor: Predictor, parts: Sequence[ClientData], workspaces: Workspaces
) -> Iterator[tuple[ClientData, Mapping[str, float]]]:
    """Loss and metrics on each of these parts of the data, in order, each with the model that its client would use.

    The examples of many small clients go through the network together, if all use the same model: one by one they would
    take several times as long.
    """
    for company in companies(parts):
        own = [predictor.for_client(part.id) for part in company]
        if len(company) > 1 and all(each is predictor for each in own):
            together = answers_of(predictor, company, workspaces)
            ends = np.cumsum([part.size for part in company]).tolist()
            own = [Answered(together[end - part.size : end]) for end, part in zip(ends, company, strict=True)]
        for each, part in zip(own, company, strict=True):
            yield part, evaluate(each, part.examples.on(workspaces.device).picked(part.rows), workspaces)


def companies(parts: Sequence[ClientData]) -> Iterator[list[ClientData]]:
    """Neighbours that have no more examples together than are evaluated at once; a larger one is alone."""
    company: list[ClientData] = []
    total = 0
    for part in parts:
        if company and total + part.size > EVALUATION_BATCH:
            yield company
            company, total = [], 0
        company.append(part)
        total += part.size
    if company:
        yield company


@torch.no_grad()
def answers_of(predictor: Predictor, company: Sequence[ClientData], workspaces: Workspaces) -> torch.Tensor:
    """What the predictor answers to their examples, which are few enough for one batch."""
    rows = torch.cat([part.rows for part in company])
    with deterministic(workspaces.device):
        return predictor.outputs(workspaces)(company[0].examples.on(workspaces.device).take(rows)[0])


@dataclass(frozen=True)
class Answered(Predictor):
    """Answers that were given already, to one batch of examples."""

    answers: torch.Tensor

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return ()

    def outputs(self, workspaces: Workspaces, /) -> Outputs:
        return lambda _: self.answers
