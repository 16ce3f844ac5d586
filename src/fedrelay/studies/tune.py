"""A small sweep: the same run with different values of one setting (or a few), hopeless values stopped early.

Values are chosen by a validation set that is held out of the clients' training data. The test set is looked at once, at
the end, and only for the value that was chosen.
"""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live

from fedrelay import config, report
from fedrelay.errors import BadInput, DroppedClients, RunFailed, within
from fedrelay.report.figures import Figure
from fedrelay.report.time_left import TimeLeft
from fedrelay.runs import checkpoint
from fedrelay.runs.log import RoundLog
from fedrelay.runs.loop import deployed
from fedrelay.runs.testing import figures_of
from fedrelay.studies import sweep
from fedrelay.studies.beside import side_by_side, submit
from fedrelay.studies.claims import SWEEP, claim
from fedrelay.studies.names import refuse_links
from fedrelay.studies.on_cluster import refuse_engine
from fedrelay.studies.trials import Attempt, Trial, advice, as_record, board, give_up_hopeless, markdown, trials_of
from fedrelay.system import files
from fedrelay.tasks import Workspaces

RUNGS = (0.25, 0.5, 1.0)
"""At these shares of the rounds, values are compared."""
SHARE = 0.1
"""Of every client's training data, held out to choose by if the configuration does not say."""


@dataclass(frozen=True)
class Stretch:
    """A part of a run: up to round `goal`."""

    tables: config.Tables
    folder: Path
    goal: int
    data_dir: Path | None


class Shown(Protocol):
    """Where it is shown how trials stand."""

    def update(self) -> None: ...


@dataclass(frozen=True)
class Display:
    """How the trials stand, live, and how long they will take."""

    screen: Live
    trials: Sequence[Trial]
    left: TimeLeft

    def update(self) -> None:
        self.left.at(sum(len(one.logs) for trial in self.trials for one in trial.attempts))
        self.screen.update(Group(board(self.trials), self.left))


def tune(
    tables: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    out: Path,
    live: Console,
    *,
    seeds: Sequence[int] = (),
    jobs: int | None = None,
    ray: str | None = None,
    to_the_end: bool = False,
    data_dir: Path | None = None,
    force: bool = False,
) -> list[Trial]:
    """Run every combination of the grid (with every seed) in a folder of its own, best first in the result.

    All run to a quarter of the rounds, those that are not hopeless to the half, and so on; `to_the_end` gives nobody
    up, so that the picture has every value after all rounds. A sweep that was interrupted goes on where it was.
    `tune.json`, `results.md` and `report.html` keep what came out; those of another sweep in the folder are
    refused, unless by `force`. `jobs` and `ray` are those of `compare`.
    """
    if jobs is not None:
        within("jobs", jobs, least=1)
    trials = trials_of(grid, out, seeds)
    refuse_links(out, (attempt.folder for trial in trials for attempt in trial.attempts))
    claim(out, SWEEP, lambda found: covers(trials, found), force=force)
    tables = judged_by_validation(tables)
    for trial in trials:
        built = config.build(tables_of(tables, trial, trial.attempts[0]), data_dir)  # mistakes are refused at once
        if ray is not None:
            refuse_engine(built.engine)
        trial.headline, trial.evaluate, rounds = built.task.headline, built.evaluate, built.tables["rounds"]
    left = TimeLeft("rounds, at most", rounds * sum(len(trial.attempts) for trial in trials))
    with Live(console=live, refresh_per_second=4, transient=True) as screen, side_by_side(jobs, ray, out) as pool:
        for rung in RUNGS[-1:] if to_the_end else RUNGS:
            going = [trial for trial in trials if not trial.stopped]
            goal = max(round(rung * rounds), 1)
            advance(going, tables, goal, pool, display=Display(screen, trials, left), data_dir=data_dir)
            if goal < rounds:  # of one round there is nothing left to save
                give_up_hopeless(trials)
    ranked = sorted(trials, key=lambda trial: trial.merit, reverse=True)
    if not ranked[0].stopped:
        for attempt in ranked[0].attempts:
            attempt.test = tested(tables_of(tables, ranked[0], attempt), attempt.folder, data_dir)
    write(ranked, advice(ranked, grid), out, sweep.figures(trials, grid))
    return ranked


def covers(trials: Sequence[Trial], found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these trials are all that an earlier tune.json tells of, or more."""
    planned = [as_record(trial) for trial in trials]
    return all(
        any(old["settings"] == new["settings"] and set(old["seeds"]) <= set(new["seeds"]) for new in planned)
        for old in found
    )


def judged_by_validation(tables: Mapping[str, Any]) -> config.Tables:
    """The configuration with a validation set, by which models are judged as rounds go by."""
    data, tested = config.section_of(tables, "data"), config.section_of(tables, "evaluate")
    share = data.get("validation") or SHARE
    return {**tables, "data": {**data, "validation": share}, "evaluate": {**tested, "on": "validation"}}


def tables_of(tables: Mapping[str, Any], trial: Trial, attempt: Attempt) -> config.Tables:
    """The configuration of a trial with one seed."""
    changed = config.with_values(tables, trial.settings)
    return changed if attempt.seed is None else {**changed, "seed": attempt.seed}


def advance(
    going: Sequence[Trial],
    tables: config.Tables,
    goal: int,
    pool: Executor | None,
    *,
    display: Shown,
    data_dir: Path | None,
) -> None:
    """Go on to round `goal` with all seeds of these trials that are not there yet, for to begin a process only to see
    that takes longer than a round; one that fails is over, with its reason."""
    todo = {
        (place, number): Stretch(tables_of(tables, trial, one), one.folder, goal, data_dir)
        for place, trial in enumerate(going)
        for number, one in enumerate(trial.attempts)
        if not one.logs or one.logs[-1].round < goal
    }
    if pool is None:
        for (place, number), stretch in todo.items():
            attempt, attempt.logs = going[place].attempts[number], []
            try:
                for log in rounds_of(stretch):
                    attempt.logs.append(log)
                    display.update()
            except RunFailed as error:
                going[place].stopped = f"failed: {error}"
        return
    futures = {submit(pool, whole, stretch): place for place, stretch in todo.items()}
    for future in as_completed(futures):
        place, number = futures[future]
        going[place].attempts[number].logs, failure = future.result()
        going[place].stopped = going[place].stopped or failure
        display.update()


def rounds_of(stretch: Stretch) -> Iterator[RoundLog]:
    """The rounds up to the goal, also those of before."""
    # Built anew for every stretch, so that only one engine at a time holds its workers and memories.
    recorder = config.build(stretch.tables, stretch.data_dir).record(stretch.folder, resume=True)
    with warnings.catch_warnings(), closing(recorder.run()) as logs:  # type: ignore[type-var]
        warnings.simplefilter("ignore", DroppedClients)  # the board counts them
        for log in logs:
            yield log
            if log.round >= stretch.goal and log.round < recorder.rounds:
                return


def whole(stretch: Stretch) -> tuple[list[RoundLog], str]:
    """All of them, and why there are no more if the run failed."""
    logs: list[RoundLog] = []
    try:
        logs.extend(rounds_of(stretch))
    except RunFailed as error:
        return logs, f"failed: {error}"
    return logs, ""


def tested(tables: config.Tables, folder: Path, data_dir: Path | None) -> dict[str, float]:
    """Loss and metrics of the finished run in this folder on the test set."""
    experiment = config.build(tables, data_dir)
    found = checkpoint.load(folder / "checkpoint")
    assert found is not None  # the run has ended
    workspaces = Workspaces(experiment.task)
    predictor = deployed(found[0], experiment.algorithm)
    return figures_of(predictor, experiment.federation.evaluated, workspaces, experiment.federation)


def write(ranked: Sequence[Trial], remarks: Sequence[str], out: Path, pictures: Sequence[Figure] = ()) -> None:
    """The results beside the runs."""
    files.write(out / "tune.json", (json.dumps([as_record(trial) for trial in ranked], indent=2) + "\n").encode())
    files.write(out / "results.md", markdown(ranked, out.name, remarks).encode())
    folders = [attempt.folder for trial in ranked for attempt in trial.attempts if attempt.logs]
    if folders:
        report.write(folders, out / "report.html", remarks=remarks, pictures=pictures)


def values_of(text: str, what: str) -> list[Any]:
    """The values of a list with commas: numbers, lists and tables as TOML has them; what is none of that is a text."""
    parts = split_at_commas(text)
    if not all(parts):
        raise BadInput(f"{what} {text}: expected values with commas between, such as 0.01,0.03,0.1")
    return [value_of(part) for part in parts]


def value_of(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or thousands of brackets
        raise BadInput(f"{text:.60}…: the value cannot be read ({error})") from None
    return found if isinstance(found, bool | int | float | str | list | dict) else text  # dates are texts here


def split_at_commas(text: str) -> list[str]:
    """The parts between commas, but not between those in brackets, braces or quotes."""
    parts, depth, quoted = [""], 0, ""
    for letter in text:
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "\"'":
            quoted = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not quoted and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
