"""What there is to choose from, read off the tables in code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rich.table import Table

from fedrelay.algorithms import ALGORITHMS, Change, method
from fedrelay.algorithms.change import usual_fraction
from fedrelay.config import extensions, schema
from fedrelay.config.choices import CHOICES
from fedrelay.config.federation import DATA
from fedrelay.data import PARTITIONS
from fedrelay.engines import ENGINES
from fedrelay.merges import GRAPHS, MERGES
from fedrelay.models import MODELS
from fedrelay.plans import ATTACKERS, DISTANCES, GROUPERS
from fedrelay.plans.growth import GROWTHS
from fedrelay.plans.sampling import SAMPLERS
from fedrelay.runs.latency import DISTRIBUTIONS
from fedrelay.runs.threat import ATTACKS
from fedrelay.tasks import LOSSES, METRICS
from fedrelay.visits import OBJECTIVES, OPTIMISERS, PULLS, TERMS
from fedrelay.visits.probe_networks import PROBES
from fedrelay.visits.schedules import SCHEDULES
from fedrelay.visits.traits import TRAITS

KINDS = {
    "algorithms": ALGORITHMS,
    "data": DATA,
    "models": MODELS,
    "partitions": PARTITIONS,
    "engines": ENGINES,
    "optimisers": OPTIMISERS,
    "losses": LOSSES,
    "metrics": METRICS,
    "terms": TERMS,
    "pulls": PULLS,
    "objectives": OBJECTIVES,
    "schedules": SCHEDULES,
    "samplers": SAMPLERS,
    "merges": MERGES,
    "graphs": GRAPHS,
    "growths": GROWTHS,
    "distributions": DISTRIBUTIONS,
    "traits": TRAITS,
    "distances": DISTANCES,
    "groupers": GROUPERS,
    "probes": PROBES,
    "attacks": ATTACKS,
    "attackers": ATTACKERS,
}
GIVEN = ("local", "federation", "task", "folder", "seed")
"""Parameters that come from other sections of a configuration."""


def extend() -> None:
    """Enter the parts of other packages into our tables."""
    for kind, table in KINDS.items():
        extensions.add_to(kind, table)  # type: ignore[arg-type]


def targets(kind: str) -> schema.Table:
    """Everything of a kind, by name."""
    extend()
    if kind == "algorithms":
        return {name: row.recipe for name, row in ALGORITHMS.items()}
    table: schema.Table = KINDS[kind]  # type: ignore[assignment]
    return table


def entries(kind: str) -> list[dict[str, Any]]:
    """Name, one line of explanation and parameters with defaults (None where there is none) of all of a kind; of a part
    of another package, which one, and why it cannot be used if it cannot."""
    found = method_parameters if kind == "algorithms" else parameters
    listed = {
        name: {"name": name, "about": about(target), "parameters": found(target)}
        for name, target in targets(kind).items()
    }
    refused = []
    for one in extensions.extensions(kind):
        if one.reason:
            refused.append(
                {"name": one.name, "about": "", "parameters": {}, "package": one.origin, "refused": one.reason}
            )
        else:
            listed[one.name]["package"] = one.origin
    return [*listed.values(), *refused]


def method_parameters(recipe: Callable[..., Change]) -> dict[str, Any]:
    """Those of a method, and those that all methods have but the reference, which draws nobody."""
    change = recipe()
    common = {} if change.pooled else parameters(method) | {"fraction": usual_fraction(change).fraction}
    return parameters(recipe) | common


def about(target: Callable[..., Any]) -> str:
    """The first paragraph of the docstring."""
    return " ".join((inspect.getdoc(target) or "").split("\n\n")[0].split())


def parameters(target: Callable[..., Any]) -> dict[str, Any]:
    if not callable(target) or not hasattr(target, "__name__"):  # an object, which has no settings
        return {}
    found = schema.parameters(target, skip=GIVEN)
    return {
        name: None if p.default in (p.empty, None) else schema.plain(p.default, CHOICES) for name, p in found.items()
    }


def table(kind: str) -> Table:
    """For people."""
    result = Table("name", "what it is", "parameters (default)", title=kind, title_justify="left", expand=False)
    for entry in entries(kind):
        words = ", ".join(key if value is None else f"{key} = {value}" for key, value in entry["parameters"].items())
        text = f"cannot be used: {entry['refused']}" if "refused" in entry else entry["about"]
        origin = f" (from {entry['package']})" if "package" in entry else ""
        result.add_row(entry["name"], f"{text}{origin}", words)
    return result
