"""A small sweep: the same run with different values of one setting (or a few), hopeless values stopped early."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedrelay import config, files
from fedrelay.errors import BadInput, RunFailed
from fedrelay.runs.log import RoundLog

RUNGS = (0.25, 0.5, 1.0)
"""At these shares of the rounds, values are compared."""
LONGEST = 160
"""How much of a reason is shown."""
HOPELESS = 0.5
"""A value is given up if its best accuracy so far is below this share of the best of all."""


@dataclass
class Trial:
    """One combination of values, and what has become of it."""

    settings: Mapping[str, Any]
    folder: Path
    logs: list[RoundLog] = field(default_factory=list)
    stopped: str = ""

    @property
    def name(self) -> str:
        return ", ".join(f"{key.rpartition('.')[2]} = {value}" for key, value in self.settings.items())

    @property
    def rounds(self) -> int:
        return self.logs[-1].round if self.logs else 0

    @property
    def best(self) -> float | None:
        """The best accuracy so far."""
        return max((log.accuracy for log in self.logs if log.accuracy is not None), default=None)

    @property
    def loss(self) -> float | None:
        """The last test loss."""
        return next((log.loss for log in reversed(self.logs) if log.loss is not None), None)

    @property
    def merit(self) -> tuple[bool, float]:
        """What trials are ordered by: first those that got to the end; accuracy, or loss where there is none."""
        if self.best is not None:
            return not self.stopped, self.best
        return not self.stopped, float("-inf") if self.loss is None else -self.loss


def tune(
    tables: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    out: Path,
    live: Console,
    data_dir: Path | None = None,
) -> list[Trial]:
    """Run every combination of the grid in a folder of its own, best first in the result, which `tune.json` keeps.

    All run to a quarter of the rounds, those that are not hopeless to the half, and so on. A sweep that was interrupted
    goes on where it was.
    """
    trials = trials_of(grid, out)
    configured = {trial.name: changed(tables, trial.settings) for trial in trials}
    rounds = {config.build(one, data_dir).tables["rounds"] for one in configured.values()}
    with Live(console=live, refresh_per_second=4, transient=True) as display:
        for rung in RUNGS:
            for trial in trials:
                if not trial.stopped:
                    advance(trial, configured[trial.name], max(round(rung * max(rounds)), 1), display, trials, data_dir)
            if rung < RUNGS[-1]:
                give_up_hopeless(trials)
    ranked = sorted(trials, key=lambda trial: trial.merit, reverse=True)
    files.write(out / "tune.json", (json.dumps([as_record(t) for t in ranked], indent=2) + "\n").encode())
    return ranked


def trials_of(grid: Mapping[str, Sequence[Any]], out: Path) -> list[Trial]:
    """Every combination of values."""
    for key, values in grid.items():
        if not values or len(set(values)) < len(values):
            raise BadInput(f"{key}: give different values to compare, such as 0.01,0.03,0.1, not {list(values)}")
    combined = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [Trial(settings, out / "-".join(str(v) for v in settings.values())) for settings in combined]


def changed(tables: Mapping[str, Any], settings: Mapping[str, Any]) -> config.Tables:
    return config.override(tables, [f"{key}={json.dumps(value)}" for key, value in settings.items()])


def advance(
    trial: Trial, tables: Mapping[str, Any], goal: int, display: Live, all_: Sequence[Trial], data_dir: Path | None
) -> None:
    """Go on to round `goal`; a run that fails is over, with its reason."""
    # Built anew for every stretch, so that only one engine at a time holds its workers and memories.
    logs = config.build(tables, data_dir).record(trial.folder, resume=True).run()
    trial.logs = []
    try:
        for log in logs:
            trial.logs.append(log)
            display.update(board(all_))
            if log.round >= goal and goal < tables.get("rounds", config.NUMBERS["rounds"]):
                break
    except RunFailed as error:
        trial.stopped = f"failed: {error}"
    finally:
        logs.close()  # type: ignore[attr-defined]


def give_up_hopeless(trials: Sequence[Trial]) -> None:
    """Stop what is far behind the best."""
    going = [(trial, trial.best) for trial in trials if trial.best is not None and not trial.stopped]
    leader = max((best for _, best in going), default=0.0)
    for trial, best in going:
        if best < HOPELESS * leader:
            trial.stopped = f"hopeless: {best:.1%} at round {trial.rounds}, where the best has {leader:.1%}"


def board(trials: Sequence[Trial]) -> Table:
    """How the trials stand."""
    result = Table("value", "rounds", "best accuracy", "last loss", "", box=None, pad_edge=False, header_style="bold")
    for trial in trials:
        best = "" if trial.best is None else f"{trial.best:.1%}"
        loss = "" if trial.loss is None else f"{trial.loss:.4g}"
        why = trial.stopped if len(trial.stopped) <= LONGEST else trial.stopped[: LONGEST - 1] + "…"  # all in tune.json
        result.add_row(trial.name, str(trial.rounds), best, loss, Text(why))
    return result


def as_record(trial: Trial) -> dict[str, Any]:
    """A trial as a record."""
    return {
        "settings": dict(trial.settings),
        "folder": trial.folder.name,
        "rounds": trial.rounds,
        "best_accuracy": trial.best,
        "loss": trial.loss,
        "stopped": trial.stopped or None,
    }


def advice(ranked: Sequence[Trial], grid: Mapping[str, Sequence[Any]]) -> str:
    """What to do with the result."""
    best = ranked[0]
    if best.stopped:
        return "No value got to the end: try smaller ones."
    edges = [
        f"{key} = {value} is the {'largest' if value == max(grid[key]) else 'smallest'} that was tried: try beyond it"
        for key, value in best.settings.items()
        if len(grid[key]) > 1 and not isinstance(value, str) and value in (min(grid[key]), max(grid[key]))
    ]
    chosen = " ".join(f"--set {key}={value}" for key, value in best.settings.items())
    return "\n".join([f"Best: {chosen}", *edges])


def values_of(text: str, what: str) -> list[Any]:
    """The values of a list with commas: numbers where they are numbers."""
    found: list[Any] = []
    for part in text.split(","):
        try:
            found.append(json.loads(part))
        except ValueError:
            found.append(part.strip())
    if not all(part.strip() for part in text.split(",")):
        raise BadInput(f"{what} {text}: expected values with commas between, such as 0.01,0.03,0.1")
    return found
