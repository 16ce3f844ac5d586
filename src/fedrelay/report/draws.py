"""Pictures of who was drawn: classes in a round, different clients, and how far weights stray (clustered sampling 2021,
Fig. 1, top)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import accumulate

from fedrelay.report import measures
from fedrelay.report.figures import FEW, Figure, Spec, axes, shortened, styles
from fedrelay.runs.folder import Run
from fedrelay.runs.log import RoundLog

Values = Callable[[RoundLog], float | None]


def curves(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
    """Classes in a round, where they are known; more about the draws if any run draws otherwise than uniformly."""
    found: list[Figure] = []
    if measures.once(runs):
        return found  # there are no rounds to compare
    if any(log.classes is not None for run in runs for log in run.rounds):
        words = "Different classes among the examples of all clients that took part."
        found.append(Figure("classes", "Classes in a round", words, _spec(runs, names, "Classes", (_classes, None))))
    if any(_sampler(run) not in (None, "uniform") for run in runs):
        words = "Mean since the start; dotted: what theory expects of the draws."
        distinct = _drawn("distinct"), _drawn("expected_distinct")
        spread = _drawn("spread"), _drawn("expected_spread")
        about = "Sum over clients of (weight − share of the data)². " + words
        found.append(Figure("distinct", "Different draws in a round", words, _spec(runs, names, "Draws", distinct)))
        found.append(Figure("spread", "Variance of the weights", about, _spec(runs, names, "Variance", spread)))
    return found


def _sampler(run: Run) -> str | None:
    section = run.config.get("algorithm")
    sampler = section.get("sampler") if isinstance(section, Mapping) else None
    return sampler.get("name") if isinstance(sampler, Mapping) else sampler


def _classes(log: RoundLog) -> float | None:
    return log.classes


def _drawn(key: str) -> Values:
    return lambda log: log.sampling.get(key)


def _spec(runs: Sequence[Run], names: Sequence[str], title: str, values: tuple[Values, Values | None]) -> Spec:
    """One line per run, and a dotted one of what was expected, as means since the start; without it as they are."""
    data: list[Spec] = []
    measured, expected = values
    for place, (run, name, style) in enumerate(zip(runs, names, styles(runs), strict=True)):
        for value, dash in ((measured, style.dash), (expected, "dot")):
            if value is None:
                continue
            points = [(log.round, y) for log in run.rounds if (y := value(log)) is not None]
            heights = [y for _, y in points]
            if expected is not None:
                heights = [total / count for count, total in enumerate(accumulate(heights), start=1)]
            trace = {
                "type": "scatter",
                "mode": "lines+markers" if len(points) <= FEW and dash != "dot" else "lines",
                "name": escape(shortened(name)) + (", expected" if value is expected else ""),
                "meta": place,
                "x": [x for x, _ in points],
                "y": heights,
                "line": {"color": style.colour, "dash": dash, "width": 2 if value is measured else 1.5},
                "marker": {"size": 5},
                "hovertemplate": "%{y:.4~g}",
            }
            data.append(trace)
    layout = axes("Round", title)
    layout["hovermode"] = "x unified"
    layout["yaxis"]["rangemode"] = "tozero"
    return {"data": data, "layout": layout}
