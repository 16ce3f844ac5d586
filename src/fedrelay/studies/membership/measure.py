"""Membership inference against a run: what everybody could tell who sees its models, from the final one to the exact
change of a visit.

The guesses are the plain ones. With one model: the smaller an example's loss, the more it looks like a member (Yeom et
al. 2018). With the model before and the model after: the more its loss has fallen, so that easy examples are no members
only because they are easy; this is what neighbours in a chain can do, and FedAvg's server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrelay import config
from fedrelay.data.examples import Store
from fedrelay.errors import BadInput
from fedrelay.runs import ledger
from fedrelay.runs.loop import deployed, train
from fedrelay.runs.testing import figures_of
from fedrelay.studies.membership.halves import Halves, held_out, victims_of
from fedrelay.studies.membership.scores import (
    Floats,
    advantage,
    auc,
    deviation_of_nothing,
    most_advantage,
    rates,
    tpr_at,
)
from fedrelay.studies.watched import seen_in, watching
from fedrelay.system.devices import CPU, placed
from fedrelay.tasks import EVALUATION_BATCH, OneModel, Predictor, Workspaces
from fedrelay.tasks.losses import OutputLoss
from fedrelay.types import Algorithm, State
from fedrelay.visits.accounting import gaussian_delta

OBSERVERS = {
    "control": "never saw the client",
    "final": "the final model",
    "round": "around a round",
    "next": "after a visit",
    "around": "around a visit",
    "visits": "around all visits",
}
"""What is looked at: the model that went into the first visit, the final one, the common models before and after a
round with a visit, the model after a visit, those before and after it, the same of all visits together."""
LOW = (0.01, 0.1)
"""Shares of others that may be called members by mistake."""
POINTS = 101
"""Of a curve on a page."""

Told = Callable[[int, int], None]
"""Is told how many rounds of how many are done."""


@dataclass(frozen=True)
class Leak:
    """How well one observer tells members from others."""

    observer: str
    auc: float
    """The mean over clients, and visits of each."""
    deviation: float
    """Of that mean: by how much clients differ; of one client, what chance makes."""
    advantage: float
    """At the best single threshold for all clients."""
    tpr: Mapping[str, float]
    """At low FPRs, by these, with one threshold for all clients."""
    scores: int
    """Of members; there are about as many of others."""
    curve: tuple[float, ...]
    """TPR at FPRs from 0 to 1, evenly."""
    most: float | None = None
    """What privacy allows of the advantage; None: there is none."""


@dataclass(frozen=True)
class Measured:
    """All that was found of one run."""

    leaks: tuple[Leak, ...]
    clients: tuple[int, ...]
    visits: int
    accuracy: float | None
    """Or whatever the task's headline is, of the final model on the test set."""
    headline: str
    privacy: Mapping[str, float | None] = field(default_factory=dict)

    def of(self, observer: str) -> Leak | None:
        return next((leak for leak in self.leaks if leak.observer == observer), None)


@dataclass
class Scores:
    """Of members and others, by observer and client: a pair of arrays for every visit."""

    found: dict[str, dict[int, list[tuple[Floats, Floats]]]] = field(default_factory=dict)

    def add(self, observer: str, client: int, pair: tuple[Floats, Floats]) -> None:
        self.found.setdefault(observer, {}).setdefault(client, []).append(pair)


def measure(
    tables: Mapping[str, Any],
    *,
    named: Sequence[int] | None = None,
    victims: int | None = None,
    data_dir: Path | None = None,
    told: Told = lambda done, of: None,
) -> Measured:
    """Do the run of these tables, with half of some clients' examples held out, and look at its models as it goes."""
    whole = config.build(tables, data_dir)
    seed = int(whole.tables["seed"])
    who = victims_of(clients_of(whole), named=named, count=victims, seed=seed)
    federation, halves = held_out(clients_of(whole), who, seed)
    experiment = config.build(tables, data_dir, federation=federation)
    algorithm = watching(refused(experiment), who, who="membership is inferred from visits")
    looking = Looking(Workspaces(experiment.task), halves, Scores())
    state, rounds = None, int(experiment.tables["rounds"])
    before: Predictor = OneModel(experiment.task.init(seed))
    try:
        for state in train(algorithm, experiment.engine, rounds=rounds, latency=experiment.latency):
            after = placed(deployed(state, algorithm, experiment.engine), CPU)
            looking.look(state, experiment.engine.memories()[1], before, after)
            before = after
            told(state.round, rounds)
    finally:
        experiment.engine.close()
    assert state is not None
    looking.finish(before)
    figures = figures_of(before, experiment.judged_by, looking.workspaces, experiment.federation)
    headline = experiment.task.headline.name
    most = bound(algorithm, looking.visits, federation.sizes)
    return Measured(
        tuple(leak_of(name, by_client, most) for name, by_client in looking.scores.found.items()),
        tuple(sorted(looking.visits)),
        sum(looking.visits.values()),
        figures.get(headline),
        headline,
        {} if state.log is None else state.log.privacy,
    )


def clients_of(experiment: config.Experiment) -> Any:
    return experiment.clients or experiment.federation


def refused(experiment: config.Experiment) -> Algorithm:
    """The method, if what it sends can be looked at."""
    task, algorithm = experiment.task, experiment.algorithm
    if isinstance(task.loss, OutputLoss) or task.target == "several":
        raise BadInput("membership is inferred from the loss of single examples, and this model tells only one of all")
    if algorithm.update.at_home(task):
        raise BadInput(
            "membership is inferred from whole models, and here parts of them stay at home (private): take a method "
            "that sends all of the model"
        )
    return algorithm


@dataclass(frozen=True)
class Looking:
    """Scores as a run goes on."""

    workspaces: Workspaces
    halves: Mapping[int, Halves]
    scores: Scores
    visits: dict[int, int] = field(default_factory=dict)
    sums: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)

    def look(self, state: State, memories: Mapping[int, Any], before: Predictor, after: Predictor) -> None:
        """At the visits of a round to the clients that are asked about, and at the models around it."""
        there = seen_in(memories, list(self.halves), state.round)
        for visit in there:
            client = visit.client
            into, out = (self.losses(OneModel(model), client) for model in (visit.received, visit.sent))
            if client not in self.visits:
                self.scores.add("control", client, minus(into))
            self.scores.add("next", client, minus(out))
            fallen = into[0] - out[0], into[1] - out[1]
            self.scores.add("around", client, fallen)
            known = self.sums.get(client, (np.zeros_like(fallen[0]), np.zeros_like(fallen[1])))
            self.sums[client] = known[0] + fallen[0], known[1] + fallen[1]
            self.visits[client] = self.visits.get(client, 0) + 1
        for client in dict.fromkeys(visit.client for visit in there):
            then, now = self.losses(before, client), self.losses(after, client)
            self.scores.add("round", client, (then[0] - now[0], then[1] - now[1]))

    def finish(self, final: Predictor) -> None:
        """What is known when the run has ended; the rows come in their usual order."""
        if not self.visits:
            raise BadInput(
                f"none of the clients {', '.join(map(str, self.halves))} was visited: more rounds or a larger fraction "
                "visits some, or name others"
            )
        for client in self.visits:
            self.scores.add("final", client, minus(self.losses(final, client)))
            self.scores.add("visits", client, self.sums[client])
        ordered = {name: self.scores.found[name] for name in OBSERVERS}
        self.scores.found.clear()
        self.scores.found.update(ordered)

    def losses(self, predictor: Predictor, client: int) -> tuple[Floats, Floats]:
        """Of every member, and of every other."""
        mine = self.halves[client]
        return losses_of(predictor, mine.members, self.workspaces), losses_of(predictor, mine.others, self.workspaces)


def minus(pair: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    return -pair[0], -pair[1]


@torch.no_grad()
def losses_of(predictor: Predictor, examples: Store, workspaces: Workspaces) -> Floats:
    """The loss of every example."""
    outputs, loss = predictor.outputs(workspaces), workspaces.task.loss
    found: list[float] = []
    for x, y in examples.batches(EVALUATION_BATCH):
        answers = outputs(x)
        found += [float(loss(answers[one : one + 1], y[one : one + 1])) for one in range(len(y))]
    most = float(np.finfo(np.float32).max)
    return np.array([one if math.isfinite(one) else most for one in found], dtype=np.float64)


def leak_of(observer: str, by_client: Mapping[int, Sequence[tuple[Floats, Floats]]], most: float | None) -> Leak:
    """What the scores of one observer tell."""
    means = [float(np.mean([auc(*pair) for pair in pairs])) for pairs in by_client.values()]
    pairs = [pair for some in by_client.values() for pair in some]
    members, others = (np.concatenate([pair[place] for pair in pairs]) for place in (0, 1))
    first = pairs[0]
    apart = deviation_of_nothing(len(first[0]), len(first[1]))
    if len(means) > 1:
        apart = float(np.std(means, ddof=1)) / math.sqrt(len(means))
    fpr, tpr = rates(members, others)
    return Leak(
        observer,
        float(np.mean(means)),
        apart,
        advantage(members, others),
        {f"{low:g}": tpr_at(members, others, low) for low in LOW},
        len(members),
        tuple(np.interp(np.linspace(0, 1, POINTS), fpr, tpr).round(4).tolist()),
        0.0 if observer == "control" and most is not None else most,
    )


def bound(algorithm: Algorithm, visits: Mapping[int, int], sizes: Sequence[int]) -> float | None:
    """The most advantage that noise allows anybody, after all visits; None: there is no noise.

    The client is there either way, only with other examples: it is replaced, not absent. So at its level the Gaussian
    shift is twice that of epsilon; at the level of examples one is taken away and another put in, which is twice the
    epsilon (and 1 + e^ε times the delta).
    """
    privacy = algorithm.privacy
    if privacy is None or not privacy.noise:
        return None
    traits = ledger.traits_in(algorithm.plan)
    if privacy.level == "client":
        return gaussian_delta(0.0, 2 * math.sqrt(max(visits.values()) + traits) / privacy.noise)
    releases = [visits.get(client, 0) for client in range(len(sizes))]
    epsilon = ledger.epsilon_of(algorithm, releases, sizes)
    both = privacy.delta * (1 + math.exp(min(epsilon, 700.0)))
    return most_advantage(2 * epsilon, both)


def as_record(found: Measured) -> dict[str, Any]:
    """Plain data of it."""
    return asdict(found)


def from_record(found: Mapping[str, Any]) -> Measured:
    """The same again; whatever is none raises LookupError or TypeError."""
    leaks = tuple(replace(Leak(**leak), curve=tuple(leak["curve"])) for leak in found["leaks"])
    return Measured(**{**found, "leaks": leaks, "clients": tuple(found["clients"])})
