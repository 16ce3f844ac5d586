"""Inversion of one client's visit in a run: those around it have the models before and after, and so its examples.

The run is done until the client is visited. Its visit must be one step of gradient descent, a small case in which all
that those around it hold is one gradient; noise is that of the run's `[algorithm.privacy]`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedrelay import config
from fedrelay.errors import BadInput
from fedrelay.runs import ledger
from fedrelay.runs.loop import train
from fedrelay.studies.inversion.attack import by_matching, in_closed_form
from fedrelay.studies.watched import Seen, seen_in, watching
from fedrelay.tasks import Task, Workspaces
from fedrelay.types import Algorithm, Visit, Work
from fedrelay.visits import Training
from fedrelay.visits.around import Around
from fedrelay.visits.terms import Term

CLOSED, MATCHING = "closed form", "gradient matching"
GUESSED_FROM = 1000
"""So many test examples make the mean that is the guess of whoever has seen nothing."""


@dataclass(frozen=True)
class Inverted:
    """What was made of one visit."""

    client: int
    round: int
    hop: int
    alone: bool
    """Whether its chain has nobody else, as in FedAvg."""
    how: str
    examples: int
    error: float
    """The mean distance of examples made again from those trained on, in lengths of the latter."""
    guess: float
    """The same of the mean test example, which tells nothing of the client."""
    noise: float = 0.0
    epsilon: float | None = None
    """Of this visit (and of traits told before it); None: without end."""
    delta: float | None = None
    truth: torch.Tensor = field(default_factory=lambda: torch.empty(0), compare=False, repr=False)
    made: torch.Tensor = field(default_factory=lambda: torch.empty(0), compare=False, repr=False)

    @property
    def holders(self) -> str:
        """Who has both models."""
        if self.alone:
            return "the server"
        first = "the client after it, which knows what all began with" if not self.hop else "its neighbours together"
        return f"{first}; a server that relays"


def invert(tables: Mapping[str, Any], *, client: int = 0, data_dir: Path | None = None) -> Inverted:
    """Do the run of these tables until the client is visited, and make its examples again from that visit."""
    experiment = config.build(tables, data_dir)
    experiment.federation.client(client)
    algorithm = watching(experiment.algorithm, [client], who="inversion is of visits")
    training = training_in(algorithm.update)
    check(experiment, training, experiment.federation.sizes[client])
    rounds, seen, alone = int(experiment.tables["rounds"]), None, True
    try:
        for state in train(algorithm, experiment.engine, rounds=rounds, latency=experiment.latency):
            there = seen_in(experiment.engine.memories()[1], [client], state.round)
            if there:
                seen, alone = there[0], state.log is not None and state.log.depth == 1
                break
    finally:
        experiment.engine.close()
    if seen is None:
        raise BadInput(f"client {client} was not visited in {rounds} rounds: more rounds or a larger fraction would")
    return inverted(experiment, training, seen, alone=alone)


def inverted(experiment: config.Experiment, training: Training, seen: Seen, *, alone: bool) -> Inverted:
    """What can be made of a visit that was seen."""
    task, seed = experiment.task, int(experiment.tables["seed"])
    data = experiment.federation.client(seen.client)
    visit = Visit(data, task, {}, {}, seen.round, seen.hop, seed, Workspaces(task))
    x, y, _ = next(next(training.drawn(training.without_held_out(visit))))
    if not len(y):
        raise BadInput(
            f"no example of client {seen.client} was in its step (batches are drawn by chance): another seed"
        )
    made, how = made_of(seen, training, task, y, seed=seed)
    privacy = experiment.algorithm.privacy
    epsilon = epsilon_of(experiment.algorithm, seen.client, experiment.federation.sizes)
    some, _ = experiment.federation.test.take(slice(0, GUESSED_FROM))
    truth = x.flatten(1)
    mean = some.flatten(1).mean(0, keepdim=True).expand_as(truth)
    order, error = matched(made.flatten(1), truth)
    return Inverted(
        seen.client,
        seen.round,
        seen.hop,
        alone,
        how,
        len(y),
        error,
        matched(mean, truth)[1],
        0.0 if privacy is None else privacy.noise,
        epsilon if math.isfinite(epsilon) else None,
        None if privacy is None else privacy.delta,
        x,
        made[order],
    )


def made_of(seen: Seen, training: Training, task: Task, y: torch.Tensor, *, seed: int) -> tuple[torch.Tensor, str]:
    """Inputs that would have made this change, and how they were found."""
    change = seen.received - seen.sent
    found = in_closed_form(change, task) if len(y) == 1 else None
    if found is not None:
        return found, CLOSED
    gradient = change / (training.lr * training.schedule(seen.round))
    if training.per_example is not None:  # then the sum is divided by the size that batches have on average
        gradient = gradient * (training.batch / len(y))
    return by_matching(gradient, seen.received, task, y, seed=seed), MATCHING


def matched(made: torch.Tensor, truth: torch.Tensor) -> tuple[list[int], float]:
    """For every example the one made that stands for it, so that all are as near as can be, and how near that is."""
    from scipy.optimize import linear_sum_assignment  # here, because every command would wait for SciPy

    lengths = torch.linalg.vector_norm(truth, dim=1).clamp(min=1e-12)
    apart = torch.nan_to_num(torch.cdist(made.double(), truth.double(), compute_mode="donot_use_mm_for_euclid_dist"))
    rows, columns = linear_sum_assignment((apart / lengths).numpy())
    order = [int(row) for _, row in sorted(zip(columns, rows, strict=True))]
    return order, float((apart[order, range(len(order))] / lengths).mean())


def epsilon_of(algorithm: Algorithm, client: int, sizes: Sequence[int]) -> float:
    """What the client has spent by its first visit; without noise there is no end of it."""
    if algorithm.privacy is None:
        return math.inf
    releases = [(1 + ledger.traits_in(algorithm.plan)) * (one == client) for one in range(len(sizes))]
    return ledger.epsilon_of(algorithm, releases, sizes)


def training_in(update: Work) -> Training:
    """The training inside a work, whatever is around it."""
    while not isinstance(update, Training):
        if not isinstance(update, Around):
            raise BadInput(f"{type(update).__name__} trains in a way of its own, in which no single step can be seen")
        update = update.work
    return update


def check(experiment: config.Experiment, training: Training, size: int) -> None:
    """Refuse visits that are not one step of gradient descent on whole models."""
    task = experiment.task
    if experiment.algorithm.update.at_home(task):
        raise BadInput("inversion is of whole models, and here parts of them stay at home: take another method")
    if task.target != "classes" or not isinstance(task.shape, tuple):
        raise BadInput(f"inversion looks for inputs of known classes, and these data have {task.target}")
    steps = training.lengths(training.counted(size))[0]
    if steps != 1 or training.plain_steps(1) != 1.0:
        raise BadInput(
            f"inversion is shown where a visit is one step of SGD, and here it is {steps} of "
            f'{type(training).__name__}: [local] steps = 1, and optimiser = "sgd"'
        )
    if more := added(training):
        raise BadInput(
            f"inversion takes a visit for one gradient of the loss, and here {more}: a large error would look like "
            "protection, and whoever knows of it can undo it. Leave it out; [algorithm.privacy] is what protects"
        )


def added(training: Training) -> str:
    """Why the step of a visit is not the gradient of the loss alone; nothing if it is."""
    if training.weight_decay:
        return f"weight_decay = {training.weight_decay:g} adds the weights to it"
    if training.clip is not None:
        return f"clip = {training.clip:g} may shorten it"
    plain = (Term.begin, Term.finish)
    acting = [term for term in training.terms if (type(term).begin, type(term).finish) != plain]
    return f"{type(acting[0]).__name__}, which the method adds to the training, may change it" if acting else ""


def as_record(found: Inverted) -> dict[str, Any]:
    """Plain data of it, without pictures."""
    kept = {key: value for key, value in vars(found).items() if key not in ("truth", "made")}
    return kept | {"holders": found.holders}
