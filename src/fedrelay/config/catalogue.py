"""What there is to choose from, read off the tables in code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rich.table import Table

from fedrelay.algorithms import ALGORITHMS
from fedrelay.config import schema
from fedrelay.config.experiment import CHOICES
from fedrelay.config.federation import DATA
from fedrelay.data import PARTITIONS
from fedrelay.engines import ENGINES
from fedrelay.merges import MERGES
from fedrelay.models import MODELS
from fedrelay.plans import DISTANCES, GROUPERS
from fedrelay.plans.growth import GROWTHS
from fedrelay.plans.sampling import SAMPLERS
from fedrelay.runs.latency import DISTRIBUTIONS
from fedrelay.visits.objectives import OBJECTIVES
from fedrelay.visits.probe_networks import PROBES
from fedrelay.visits.pulls import PULLS
from fedrelay.visits.schedules import SCHEDULES
from fedrelay.visits.traits import TRAITS

KINDS: dict[str, schema.Table] = {
    "algorithms": ALGORITHMS,
    "data": DATA,
    "models": MODELS,
    "partitions": PARTITIONS,
    "engines": ENGINES,
    "schedules": SCHEDULES,
    "samplers": SAMPLERS,
    "merges": MERGES,
    "pulls": PULLS,
    "objectives": OBJECTIVES,
    "growths": GROWTHS,
    "distributions": DISTRIBUTIONS,
    "traits": TRAITS,
    "distances": DISTANCES,
    "groupers": GROUPERS,
    "probes": PROBES,
}
GIVEN = ("local", "federation", "task", "folder", "seed")
"""Parameters that come from other sections of a configuration."""


def entries(kind: str) -> list[dict[str, Any]]:
    """Name, one line of explanation and parameters with defaults (None where there is none) of all of a kind."""
    return [
        {"name": name, "about": about(target), "parameters": parameters(target)} for name, target in KINDS[kind].items()
    ]


def about(target: Callable[..., Any]) -> str:
    """The first paragraph of the docstring."""
    return " ".join((inspect.getdoc(target) or "").split("\n\n")[0].split())


def parameters(target: Callable[..., Any]) -> dict[str, Any]:
    found = schema.parameters(target, skip=GIVEN)
    return {
        name: None if p.default in (p.empty, None) else schema.plain(p.default, CHOICES) for name, p in found.items()
    }


def table(kind: str) -> Table:
    """For people."""
    result = Table("name", "what it is", "parameters (default)", title=kind, title_justify="left", expand=False)
    for entry in entries(kind):
        words = ", ".join(key if value is None else f"{key} = {value}" for key, value in entry["parameters"].items())
        result.add_row(entry["name"], entry["about"], words)
    return result
