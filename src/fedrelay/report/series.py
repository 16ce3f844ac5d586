"""The numbers that a page draws its curves from, along whatever is chosen there: every run once, for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from fedrelay.report import measures
from fedrelay.report.figures import Figure, shortened, styles, wide_apart
from fedrelay.report.repeats import Repeat
from fedrelay.runs.folder import Run
from fedrelay.runs.measures import rolling_mean
from fedrelay.runs.summary import Evaluate

MOST_NUMBERS = 200_000
"""On a page, so that it stays small: of longer curves every second point is drawn, or every third …"""
MEANS = (5, 10, 25, 50, 100)
"""Rounds over which a page can average its curves: FedSeq's published code has 5, clustered sampling 2021 50."""
OTHER_AXES = ("traffic", "hops", "clock")
"""Figures of the headline that a page does not need beside the one whose axis can be chosen."""


def live(drawn: Sequence[Figure]) -> list[Figure]:
    """The curves as a page has them: those that it draws itself are without lines."""
    chosen = any(figure.key == "rounds" and figure.measure is not None for figure in drawn)
    return [
        figure
        if figure.measure is None
        else replace(figure, title=figure.measure.title, spec={"data": [], "layout": figure.spec["layout"]})
        for figure in drawn
        if not (chosen and figure.key in OTHER_AXES)
    ]


def series(runs: Sequence[Run], names: Sequence[str], curves: Sequence[Figure], together: Sequence[Repeat]) -> Any:
    """All that the page's script needs of these runs."""
    drawn = {figure.key: figure.measure for figure in curves if figure.measure is not None}
    by, step = measures.headline(runs), every(runs, 4 + len(drawn))
    return {
        "runs": [
            numbers(run, {key: measure.of for key, measure in drawn.items()}, step)
            | {"name": name, "label": escape(shortened(name)), "colour": look.colour, "dash": look.dash}
            | {"seed": measures.planned_seed(run), "reference": measures.is_reference(run)}
            for run, name, look in zip(runs, names, styles(runs), strict=True)
        ],
        "groups": [
            {"name": one.name, "label": escape(shortened(one.name)), "runs": list(one.places)} for one in together
        ],
        "axes": axes(runs),
        "curves": {
            key: {"factor": measure.factor, "hover": measure.hover, "title": measure.title}
            for key, measure in drawn.items()
        },
        "headline": {"higher": by.higher_is_better, "share": by.share, "name": measures.words(by.name)},
        "target": aim(runs),
        "smooth": smooth(runs),
        "step": step,
    }


def numbers(run: Run, drawn: Mapping[str, Any], step: int) -> dict[str, Any]:
    """Rounds in which something was measured, what had been spent by then, and what was measured."""
    values = {key: [of(log) for log in run.rounds] for key, of in drawn.items()}
    main = values.get("rounds", [])
    told = [place for place in range(len(run.rounds)) if any(column[place] is not None for column in values.values())]
    tested = [place for place in told if main and main[place] is not None]
    some = sorted({*tested[::step], *tested[-1:], *told[::step]})

    def at(column: Sequence[Any]) -> list[Any]:
        return [column[place] for place in some]

    clock = measures.clock(run)
    return {
        "round": at([log.round for log in run.rounds]),
        "traffic": at(measures.traffic(run)),
        "hops": at(measures.hops(run)),
        "clock": [rounded(value) for value in at(clock)] if clock else None,
        "values": {
            key: at(column) if key == "rounds" else [rounded(value) for value in at(column)]
            for key, column in values.items()
        },
    }


def rounded(value: float | None) -> float | None:
    """With as many digits as a picture can show."""
    return None if value is None else float(f"{value:.6g}")


def every(runs: Sequence[Run], columns: int) -> int:
    """Of so many points one is drawn."""
    return -(-sum(len(run.rounds) for run in runs) * columns // MOST_NUMBERS) or 1


def axes(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What curves can be drawn along; a clock only if there is one."""
    divisor, unit = measures.unit(max((measures.total(run, "bytes") for run in runs), default=0))
    merged = "mixed; there is no server" if measures.serverless(runs) else "merged"
    found: list[tuple[str, str, str, str, int, Sequence[float]]] = [
        ("round", "Rounds", "Round", f"How many times models were {merged}.", 1, [len(run.rounds) for run in runs]),
        (
            *("traffic", "Traffic", f"Traffic since the start ({unit})", "All that was sent, whoever sent it to whom."),
            *(divisor, [max(measures.traffic(run), default=0) for run in runs]),
        ),
        (
            *("hops", "Sequential time", "Hops one after another"),
            *("Clients in a chain wait for one another; chains run side by side.", 1),
            [max(measures.hops(run), default=0) for run in runs],
        ),
    ]
    if any(measures.clock(run) for run in runs):
        ends = [max(measures.clock(run), default=0.0) for run in runs]
        words = "As the speeds and bandwidths of [latency] have it."
        found.append(("clock", "Simulated time", "Simulated seconds since the start", words, 1, ends))
    keys = ("key", "label", "title", "caption", "divisor")
    return [dict(zip(keys, one, strict=False)) | {"log": wide_apart(one[5], 20)} for one in found]


def aim(runs: Sequence[Run]) -> float | None:
    """The target that a page begins with: the largest share of the runs' own that some run reached; without one, what
    all of them reach, in two digits."""
    by, targets, shares = measures.headline(runs), measures.targets(runs), measures.shares(runs)
    reached = [one for one in shares if any(measures.rounds_to(run, one) is not None for run in runs)]
    if len(targets) == 1 and reached:
        return by.goal(targets[0], float(reached[-1]))
    tests = [
        [(log.round, value) for log in run.rounds if (value := log.metrics.get(by.name)) is not None] for run in runs
    ]
    best = [by.best([value for _, value in rolling_mean(one, smooth(runs))]) for one in tests if one]
    least = min((value for value in best if value is not None), key=by.merit, default=None)
    return None if least is None else two_digits(least, up=not by.higher_is_better)


def two_digits(value: float, *, up: bool) -> float:
    """Rounded to the easier side."""
    if not value:
        return value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return float(f"{(math.ceil if up else math.floor)(value / unit) * unit:.3g}")


def smooth(runs: Sequence[Run]) -> int:
    """Over how many rounds the runs themselves averaged what is compared with the target; 1 if they differ."""
    sections = [run.config.get("evaluate") for run in runs]
    found = {
        one.get("smooth", Evaluate().smooth) if isinstance(one, Mapping) else Evaluate().smooth for one in sections
    }
    only = found.pop() if len(found) == 1 else 1
    return only if isinstance(only, int) and only > 0 else 1


def means(runs: Sequence[Run]) -> list[int]:
    """The numbers of rounds over which curves may be averaged: what the runs have, and what is less than all rounds."""
    most = max((len(run.rounds) for run in runs), default=0)
    return sorted({1, smooth(runs), *(rounds for rounds in MEANS if rounds < most)})
