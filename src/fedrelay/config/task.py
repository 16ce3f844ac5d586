"""From the [task] section to what is learned: the loss, the metrics, and which of them is the headline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fedrelay.config import schema
from fedrelay.config.choices import CHOICES
from fedrelay.data import Federation
from fedrelay.errors import BadInput
from fedrelay.models import Model
from fedrelay.runs.summary import Evaluate
from fedrelay.tasks import Loss, Metric, Task

WHERE = "[task]"


@dataclass(frozen=True)
class Wanted:
    """What is learned by, and judged by. What the section leaves open goes with the model and the data."""

    loss: Loss | None = None
    """What training makes small; by default the usual one for the targets."""
    metrics: tuple[Metric, ...] = ()
    """The figures besides the loss; by default those that go with it."""
    headline: str | None = None
    """The metric that runs are judged by: the first, unless another is said, or `loss`."""


def build_task(
    values: Mapping[str, Any] | None, model: Model, federation: Federation
) -> tuple[Task, dict[str, dict[str, Any]]]:
    """The task, and the section with everything filled in; none if classes are learned as they usually are."""
    wanted, _ = schema.build(Wanted, values or {}, WHERE, CHOICES)
    try:
        task = Task.of(model, federation, loss=wanted.loss, metrics=wanted.metrics or None, headline=wanted.headline)
    except BadInput as error:
        raise BadInput(f"{WHERE}: {error}" if values else str(error)) from error
    if values is None and task.target in ("classes", "tokens"):
        return task, {}
    resolved = {"loss": schema.plain(task.loss, CHOICES), "metrics": schema.plain(task.metrics, CHOICES)}
    return task, {"task": resolved | {"headline": task.judged_by}}


def build_evaluate(evaluate: Evaluate, resolved: Mapping[str, Any], task: Task) -> tuple[Evaluate, dict[str, Any]]:
    """How the task's headline is evaluated, and the section with its target filled in."""
    try:
        evaluate = evaluate.of(task.headline)
    except BadInput as error:
        raise BadInput(f"[evaluate]: {error}") from error
    told = dict(resolved) if evaluate.target is None else {**resolved, "target": evaluate.target}
    return evaluate, {item.name: told[item.name] for item in fields(Evaluate) if item.name in told}
