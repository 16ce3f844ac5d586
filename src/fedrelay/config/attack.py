"""From the [attack] section to a threat: what attackers do, who they are, and when."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from fedrelay.config import schema
from fedrelay.config.choices import CHOICES
from fedrelay.errors import BadInput, say_once, within
from fedrelay.runs.threat import ATTACKS, Threat, When
from fedrelay.tasks import Task
from fedrelay.types import Algorithm
from fedrelay.visits.attacks import Attack

WHERE = "[attack]"
COMMON = tuple(item.name for item in fields(When))
"""What every attack has beside its own settings."""


def build_attack(
    values: Mapping[str, Any] | None,
    algorithm: Algorithm,
    task: Task,
    *,
    clients: int,
    rounds: int,
    real: bool = False,
) -> tuple[Threat | None, dict[str, dict[str, Any]]]:
    """The threat, and the section with all defaults filled in; neither without a section, and the reference has no
    clients that could attack. `real` clients are elsewhere, and cannot be made to."""
    if values is None:
        return None, {}
    if real:
        raise BadInput(f"{WHERE}: attacks are simulated, and here clients are real: leave the section out")
    target = schema.choose(ATTACKS, values.get("name"), WHERE)
    when, resolved_when = schema.build(When, {k: v for k, v in values.items() if k in COMMON}, WHERE, CHOICES)
    own = {key: value for key, value in values.items() if key not in ("name", *COMMON)}
    schema.check_keys(own, (*schema.parameters(target), *COMMON), WHERE)
    how, resolved_how = schema.build(target, own, WHERE, CHOICES)
    resolved = {"attack": {"name": values["name"], **resolved_how, **resolved_when}}
    within(f"{WHERE}.first_round, in {rounds} rounds,", when.first_round, most=rounds)
    threat = Threat(how, when)
    if algorithm.pooled:
        say_once("the centralised reference has all data in one place: nobody attacks there, it is honest")
        return None, resolved
    try:
        threat.fitted(task)
        if isinstance(how, Attack):
            how.check(algorithm.update)
        when.who.check(clients)
    except BadInput as error:
        raise BadInput(f"{WHERE}: {error}") from error
    return threat, resolved


def keys_of(name: object) -> Collection[str]:
    """What the section may say if it names this attack."""
    return {"name", *schema.parameters(schema.choose(ATTACKS, name, WHERE)), *COMMON}
