"""Testing what a run has so far: one model, or those of the clients, as the method says."""

from __future__ import annotations

from dataclasses import replace

from fedrelay.data.examples import Store
from fedrelay.data.federation import Federation
from fedrelay.tasks import OneModel, PerClient, Predictor, Workspaces, evaluate, evaluate_clients


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
    parts = ((client, federation.test.picked(own)) for client, own in rows if len(own))
    return evaluate_clients(predictor, parts, workspaces)
