"""What came out of a race: who reached the target at the least cost, as a table, a record, a page and a file to run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from rich.table import Table

from fedrelay import config, report
from fedrelay.studies.advise.advice import skipped, tables_for
from fedrelay.studies.advise.race import SHARE, Entry, Race
from fedrelay.studies.claims import RACE
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.trials import averaged
from fedrelay.system import files

UNITS = {"traffic": ("MB", 1e6), "time": ("s", 1.0), "rounds": ("rounds", 1.0)}


@dataclass(frozen=True)
class Standing:
    """A method at its best value: what it took to the target, and how good it was at the end."""

    method: str
    key: str
    value: float
    rounds: int
    figure: float | None
    told: str
    cost: float | None
    """To the target; None if it was never reached."""
    spent: float
    entry: Entry

    def text(self, by: str, priced: bool) -> str:
        """The cost for people."""
        return "not reached" if self.cost is None else amount(self.cost, by, priced)


def amount(cost: float, by: str, priced: bool) -> str:
    """A cost with its unit; with prices of one's own it has none."""
    unit, size = ("(priced)", 1e6) if priced and by == "traffic" else UNITS[by]
    return f"{cost / size:.4g} {unit}"


@dataclass(frozen=True)
class Outcome:
    """The standings, best first, and the target they were measured by."""

    race: Race
    goal: float
    standings: tuple[Standing, ...]
    why: str
    """What the target is."""

    @property
    def winner(self) -> Standing:
        return self.standings[0]

    @property
    def priced(self) -> bool:
        return self.race.facts.prices != (1.0, 1.0)


def outcome_of(race: Race, target: float | None = None) -> Outcome:
    """Every method at its best value; without a target it is a share of what FedAvg has at the end."""
    best = [race.ranked(race.of(method, race.left) or race.of(method, race.entries))[0] for method in race.methods]
    headline = best[0].trial.headline
    goal, why = (target, "the target that was given") if target is not None else measured(race, best)
    found = []
    for one in best:
        finished = one in race.left and not one.trial.stopped
        cost = race.cost_to(one, goal) if not one.failed else None
        names = (one.candidate.method, one.candidate.key, one.value, one.trial.rounds)
        figure = one.trial.figure if finished else None
        found.append(Standing(*names, figure, one.trial.told, cost, race.total(one), one))
    merit = {id(one): headline.merit(one.figure) if one.figure is not None else float("-inf") for one in found}
    ranked = sorted(found, key=lambda one: (one.cost is None, one.cost or 0.0, -merit[id(one)]))
    return Outcome(race, goal, tuple(ranked), why)


def measured(race: Race, best: Sequence[Entry]) -> tuple[float, str]:
    """The target that FedAvg sets; where it is not in the race, the worst of those that came to the end."""
    headline = best[0].trial.headline
    finished = [one for one in best if one in race.left and one.trial.figure is not None]
    baseline = race.of("fedavg", finished) or finished
    figures = [figure for one in baseline if (figure := averaged(one.trial.by_seed)) is not None]
    if not figures:
        return headline.goal(1.0, SHARE), "no run came to the end"
    worst = min(figures, key=headline.merit)
    return headline.goal(worst, SHARE), f"{SHARE:.0%} of what {baseline[0].candidate.method} has at the end"


HEADS = ("method", "best value", "rounds", "to the target", "at the end", "")


def rows_of(outcome: Outcome) -> list[list[str]]:
    by = outcome.race.facts.by
    return [
        [
            one.method,
            f"{one.key.rpartition('.')[2]} = {one.value:g}",
            str(one.rounds),
            one.text(by, outcome.priced),
            one.told,
            "" if one.figure is not None else one.entry.trial.stopped[:100],
        ]
        for one in outcome.standings
    ]


def table(outcome: Outcome) -> Table:
    """For the terminal."""
    made = Table(*HEADS, box=None, pad_edge=False, header_style="bold")
    for row in rows_of(outcome):
        made.add_row(*row)
    return made


def summary(outcome: Outcome) -> str:
    """One sentence."""
    text, by = outcome.winner.entry.trial.written(outcome.goal), outcome.race.facts.by
    judged = outcome.winner.entry.trial.headline.name
    if outcome.winner.cost is None:
        return f"Nobody reached a validation {judged} of {text} ({outcome.why}): a larger --budget, or another --target"
    others = [one.cost for one in outcome.standings[1:] if one.cost is not None]
    ahead = f", {1 - outcome.winner.cost / others[0]:.0%} less than the next" if others else ""
    spent = outcome.winner.text(by, outcome.priced)
    goal = f"a validation {judged} of {text} ({outcome.why})"
    return f"{outcome.winner.method} takes the least {by} to {goal}: {spent}{ahead}."


def as_record(outcome: Outcome) -> dict[str, Any]:
    """For machines."""
    return {
        "by": outcome.race.facts.by,
        "goal": outcome.goal,
        "goal_is": outcome.why,
        "winner": outcome.winner.method,
        "standings": [
            {
                "method": one.method,
                "value": {one.key: one.value},
                "rounds": one.rounds,
                "cost": one.cost,
                "figure": one.figure,
                "spent": one.spent,
            }
            for one in outcome.standings
        ],
        "trials": [
            {"name": one.trial.name, "rounds": one.trial.rounds, "stopped": one.trial.stopped or None}
            for one in outcome.race.entries
        ],
        "refused": dict(outcome.race.refused),
    }


def winner_file(outcome: Outcome, tables: Mapping[str, Any]) -> str:
    """The user's configuration with the winner's method and value, ready to run."""
    one = outcome.winner
    chosen: config.Tables = tables_for(tables, one.entry.candidate, one.value)
    return f"# {summary(outcome)}\n" + tomli_w.dumps(chosen)


def write(outcome: Outcome, tables: Mapping[str, Any], out: Path, plan: Mapping[str, Any]) -> None:
    """race.json, results.md, winner.toml and report.html (of those that came to the end)."""
    record = {"plan": dict(plan), **as_record(outcome)}
    files.write(out / RACE, (json.dumps(record, indent=2) + "\n").encode())
    text = f"# {out.name}\n\n{summary(outcome)}\n\n{markdown_table(HEADS, rows_of(outcome))}\n"
    text += "".join(f"\n{line}\n" for line in skipped(outcome.race.refused))
    files.write(out / "results.md", text.encode())
    files.write(out / "winner.toml", winner_file(outcome, tables).encode())
    folders = [
        attempt.folder for one in outcome.standings if one.figure is not None for attempt in one.entry.trial.attempts
    ]
    if folders:
        report.write(folders, out / "report.html", remarks=[summary(outcome)])
