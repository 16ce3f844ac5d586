"""The test of a run whose server has nothing to test on: every client tests on what it has held out of its own data."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrelay.errors import say_once
from fedrelay.runs.results import ClientResult, Clients
from fedrelay.runs.testing import mean_and_deviation
from fedrelay.tasks import OneModel, Predictor
from fedrelay.types import Baton, Chain, Engine, Report, State, Work

LOG = logging.getLogger("fedrelay")


@dataclass(frozen=True)
class OwnTests:
    """Asks all clients that have joined to test the model, and puts together what they tell."""

    work: Work
    engine: Engine

    def __call__(self, predictor: Predictor, state: State) -> Clients | None:
        """What it is worth to every client that has answered; None if it cannot be tested so, or nobody has."""
        asked = [client for client in range(len(self.engine.sizes)) if not state.joined or state.joined[client]]
        models = [predictor.for_client(client) for client in asked]
        if not all(isinstance(model, OneModel) for model in models):
            say_once(f"clients can test one model, and this method has {predictor.tests}: nothing is tested")
            return None
        chains = [Chain(Baton(model.vectors[0]), (client,)) for model, client in zip(models, asked, strict=True)]
        sizes, results = self.engine.joined() or self.engine.sizes, []
        for outcome in self.engine.run(self.work, chains, {}, state.round):
            results += [self.result_of(report, sizes) for report in outcome.reports if report.examples]
            for drop in outcome.dropped:
                LOG.warning("round %d is not tested by %s: %s", state.round, self.called(drop.client), drop.reason)
        headline = self.engine.task.headline
        return Clients(headline.name, headline.higher_is_better, tuple(results)) if results else None

    def result_of(self, report: Report, sizes: Sequence[int]) -> ClientResult:
        client, names = report.client, ("loss", *(metric.name for metric in self.engine.task.metrics))
        figures = {name: float(report.metrics.get(name, math.nan)) for name in names}
        metrics = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        return ClientResult(client, self.called(client), sizes[client], report.examples, metrics)

    def called(self, client: int) -> str:
        names = self.engine.names
        return names[client] if names else f"client {client}"


def means_of(clients: Clients) -> dict[str, float]:
    """Every figure over all examples that were held out: clients' figures by how many examples each is of."""
    found = sized(clients)
    names = dict.fromkeys(name for _, metrics in found for name in metrics)
    return {name: mean_and_deviation(found, name).get(name, math.nan) for name in names}


def spread_over(clients: Clients) -> dict[str, float]:
    """Loss and headline as `over_clients` in the line of a round has them, with their deviations over clients."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(("loss", clients.headline)):
        found |= {f"test_{key}": value for key, value in mean_and_deviation(sized(clients), name).items()}
    return found


def sized(clients: Clients) -> Sequence[tuple[int, Mapping[str, float]]]:
    """How many examples each has tested on, and its figures; one that it has none of is not a number."""
    return [
        (each.tested, {name: math.nan if value is None else value for name, value in each.metrics.items()})
        for each in clients.clients
    ]
