"""The numbers that pages and tables show, taken from the files of a run, and how they are written out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from rich import filesize

from fedrelay.runs.costs import DIRECTIONS
from fedrelay.runs.folder import Run
from fedrelay.runs.log import RoundLog, Summary
from fedrelay.runs.measures import parallelism
from fedrelay.runs.summary import tests_of, totals
from fedrelay.tasks import LOSS, METRICS, Headline

NONE = "–"
REFERENCE = "centralized"
UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
WORDS = {
    "top5": "top-5 accuracy",
    "f1": "F1",
    "auroc": "AUROC",
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R²",
    "iou": "IoU",
    "dice": "Dice",
}
"""What metrics are called where people read them, if that is another word."""


def labels(runs: Sequence[Run]) -> list[str]:
    """One name per run, all different: the folder's name, with as many parent folders as it takes."""
    names = [run.name for run in runs]
    paths = [run.folder.resolve() for run in runs]
    for depth in range(2, max((len(path.parts) for path in paths), default=0)):
        twice = {name for name in names if names.count(name) > 1}
        longer = [str(Path(*path.parts[-depth:])) for path in paths]
        names = [more if name in twice else name for name, more in zip(names, longer, strict=True)]
    counted = [f"{name} ({names[:place].count(name) + 1})" for place, name in enumerate(names)]
    names = [more if names.count(name) > 1 else name for name, more in zip(names, counted, strict=True)]
    # A file system may hold names that are not text.
    return [name.encode(errors="replace").decode() for name in names]


def algorithm(run: Run) -> str:
    if run.summary is not None:
        return run.summary.algorithm
    section = run.config.get("algorithm")
    return str(section.get("name", NONE)) if isinstance(section, Mapping) else NONE


def is_reference(run: Run) -> bool:
    """A centralised run is what the others are measured against; it sends nothing, so it cannot win on traffic."""
    return algorithm(run) == REFERENCE


def judged_on(runs: Sequence[Run]) -> str:
    """What the models of these runs were tested on, as the first word of a title."""
    found = [run.config.get("evaluate") for run in runs]
    chosen = {str(section.get("on", "test")) if isinstance(section, Mapping) else "test" for section in found}
    return " or ".join(sorted(chosen)).capitalize()


def once(runs: Sequence[Run], of: Callable[[RoundLog], float | None] | None = None) -> bool:
    """Whether no run that competes has more than one value (of what it is judged by, or of this), or will have: then
    there are no curves."""
    by = headline(runs).name
    value = of or (lambda log: log.metrics.get(by))
    racing = [run for run in runs if not is_reference(run)] or runs
    return all(
        sum(value(log) is not None for log in run.rounds) <= 1 and (run.summary is not None or planned(run) == 1)
        for run in racing
    )


def serverless(runs: Sequence[Run]) -> bool:
    """Whether clients sent to one another, and nobody to or from a server."""
    sent = [split(run, "messages") for run in runs]
    return any(each["client_to_client"] for each in sent) and not any(
        each["server_to_client"] + each["client_to_server"] for each in sent
    )


def planned(run: Run) -> int | None:
    """How many rounds were asked for."""
    rounds = run.config.get("rounds")
    return rounds if isinstance(rounds, int) else None


def progress(run: Run) -> str:
    """How far a run is that has not finished."""
    rounds = planned(run)
    done = run.rounds[-1].round if run.rounds else 0
    return f"round {done}{f' of {rounds}' if rounds else ''}"


def planned_seed(run: Run) -> int | None:
    """Of all that is random in the run."""
    seed = run.config.get("seed")
    return seed if isinstance(seed, int) else None


def shares(runs: Sequence[Run]) -> list[str]:
    """The shares of the target that any run was measured against, from small to large."""
    found = {key for run in runs if run.summary for key in (*run.summary.rounds_to, *run.summary.traffic_to)}
    return sorted(found, key=float)


def rounds_to(run: Run, share: str) -> int | None:
    return run.summary.rounds_to.get(share) if run.summary else None


def traffic_to(run: Run, share: str) -> int | None:
    return run.summary.traffic_to.get(share) if run.summary else None


def time_to(run: Run, share: str) -> float | None:
    """Seconds on the virtual clock; None also where a run has no clock."""
    return run.summary.time_to.get(share) if run.summary else None


def hops_to(run: Run, share: str) -> int | None:
    """How many visits had to wait for one another until the share of the target was reached."""
    reached = rounds_to(run, share)
    return None if reached is None else sum(log.depth for log in run.rounds if log.round <= reached)


def targets(runs: Sequence[Run]) -> list[float]:
    """The different targets of the runs that compete; with more than one, shares are not like for like."""
    racing, name = [run for run in runs if not is_reference(run)] or runs, headline(runs).name
    summaries = [run.summary for run in racing if run.summary and run.summary.metric == name]
    return sorted({summary.target for summary in summaries if summary.target is not None})


def split(run: Run, what: Literal["messages", "bytes"]) -> dict[str, int]:
    """Messages or bytes per direction, over the whole run so far."""
    whole = totals(run.rounds, what) if run.summary is None else sent(run.summary, what)
    return {key: whole[key] for key in DIRECTIONS}


def total(run: Run, what: Literal["messages", "bytes"]) -> int:
    return totals(run.rounds, what)["total"] if run.summary is None else sent(run.summary, what)["total"]


def sent(summary: Summary, what: Literal["messages", "bytes"]) -> Mapping[str, int]:
    return summary.messages if what == "messages" else summary.bytes


def traffic(run: Run) -> list[int]:
    """Bytes sent since the start, after every round."""
    return list(accumulate(sum(log.bytes[key] for key in DIRECTIONS) for log in run.rounds))


def clock(run: Run) -> list[float]:
    """Simulated seconds since the start, after every round; nothing for a run without a clock."""
    times = [log.simulated_seconds for log in run.rounds]
    return [] if None in times else list(accumulate(time for time in times if time is not None))


def relayed(run: Run) -> int:
    """Bytes that only passed the server on their way between clients."""
    return sum(log.relayed["bytes"] for log in run.rounds)


def describing(run: Run) -> int:
    """Bytes that told the server about the clients' data, before the first round."""
    return sum(log.describing["bytes"] for log in run.rounds)


def estimate(run: Run, key: str) -> float | None:
    """Of the whole run, by FedGSP's formulas."""
    return run.summary.estimates.get(key) if run.summary else None


def estimate_to(run: Run, share: str, key: str) -> float | None:
    """Until the share of the target was reached, by FedGSP's formulas."""
    return run.summary.estimates_to.get(key, {}).get(share) if run.summary else None


def groups(run: Run) -> float | None:
    """The mean number of groups."""
    return parallelism([log.groups for log in run.rounds])


def hops(run: Run) -> list[int]:
    """Visits that had to wait for one another since the start, after every round."""
    return list(accumulate(log.depth for log in run.rounds))


def depth(run: Run) -> int | None:
    """The longest chain of any round."""
    return max((log.depth for log in run.rounds), default=None)


def examples(run: Run) -> int:
    return run.summary.examples if run.summary else sum(log.examples for log in run.rounds)


def seconds(run: Run) -> float:
    return run.summary.seconds if run.summary else sum(log.seconds for log in run.rounds)


def drops(run: Run) -> int:
    return run.summary.drops if run.summary else sum(len(log.drops) for log in run.rounds)


def headline_of(run: Run) -> Headline:
    """What the run is judged by, as its summary says, or its configuration; otherwise accuracy, if it has some."""
    summary = run.summary
    if summary is not None:
        return Headline(summary.metric, summary.higher_is_better, summary.share)
    section = run.config.get("task")
    said = section.get("headline") if isinstance(section, Mapping) else None
    if isinstance(said, Mapping):  # of a run that was made in Python
        return Headline(str(said.get("name")), said.get("higher_is_better") is True, said.get("share") is True)
    if isinstance(said, str) and said in METRICS:
        metric = METRICS[said]()
        return Headline(metric.name, metric.higher_is_better, metric.share)
    return LOSS if said == "loss" or not tests_of(run.rounds, "accuracy") else Headline()


def headline(runs: Sequence[Run]) -> Headline:
    """What runs are compared by: the first one's headline; the loss only if none has another."""
    racing = [run for run in runs if not is_reference(run)] or runs
    found = [headline_of(run) for run in racing]
    return next((one for one in found if one != LOSS), LOSS)


def final(run: Run, by: Headline) -> float | None:
    if run.summary is not None and run.summary.metric == by.name:
        return run.summary.final
    return next(reversed(tests_of(run.rounds, by.name)), None)


def best(run: Run, by: Headline) -> float | None:
    if run.summary is not None and run.summary.metric == by.name:
        return run.summary.best
    return by.best(tests_of(run.rounds, by.name))


def mean_of_last(run: Run, by: Headline) -> float | None:
    return run.summary.mean if run.summary is not None and run.summary.metric == by.name else None


def mean_loss(run: Run) -> float | None:
    """On the test set, over the same tests as the mean of the headline."""
    return run.summary.mean_loss if run.summary else None


def attacked(runs: Sequence[Run]) -> list[str]:
    """What tells whether attacks work, where somebody attacks."""
    names = dict.fromkeys(name for run in runs if run.summary for name in run.summary.attacked)
    return [name for name in names if name != "visits"]


def told_of_attack(run: Run, name: str) -> float | None:
    return run.summary.attacked.get(name) if run.summary else None


def final_loss(run: Run) -> float | None:
    return next((log.loss for log in reversed(run.rounds) if log.loss is not None), None)


def settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The configuration as dotted keys and values as TOML writes them."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False, default=str)


def percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}".replace("%", " %")


def figure(value: float | None, by: Headline) -> str:
    """A value of the headline."""
    return percent(value) if by.share else plain(value)


def words(name: str) -> str:
    """A metric for people."""
    return WORDS.get(name, name.replace("_", " "))


def plain(value: float | None) -> str:
    return NONE if value is None else f"{value:.4g}"


def share_text(share: str) -> str:
    return f"{float(share) * 100:g} %"


def size(value: float | None) -> str:
    return NONE if value is None else filesize.decimal(int(value))


def unit(largest: float) -> tuple[int, str]:
    """The unit in which the largest of several sizes reads well: how many bytes it is, and its name."""
    return filesize.pick_unit_and_suffix(int(largest), list(UNITS), 1000)


def count(value: float | None) -> str:
    """With thin spaces between thousands, as SI writes them."""
    return NONE if value is None else f"{value:,.0f}".replace(",", "\u202f")


def duration(value: float | None) -> str:
    if value is None:
        return NONE
    if value < 100:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
