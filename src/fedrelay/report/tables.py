"""The tables of a page, as text ready to be laid out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fedrelay.report import measures
from fedrelay.report.against import Against, base_for, methods_of, times
from fedrelay.runs.folder import Run
from fedrelay.runs.measures import parallelism_ratio, speed_up
from fedrelay.runs.summary import counted
from fedrelay.tasks import LOSS
from fedrelay.types import BOUNDED, DISAGREED, SKIPPED

MANY = 12


@dataclass(frozen=True)
class Column:
    """One measure of every run, as text; `best` are the places of the runs that lead."""

    group: str
    title: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Lost:
    """All clients of one run that were lost for one reason."""

    run: int
    name: str
    reason: str
    times: int
    clients: str
    rounds: str


@dataclass(frozen=True)
class Setting:
    """One key of the configuration, in every run; None where a run does not have it."""

    key: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def reached(runs: Sequence[Run], against: Against = Against()) -> list[Column]:
    """How good the runs became, and what it took them to reach each share of the target."""
    by, steps = measures.headline(runs), measures.shares(runs)

    def column(
        group: str, title: str, of: Callable[[Run], float | None], text: Callable[..., str], sign: int
    ) -> Column:
        values = [of(run) for run in runs]
        return Column(group, title, tuple(map(text, values)), _leading(runs, values, sign))

    title, sign = f"{measures.judged_on(runs)} {measures.words(by.name)}", -1 if by.higher_is_better else 1
    figures = {"final": measures.final, "best": measures.best, "mean of last": measures.mean_of_last}
    if by == LOSS:
        del figures["best"], figures["mean of last"]
    written = partial(measures.figure, by=by)
    found = [column(title, words, partial(of, by=by), written, sign) for words, of in figures.items()]
    if by != LOSS and any(measures.mean_loss(run) is not None for run in runs):
        loss = f"{measures.judged_on(runs)} loss"
        found.append(column(loss, "mean of last", measures.mean_loss, measures.plain, 1))
    found += among_attackers(runs)
    costs: list[tuple[str, Callable[..., float | None], Callable[..., str]]] = [
        ("Rounds to", measures.rounds_to, measures.count),
        ("Traffic to", measures.traffic_to, measures.size),
        ("Simulated time to", measures.time_to, measures.duration),
        ("Hops in sequence to", measures.hops_to, measures.count),
    ]
    for group, of, text in costs:
        if of is measures.time_to and not any(map(measures.clock, runs)):
            continue
        found += [column(group, measures.share_text(share), partial(of, share=share), text, 1) for share in steps]
        if of is measures.rounds_to:
            found += speed_ups(runs, against)
    return found


def among_attackers(runs: Sequence[Run]) -> list[Column]:
    """What attacks did, as means of the same tests as the accuracy; nobody leads, for attacks differ."""
    names = measures.attacked(runs)
    found = []
    for name in names:
        cells = tuple(measures.percent(measures.told_of_attack(run, name)) for run in runs)
        found.append(Column("Among attackers", measures.words(name), cells))
    visits = [measures.told_of_attack(run, "visits") for run in runs]
    if any(value is not None for value in visits):
        found.append(Column("Among attackers", "their visits", tuple(map(measures.count, visits))))
    return found


def speed_ups(runs: Sequence[Run], against: Against) -> list[Column]:
    """How many times as fast as the run they are measured against all are (FedSeq 2022, Table II); empty if there is no
    such run. A reference has another kind of round."""
    name = against.found(methods_of(runs)).speed
    if name is None:
        return []
    found = []
    for share in measures.shares(runs):
        values = []
        for run in runs:
            base = None if measures.is_reference(run) else base_for(run, runs, name)
            taken = None if base is None else measures.rounds_to(base, share)
            values.append(speed_up(measures.rounds_to(run, share), taken))
        cells = tuple(map(times, values))
        found.append(Column(f"Speed-up over {name} to", measures.share_text(share), cells, _leading(runs, values, -1)))
    return found


ESTIMATED: dict[str, tuple[str, Callable[..., str]]] = {
    "computing_seconds": ("Computing time to", measures.duration),
    "communication_seconds": ("Communication time to", measures.duration),
    "traffic_bytes": ("Traffic to", measures.size),
}


def estimated(runs: Sequence[Run]) -> list[Column]:
    """Time and traffic to each share of the target by FedGSP's formulas (2022, Fig. 6); empty if no run has them."""
    if not any(run.summary and run.summary.estimates_to for run in runs):
        return []
    found = []
    for key, (group, text) in ESTIMATED.items():
        for share in measures.shares(runs):
            values = [None if measures.is_reference(run) else measures.estimate_to(run, share, key) for run in runs]
            cells = tuple(map(text, values))
            found.append(Column(group, measures.share_text(share), cells, _leading(runs, values, 1)))
    return found


def costs(runs: Sequence[Run], against: Against = Against()) -> list[Column]:
    """What the whole of every run cost. Nobody leads: runs need not have had the same number of rounds."""
    found = [
        Column("Work", "rounds", tuple(measures.count(len(run.rounds)) for run in runs)),
        Column("Work", "examples", tuple(measures.count(measures.examples(run)) for run in runs)),
        Column("Sent", "messages", tuple(measures.count(measures.total(run, "messages")) for run in runs)),
        Column("Sent", "traffic", tuple(measures.size(measures.total(run, "bytes")) for run in runs)),
        Column("Sent", "relayed by the server", tuple(measures.size(measures.relayed(run)) for run in runs)),
        Column("Sent", "to describe clients", tuple(measures.size(measures.describing(run)) for run in runs)),
        Column("Groups", "mean number", tuple(measures.plain(measures.groups(run)) for run in runs)),
        *parallelism(runs, against),
        Column("Hops", "longest chain", tuple(measures.count(measures.depth(run)) for run in runs)),
        Column("Hops", "in sequence", tuple(measures.count(sum(log.depth for log in run.rounds)) for run in runs)),
        Column("Time", "on this machine", tuple(measures.duration(measures.seconds(run)) for run in runs)),
        Column("Time", "examples per second", tuple(map(_speed, runs))),
        Column("Dropped", "clients", tuple(measures.count(measures.drops(run)) for run in runs)),
    ]
    times = [next(reversed(measures.clock(run)), None) for run in runs]
    if any(time is not None for time in times):
        found.insert(-3, Column("Time", "simulated", tuple(map(measures.duration, times))))
    found += defences(runs) + private(runs)
    for title in ("computing", "communication"):
        values = [measures.estimate(run, f"{title}_seconds") for run in runs]
        if any(value is not None for value in values):
            found.append(Column("Estimated (FedGSP)", title, tuple(map(measures.duration, values))))
    return found


DEFENCES = {BOUNDED: "hops shortened", SKIPPED: "models not gone on with", DISAGREED: "pairs left out"}


def defences(runs: Sequence[Run]) -> list[Column]:
    """What defences inside chains did, where a run has any."""
    found = []
    for name, title in DEFENCES.items():
        values = [counted([log.defence for log in run.rounds]).get(name) for run in runs]
        if any(value is not None for value in values):
            found.append(Column("Defence", title, tuple(map(measures.count, values))))
    return found


def private(runs: Sequence[Run]) -> list[Column]:
    """What clients have spent of their privacy, where a run has any."""
    told = [run.rounds[-1].privacy if run.rounds else {} for run in runs]
    if not any(told):
        return []
    epsilons = tuple(
        measures.NONE if not one else "∞" if one["epsilon"] is None else f"{one['epsilon']:.3g}" for one in told
    )
    deltas = tuple(f"{one['delta']:.3g}" if one else measures.NONE for one in told)
    most = tuple(measures.count(one.get("releases")) for one in told)
    return [
        Column("Privacy", "epsilon", epsilons),
        Column("Privacy", "delta", deltas),
        Column("Privacy", "most releases of a client", most),
    ]


def parallelism(runs: Sequence[Run], against: Against) -> list[Column]:
    """How many times as many groups every run has as the one it is measured against (FedSeq journal 2024, Table 5)."""
    name = against.found(methods_of(runs)).parallelism
    if name is None:
        return []
    values = []
    for run in runs:
        base = None if measures.is_reference(run) else base_for(run, runs, name)
        values.append(None if base is None else parallelism_ratio(measures.groups(run), measures.groups(base)))
    return [Column("Groups", f"times {name}'s", tuple(map(times, values)))]


def dropped(runs: Sequence[Run], names: Sequence[str]) -> list[Lost]:
    """Who was lost and why: one row per run and reason, the most frequent reason of a run first."""
    found = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        reasons: dict[str, list[tuple[int, int]]] = {}
        for log in run.rounds:
            for drop in log.drops:
                reasons.setdefault(drop.reason, []).append((drop.client, log.round))
        for reason, lost in sorted(reasons.items(), key=lambda item: -len(item[1])):
            clients = _few(sorted({client for client, _ in lost}))
            rounds = _few(sorted({number for _, number in lost}))
            found.append(Lost(place, name, reason, len(lost), clients, rounds))
    return found


def settings(runs: Sequence[Run]) -> list[Setting]:
    """Every key of any configuration, in the order of the files."""
    flat = [dict(measures.settings(run.config)) for run in runs]
    keys = dict.fromkeys(key for config in flat for key in config)
    return [Setting(key, tuple(config.get(key) for config in flat)) for key in keys]


def _speed(run: Run) -> str:
    return measures.count(run.summary.examples_per_second) if run.summary else measures.NONE


def _leading(runs: Sequence[Run], values: Sequence[float | None], sign: int) -> frozenset[int]:
    """The places with the smallest value (the largest for sign -1); none when there is nothing to compare."""
    racing = {
        place: sign * value
        for place, (run, value) in enumerate(zip(runs, values, strict=True))
        if value is not None and not measures.is_reference(run)
    }
    if sum(not measures.is_reference(run) for run in runs) < 2 or not racing:
        return frozenset()
    return frozenset(place for place, value in racing.items() if value == min(racing.values()))


def _few(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:MANY]))
    return text if len(numbers) <= MANY else f"{text} and {len(numbers) - MANY} more"
