"""A race of the short-list: successive halving, judged by what the user pays for, within a budget.

Every method begins with its advised values; if the best of them is the outermost, one beyond it is tried, if the budget
has room for it. After a quarter and after half of the rounds the worse half is left behind. Trials are compared at what
the cheapest of them has spent by then (traffic, time or rounds), so that nobody is judged by what others have not paid
yet. FedAvg at its best value runs to the end, because the target is measured by it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID

from fedrelay import config
from fedrelay.errors import BadInput, within
from fedrelay.report.progress import Bars, bars
from fedrelay.runs import measures
from fedrelay.runs.log import RoundLog
from fedrelay.studies.advise.advice import tables_for
from fedrelay.studies.advise.budget import heats, work
from fedrelay.studies.advise.facts import BANDWIDTH, SPEED, Facts
from fedrelay.studies.advise.shortlist import Candidate
from fedrelay.studies.beside import side_by_side
from fedrelay.studies.names import check_name, folder_name, refuse_links
from fedrelay.studies.on_cluster import refuse_engine
from fedrelay.studies.trials import Attempt, Trial, averaged, board
from fedrelay.studies.tune import advance, judged_by_validation, tables_of

BEYOND = 3
"""So often a method gets one more value beyond its outermost."""
STEP = 3.0
SHARE = 0.95
"""Of FedAvg's figure at the end: the target, where none is given."""
TESTS = 50
"""About so many tests a run has."""
SMOOTH = 5
"""A target is reached when the mean over so many rounds is there, as [evaluate] has it."""


@dataclass(frozen=True)
class Entry:
    """A method with one value of what is tried."""

    candidate: Candidate
    value: float
    trial: Trial

    @property
    def failed(self) -> bool:
        """Whether it broke off by itself; one that was only left behind is still compared."""
        return self.trial.stopped.startswith("failed")


@dataclass
class Race:
    """What is raced for, and how far it is."""

    facts: Facts
    tables: config.Tables
    rounds: int
    entries: list[Entry] = field(default_factory=list)
    left: list[Entry] = field(default_factory=list)
    """Those that still run."""
    refused: dict[str, str] = field(default_factory=dict)
    """Methods that cannot be run like this, and why."""

    def spent(self, log: RoundLog) -> float:
        """What a round cost, in what the user wants to be small."""
        if self.facts.by == "rounds":
            return 1.0
        through = log.bytes["server_to_client"] + log.bytes["client_to_server"]
        if self.facts.by == "traffic":
            server, link = self.facts.prices
            return server * through + link * log.bytes["client_to_client"]
        served = through / self.facts.model_bytes * self.facts.line.server
        return max(log.simulated_seconds or 0.0, served)

    def curve(self, attempt: Attempt, headline: str) -> list[tuple[float, float]]:
        """What was spent until every test, and what it found (smoothed)."""
        points = [(log.round, value) for log in attempt.logs if (value := log.metrics.get(headline)) is not None]
        smooth = dict(measures.rolling_mean(points, SMOOTH))
        total, found = 0.0, []
        for log in attempt.logs:
            total += self.spent(log)
            if log.round in smooth:
                found.append((total, smooth[log.round]))
        return found

    def total(self, entry: Entry) -> float:
        """What a trial has spent so far: the mean over seeds."""
        return statistics.fmean(sum(map(self.spent, one.logs)) for one in entry.trial.attempts)

    def figure_at(self, entry: Entry, cost: float) -> float:
        """How good a trial was when it had spent this, so that more is better; nothing at all is worst."""
        headline = entry.trial.headline
        at = [
            next((value for spent, value in reversed(self.curve(one, headline.name)) if spent <= cost), None)
            for one in entry.trial.attempts
        ]
        mean = averaged(at)
        return float("-inf") if mean is None or entry.failed else headline.merit(mean)

    def cost_to(self, entry: Entry, goal: float) -> float | None:
        """What it took to reach the goal: the mean over seeds; None if one of them never did."""
        headline = entry.trial.headline
        return averaged(
            [
                next((spent for spent, value in self.curve(one, headline.name) if headline.reaches(value, goal)), None)
                for one in entry.trial.attempts
            ]
        )

    def ranked(self, entries: Sequence[Entry]) -> list[Entry]:
        """The best first, at what the cheapest of them has spent; those that failed are last, and not asked."""
        running = [self.total(one) for one in entries if not one.failed]
        common = min(running, default=0.0) * (1 + 1e-9)
        return sorted(entries, key=lambda one: self.figure_at(one, common), reverse=True)

    def of(self, method: str, entries: Sequence[Entry]) -> list[Entry]:
        return [one for one in entries if one.candidate.method == method]

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(one.candidate.method for one in self.entries))


class Display:
    """How trials stand, below a bar that says how much is done and how long the rest will take."""

    def __init__(self, progress: Progress, bar: TaskID, race: Race) -> None:
        self.progress, self.bar, self.race = progress, bar, race

    def update(self) -> None:
        if isinstance(self.progress, Bars):
            self.progress.beside = board([one.trial for one in self.race.entries])
        self.progress.update(self.bar, completed=sum(one.trial.rounds for one in self.race.entries))


@dataclass(frozen=True)
class Heats:
    """Where and how trials are run."""

    out: Path
    pool: Executor | None
    shown: Display
    seeds: tuple[int, ...]
    data_dir: Path | None
    each: bool
    """Whether values are left behind within every method only, so that all methods come to the end."""
    most: int | None = None
    """Rounds of all trials together."""

    def enter(self, race: Race, candidate: Candidate, value: float) -> None:
        """One more trial; a method that cannot be run like this is skipped, and remembered with the reason."""
        if candidate.method in race.refused:
            return
        label = f"{candidate.method}, {candidate.key.rpartition('.')[2]} {value:g}"
        folder = self.out / check_name(folder_name(f"{candidate.method}-{value:g}"), f"the folder of {label}")
        attempts = [Attempt(folder / f"seed-{seed}", seed) for seed in self.seeds] or [Attempt(folder)]
        refuse_links(self.out, (attempt.folder for attempt in attempts))
        changed = tables_for(race.tables, candidate, value)
        trial = Trial({key: changed[key] for key in ("algorithm", "local")}, attempts, label=label)
        known = race.of(candidate.method, race.entries)
        if known:  # only a number differs
            trial.headline, trial.evaluate = known[0].trial.headline, known[0].trial.evaluate
        else:
            try:
                built = config.build(tables_of(race.tables, trial, attempts[0]), self.data_dir)
            except BadInput as error:
                race.refused[candidate.method] = str(error)
                return
            if self.pool is not None:
                refuse_engine(built.engine)
            trial.headline, trial.evaluate = built.task.headline, built.evaluate
        entry = Entry(candidate, value, trial)
        race.entries.append(entry)
        race.left.append(entry)

    def advance(self, race: Race, goal: int) -> None:
        """Go on with all that still run."""
        going = [one.trial for one in race.left if not one.trial.stopped]
        advance(going, race.tables, goal, self.pool, display=self.shown, data_dir=self.data_dir)

    def widen(self, race: Race, goal: int) -> None:
        """A method whose best value is the outermost that was tried gets one beyond it, and so on, while the budget
        has room for it."""
        for _ in range(BEYOND):
            before = len(race.entries)
            for method in race.methods:
                if self.most is not None and work(len(race.entries) + 1, race.rounds) > self.most:
                    break
                mine = race.of(method, race.entries)
                values, best = [one.value for one in mine], race.ranked(mine)[0]
                if best.failed:
                    self.enter(race, best.candidate, rounded(min(values) / STEP))
                elif len(values) > 1 and best.value in (min(values), max(values)):
                    beyond = best.value * STEP if best.value == max(values) else best.value / STEP
                    self.enter(race, best.candidate, rounded(beyond))
            if len(race.entries) == before:
                return
            self.advance(race, goal)

    def leave_behind(self, race: Race, goal: int) -> None:
        """The worse half goes no further: of every method, or of all. FedAvg's best stays: it sets the target."""
        parts = [race.of(method, race.left) for method in race.methods] if self.each else [race.left]
        kept = [one for part in parts for one in race.ranked(part)[: (len(part) + 1) // 2]]
        if self.each and goal * 2 >= race.rounds:
            kept = [race.ranked(race.of(method, kept))[0] for method in race.methods if race.of(method, kept)]
        baseline = race.of("fedavg", race.left)
        if baseline and not race.of("fedavg", kept):
            kept.append(race.ranked(baseline)[0])
        chosen = {id(one) for one in kept}
        for one in race.left:
            if id(one) not in chosen and not one.trial.stopped:
                one.trial.stopped = f"left behind after {one.trial.rounds} rounds"
        race.left = [one for one in race.left if id(one) in chosen]


def rounded(value: float) -> float:
    return float(f"{value:.2g}")


def raced(
    tables: Mapping[str, Any],
    facts: Facts,
    candidates: Sequence[Candidate],
    out: Path,
    live: Console,
    *,
    rounds: int,
    most: int | None = None,
    each: bool = False,
    seeds: Sequence[int] = (),
    jobs: int | None = None,
    ray: str | None = None,
    data_dir: Path | None = None,
) -> Race:
    """Run candidates against one another, the last ones for so many rounds; what was interrupted goes on.

    `most` are the rounds of all trials together: beyond them no more values are tried. `each` brings every method to
    the end, with its best value. `seeds` repeat every trial; `jobs` and `ray` are those of `compare`.
    """
    if not candidates:
        raise BadInput("there is nothing to race: a short-list needs at least one method")
    if jobs is not None:
        within("jobs", jobs, least=1)
    race = Race(facts, prepared(tables, facts, rounds), rounds)
    trials = sum(len(one.values) for one in candidates)
    with bars(live) as progress, side_by_side(jobs, ray, out) as pool:
        bar = progress.add_task("race", total=work(trials, rounds), unit="rounds", said=f"by {facts.by}")
        running = Heats(out, pool, Display(progress, bar, race), tuple(seeds), data_dir, each, most)
        for candidate in candidates:
            for value in candidate.values:
                running.enter(race, candidate, value)
        if not race.entries:
            raise BadInput(next(iter(race.refused.values())))
        quarter, half = heats(rounds)
        running.advance(race, quarter)
        running.widen(race, quarter)
        running.leave_behind(race, quarter)
        running.advance(race, half)
        running.leave_behind(race, half)
        running.advance(race, rounds)
    return race


def prepared(tables: Mapping[str, Any], facts: Facts, rounds: int) -> config.Tables:
    """The configuration as it is raced: judged by a validation set, often enough; with a clock if time counts."""
    judged = judged_by_validation(tables)
    evaluate = {**judged["evaluate"], "every": max(round(rounds / TESTS), 1)}
    clock = {"speed": {"name": "constant", "value": SPEED}, "bandwidth": {"name": "constant", "value": BANDWIDTH}}
    timed = {} if facts.by != "time" or "latency" in tables else {"latency": clock}
    return {**judged, "rounds": rounds, "evaluate": evaluate, **timed}
