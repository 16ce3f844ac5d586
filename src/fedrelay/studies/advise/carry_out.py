"""A race as the command has it: within a budget, in a folder of its own, with everything that is left behind in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrelay.config.experiment import Experiment
from fedrelay.errors import BadInput
from fedrelay.studies.advise.advice import Advice
from fedrelay.studies.advise.budget import Budget, Plan
from fedrelay.studies.advise.outcome import Outcome, outcome_of, write
from fedrelay.studies.advise.race import raced
from fedrelay.studies.claims import RACE, claim
from fedrelay.system import files

PLANNED = tuple(one.name for one in fields(Plan))


def race(
    tables: Mapping[str, Any],
    advice: Advice,
    experiment: Experiment,
    out: Path,
    live: Console,
    *,
    budget: Budget = Budget(),
    target: float | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    data_dir: Path | None = None,
    force: bool = False,
) -> Outcome:
    """Race the short-list of an advice; one that was interrupted goes on, with the rounds it was planned with.

    race.json, results.md, report.html and winner.toml keep what came out. Those of another race in the folder are
    refused, unless by `force`.
    """
    if advice.facts.clients < 2:
        raise BadInput("there is one client, so there is nobody to race: fedrelay run trains it where its data is")
    wanted: dict[str, Any] = {
        "by": advice.facts.by,
        "budget": f"{budget.amount:g} {budget.unit}",
        "candidates": {one.method: list(one.values) for one in advice.candidates},
        "fingerprint": experiment.fingerprint,
    }
    claim(out, RACE, lambda found: same(found["plan"], wanted), force=force)
    plan = planned(out / RACE, wanted)
    if plan is None:
        counts = {"trials": sum(len(one.values) for one in advice.candidates), "methods": len(advice.candidates)}
        plan = budget.plan(experiment, advice.facts.taking_part, **counts)
    kept = {**wanted, **asdict(plan)}
    out.mkdir(parents=True, exist_ok=True)
    files.write(out / RACE, (json.dumps({"plan": kept}, indent=2) + "\n").encode())
    settings: dict[str, Any] = {"jobs": jobs, "ray": ray, "data_dir": data_dir}
    state = raced(tables, advice.facts, advice.candidates, out, live, rounds=plan.rounds, most=plan.most, **settings)
    outcome = outcome_of(state, target)
    write(outcome, tables, out, kept)
    return outcome


def same(plan: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether this is the plan of the race that is wanted."""
    return {key: value for key, value in plan.items() if key not in PLANNED} == wanted


def planned(path: Path, wanted: Mapping[str, Any]) -> Plan | None:
    """The plan of the race that was begun here, if it is this one: minutes are not measured twice."""
    try:
        plan = json.loads(path.read_bytes())["plan"]
        return Plan(**{key: int(plan[key]) for key in PLANNED}) if same(plan, wanted) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
