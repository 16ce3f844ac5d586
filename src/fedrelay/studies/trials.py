"""The trials of a sweep: what they did, which is best, and how that is told."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from rich.table import Table
from rich.text import Text

from fedrelay.errors import BadInput
from fedrelay.report.measures import words as in_words
from fedrelay.runs.log import RoundLog
from fedrelay.runs.summary import Evaluate
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.names import check_name, folder_name
from fedrelay.tasks import LOSS, Headline

LONGEST = 160
"""How much of a reason is shown."""
HOPELESS = 0.5
"""A value is given up if its best figure so far has not reached this share of the best of all."""


@dataclass
class Attempt:
    """A trial with one seed."""

    folder: Path
    seed: int | None = None
    """None: the configuration's."""
    logs: list[RoundLog] = field(default_factory=list)
    test: Mapping[str, float] = field(default_factory=dict)
    """Loss and metrics on the test set; only those of the best trial are ever looked at."""

    def figures(self, name: str) -> list[float]:
        """Of this metric on the validation set, as rounds went by."""
        return [value for log in self.logs if (value := log.metrics.get(name)) is not None]


@dataclass
class Trial:
    """One combination of values, and what has become of it with every seed."""

    settings: Mapping[str, Any]
    attempts: list[Attempt]
    stopped: str = ""
    headline: Headline = Headline()
    """The metric to judge by."""
    evaluate: Evaluate = Evaluate()
    """Its figure is the mean of the last tests, as that of a summary."""
    label: str = ""
    """What it is called, where its settings would be too long a name."""

    @property
    def name(self) -> str:
        return self.label or ", ".join(
            f"{key.rpartition('.')[2]} = {text_of(value)}" for key, value in self.settings.items()
        )

    @property
    def rounds(self) -> int:
        """As far as all seeds have come."""
        return min((one.logs[-1].round if one.logs else 0 for one in self.attempts), default=0)

    @property
    def drops(self) -> int:
        """Clients that were lost in some round."""
        return sum(len(log.drops) for one in self.attempts for log in one.logs)

    @property
    def best(self) -> float | None:
        """The best figure so far, averaged over seeds."""
        return averaged([self.headline.best(found) for found in self._figures()])

    @property
    def figure(self) -> float | None:
        """The mean of the last tests, averaged over seeds: what trials are ranked by."""
        return averaged(self.by_seed)

    @property
    def by_seed(self) -> list[float | None]:
        """The mean of the last tests of every seed."""
        return [self.evaluate.mean(one.logs, self.headline.name) for one in self.attempts]

    @property
    def deviation(self) -> float | None:
        """Of the figure over seeds; None of fewer than two."""
        known = [value for value in self.by_seed if value is not None]
        return statistics.stdev(known) if 1 < len(known) == len(self.attempts) else None

    @property
    def test(self) -> float | None:
        """On the test set, averaged over seeds; None of every trial but the best."""
        return averaged([one.test.get(self.headline.name) for one in self.attempts])

    @property
    def merit(self) -> tuple[bool, float]:
        """What trials are ordered by: first those that got to the end, then by their figure."""
        if self.figure is None:
            return not self.stopped, float("-inf")
        return not self.stopped, self.headline.merit(self.figure)

    def _figures(self) -> list[list[float]]:
        return [one.figures(self.headline.name) for one in self.attempts]

    def written(self, value: float | None) -> str:
        """A figure as it is shown."""
        return "" if value is None else self.headline.text(value)

    @property
    def told(self) -> str:
        """The figure, with its deviation over seeds."""
        return self.written(self.figure) + ("" if self.deviation is None else f" ± {self.written(self.deviation)}")


def averaged(values: Sequence[float | None]) -> float | None:
    """The mean; None if one is missing."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def text_of(value: Any) -> str:
    """A value as a configuration says it; texts without quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def trials_of(grid: Mapping[str, Sequence[Any]], out: Path, seeds: Sequence[int] = ()) -> list[Trial]:
    """Every combination of values, with every seed (without any: with the configuration's)."""
    for key, values in (*grid.items(), *([("seeds", seeds)] if seeds else [])):
        if not values or len(set(map(text_of, values))) < len(values):
            raise BadInput(f"{key}: give different values to compare, such as 0.01,0.03,0.1, not {list(values)}")
    combinations = list(itertools.product(*grid.values()))
    trials = []
    for values, name in zip(combinations, folders_of(combinations), strict=True):
        folder = out / check_name(name, f"the folder {name!r} of a trial")
        attempts = [Attempt(folder / f"seed-{seed}", seed) for seed in seeds] or [Attempt(folder)]
        trials.append(Trial(dict(zip(grid, values, strict=True)), attempts))
    return trials


def folders_of(combinations: Sequence[Sequence[Any]]) -> list[str]:
    """The name of the folder of every combination: its values, as far as a file system takes them; all different."""
    plain = ["-".join(folder_name(str(value)).strip("_") for value in values) for values in combinations]
    return [
        name if name.strip(".") and plain.count(name) == 1 else f"{name}-{place}" for place, name in enumerate(plain)
    ]


def give_up_hopeless(trials: Sequence[Trial]) -> None:
    """Stop what is far behind the best. A loss (of any size) gives nobody up, nor does what may be negative."""
    going = [(trial, trial.best) for trial in trials if trial.best is not None and not trial.stopped]
    if not going or going[0][0].headline == LOSS or len({trial.headline for trial, _ in going}) > 1:
        return
    headline = going[0][0].headline
    leader = headline.best(best for _, best in going) or 0.0
    for trial, best in going if leader > 0 else ():
        if not headline.reaches(best, headline.goal(leader, HOPELESS)):
            text = f"hopeless: {trial.written(best)} at round {trial.rounds}, where the best has"
            trial.stopped = f"{text} {trial.written(leader)}"


def headings(trials: Sequence[Trial]) -> list[str]:
    metric = in_words(trials[0].headline.name)
    words = ["value", "rounds", f"validation {metric}", f"best {metric}"]
    return [*words, *(["dropped"] if any(trial.drops for trial in trials) else []), ""]


def cells_of(trial: Trial, trials: Sequence[Trial]) -> list[str]:
    drops = [str(trial.drops)] if any(one.drops for one in trials) else []
    return [trial.name, str(trial.rounds), trial.told, trial.written(trial.best), *drops]


def board(trials: Sequence[Trial]) -> Table:
    """How the trials stand."""
    result = Table(*headings(trials), box=None, pad_edge=False, header_style="bold")
    for trial in trials:
        why = trial.stopped if len(trial.stopped) <= LONGEST else trial.stopped[: LONGEST - 1] + "…"  # all in tune.json
        result.add_row(*map(Text, (*cells_of(trial, trials), why)))
    return result


def markdown(ranked: Sequence[Trial], title: str, remarks: Sequence[str]) -> str:
    """The trials for a document, best first."""
    rows = [[*cells_of(trial, ranked), trial.stopped] for trial in ranked]
    return f"# {title}\n\n{markdown_table(headings(ranked), rows)}\n\n" + "".join(f"- {text}\n" for text in remarks)


def as_record(trial: Trial) -> dict[str, Any]:
    """A trial as a record."""
    return {
        "settings": dict(trial.settings),
        "seeds": [one.seed for one in trial.attempts if one.seed is not None],
        "rounds": trial.rounds,
        "metric": trial.headline.name,
        "validation": trial.figure,
        "deviation": trial.deviation,
        "best": trial.best,
        "test": [dict(one.test) for one in trial.attempts if one.test] or None,
        "stopped": trial.stopped or None,
    }


def advice(ranked: Sequence[Trial], grid: Mapping[str, Sequence[Any]]) -> list[str]:
    """What to do with the result."""
    best = ranked[0]
    if best.stopped:
        return ["No value got to the end: try smaller ones."]
    edges = [
        f"{key} = {value} is the {'largest' if value == max(grid[key]) else 'smallest'} that was tried: try beyond it"
        for key, value in best.settings.items()
        if len(grid[key]) > 1 and all(map(is_number, grid[key])) and value in (min(grid[key]), max(grid[key]))
    ]
    chosen = " ".join(f"--set {quote(f'{key}={text_of(value)}')}" for key, value in best.settings.items())
    return [f"Best: {chosen}", *edges, *tested(best)]


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def tested(best: Trial) -> list[str]:
    """What the test set says of the best."""
    if best.test is None:
        return []
    found = [one.test[best.headline.name] for one in best.attempts]
    apart = f" ± {best.written(statistics.stdev(found))}" if len(found) > 1 else ""
    name, figure = in_words(best.headline.name), best.written(best.test)
    return [f"Its {name} on the test set, which nothing was chosen by: {figure}{apart}"]
