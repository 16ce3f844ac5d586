"""The figures of a whole run, from what its rounds did."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from fedrelay.errors import within
from fedrelay.runs import measures
from fedrelay.runs.costs import DIRECTIONS, Estimate
from fedrelay.runs.log import RoundLog, Summary
from fedrelay.tasks import Headline


@dataclass(frozen=True)
class Evaluate:
    """When the model is tested, on what, and what is read off the curve.

    `on` is the central test set, or the validation set that `[data] validation` holds out of the clients' data.
    `rounds_to` in the summary is the first round whose headline (accuracy, unless the task has another), averaged over
    the evaluations of the last `smooth` rounds, reaches a share of `target` (what one hopes for, such as the
    centralised result). The target of an error is reached from above: 90 % of 9 are 10. Without a target it is 1 for
    what lies between 0 and 1, and nothing is measured against it otherwise. `mean` (and `accuracy`) in the summary is
    the mean of the `last` evaluations, or, if `last_rounds` is given, of all evaluations in so many last rounds,
    whatever `last` is: FedSeq's papers report 100, 25 or 5 of them. Rounds without an evaluation count nothing: with
    `every = 5` there are 20 in 100 rounds; and the last round always has one. Where the test set is very large,
    `sample` says how many of its examples, drawn once from the seed of the run, are tested on the way; after the last
    round it is tested whole. `clients_every` also evaluates the model on the examples of all clients, every so many
    rounds and after the last one: the global training loss Σ p_i L_i and the deviations of loss and headline over
    clients (clustered sampling 2021, Figs. 1 and 2). A pass over all training data takes its time, so it is not done
    unless it is asked for.
    """

    every: int = 5
    on: Literal["test", "validation"] = "test"
    target: float | None = None
    shares: tuple[float, ...] = (0.7, 0.8, 0.9)
    smooth: int = 5
    last: int = 5
    last_rounds: int | None = None
    sample: int | None = None
    clients_every: int | None = None

    def __post_init__(self) -> None:
        if self.sample is not None:
            within("sample", self.sample, least=1)
        if self.clients_every is not None:
            within("clients_every", self.clients_every, least=1)
        within("every", self.every, least=1)
        if self.target is not None:
            within("target", self.target, above=0)
        within("smooth", self.smooth, least=1)
        within("last", self.last, least=1)
        if self.last_rounds is not None:
            within("last_rounds", self.last_rounds, least=1)
        for share in self.shares:
            within("every one of shares", share, above=0, most=1)

    def of(self, headline: Headline) -> Evaluate:
        """The same for this headline: the target in its range, and 1 if none is said of what cannot be more."""
        if not headline.share:
            return self
        target = 1.0 if self.target is None else self.target
        within("target", target, above=0, most=1)
        return replace(self, target=target)

    def mean(self, logs: Sequence[RoundLog], name: str) -> float | None:
        """The mean of this figure over the last tests of these rounds; None if it was never tested."""
        if self.last_rounds is None:
            last = tests_of(logs, name)[-self.last :]
        else:
            last = tests_of(logs[-self.last_rounds :], name)
        return sum(last) / len(last) if last else None


def summarise(
    name: str,
    logs: Sequence[RoundLog],
    evaluate: Evaluate,
    *,
    params_sha256: str,
    headline: Headline = Headline(),
    estimate: Estimate | None = None,
) -> Summary:
    """The figures of these rounds, of the method of this name; with time and traffic as `estimate` has them."""
    evaluate = evaluate.of(headline)
    tested = tests_of(logs, headline.name)
    accuracies = tests_of(logs, "accuracy")
    reached = {f"{share:g}": reached_in(logs, evaluate, share, headline) for share in evaluate.shares}
    until = {share: None if round is None else logs[:round] for share, round in reached.items()}
    examples, seconds = sum(log.examples for log in logs), sum(log.seconds for log in logs)
    return Summary(
        algorithm=name,
        rounds=len(logs),
        accuracy=evaluate.mean(logs, "accuracy"),
        best_accuracy=max(accuracies, default=None),
        final_accuracy=accuracies[-1] if accuracies else None,
        final_loss=logs[-1].loss if logs else None,
        jump=mean([abs(after - before) for before, after in pairwise(tested)]),
        classes=mean([log.classes for log in logs if log.classes is not None]),
        target=evaluate.target,
        rounds_to=reached,
        traffic_to={share: None if some is None else totals(some, "bytes")["total"] for share, some in until.items()},
        time_to={share: None if some is None else simulated(some) for share, some in until.items()},
        messages=totals(logs, "messages"),
        bytes=totals(logs, "bytes"),
        relayed=added([log.relayed for log in logs]),
        describing=added([log.describing for log in logs]),
        parallelism=measures.parallelism([log.groups for log in logs]),
        estimates={} if estimate is None else estimate(logs),
        simulated_seconds=simulated(logs),
        depth=sum(log.depth for log in logs),
        examples=examples,
        seconds=seconds,
        examples_per_second=examples / seconds if seconds else None,
        drops=sum(len(log.drops) for log in logs),
        params_sha256=params_sha256,
        metric=headline.name,
        higher_is_better=headline.higher_is_better,
        share=headline.share,
        mean=evaluate.mean(logs, headline.name),
        best=headline.best(tested),
        final=tested[-1] if tested else None,
        mean_loss=evaluate.mean(logs, "loss"),
        privacy=logs[-1].privacy if logs else {},
        defence=counted([log.defence for log in logs]),
        over_clients=logs[-1].over_clients if logs else {},
        estimates_to={} if estimate is None else estimated_to(until, estimate),
    )


def estimated_to(
    until: Mapping[str, Sequence[RoundLog] | None], estimate: Estimate
) -> dict[str, dict[str, float | None]]:
    """Time and traffic of the rounds until each share of the target was reached (FedGSP 2022, Fig. 6)."""
    found = {share: None if logs is None else estimate(logs) for share, logs in until.items()}
    return {
        name: {share: None if one is None else one[name] for share, one in found.items()} for name in Estimate.NAMES
    }


def tests_of(logs: Sequence[RoundLog], name: str) -> list[float]:
    """This figure in every round that was tested."""
    return [value for log in logs if (value := log.metrics.get(name)) is not None]


def mean(values: Sequence[float]) -> float | None:
    """Of what there is."""
    return statistics.fmean(values) if values else None


def simulated(logs: Sequence[RoundLog]) -> float | None:
    """The time these rounds took on the virtual clock; None if there was none."""
    times = [log.simulated_seconds for log in logs]
    return None if None in times else float(sum(time for time in times if time is not None))


def reached_in(logs: Sequence[RoundLog], evaluate: Evaluate, share: float, headline: Headline) -> int | None:
    """The round in which this share of the target was reached, if there is one."""
    if evaluate.target is None:
        return None
    return rounds_to(logs, headline.goal(evaluate.target, share), evaluate.smooth, headline)


def rounds_to(logs: Sequence[RoundLog], goal: float, smooth: int, headline: Headline = Headline()) -> int | None:
    """The first round whose headline, averaged over the evaluations of the last `smooth` rounds, is at `goal`."""
    points = [(log.round, value) for log in logs if (value := log.metrics.get(headline.name)) is not None]
    curve = measures.rolling_mean(points, smooth)
    return next((round for round, value in curve if headline.reaches(value, goal)), None)


def totals(logs: Sequence[RoundLog], what: Literal["messages", "bytes"]) -> dict[str, int]:
    """Messages or bytes of these rounds by direction, and in all."""
    splits = [log.messages if what == "messages" else log.bytes for log in logs]
    by = {direction: sum(split[direction] for split in splits) for direction in DIRECTIONS}
    return {**by, "total": sum(by.values())}


def counted(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The sums of numbers by name."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}


def added(parts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Messages and bytes of one kind."""
    return {what: sum(part.get(what, 0) for part in parts) for what in ("messages", "bytes")}
