"""The curves of a report as figures for a paper: SVG and PDF, as wide as a column, in letters of the right size."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.report import measures
from fedrelay.report.columns import COLUMNS, HEIGHT, Column
from fedrelay.report.federations import apart
from fedrelay.report.figures import LOSS, Measure, measure_of, styles
from fedrelay.report.repeats import Repeat, repeats
from fedrelay.report.series import axes, smooth
from fedrelay.runs.folder import Run
from fedrelay.runs.measures import rolling_mean

DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
ALONG: dict[str, Callable[[Run], Sequence[float]]] = {
    "round": lambda run: [log.round for log in run.rounds],
    "traffic": measures.traffic,
    "hops": measures.hops,
    "clock": measures.clock,
}


def write_figures(runs: Sequence[Run], out: Path, column: str = "ieee") -> list[Path]:
    """The headline along every axis, and the test loss over rounds, federation by federation; bands go from the
    smallest to the largest of the seeds. Curves are averaged over as many rounds as the runs were judged by."""
    if column not in COLUMNS:
        raise BadInput(f"there is no column {column!r}: one of {', '.join(COLUMNS)}")
    names, found = measures.labels(runs), apart(runs)
    written: list[Path] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        with plotting().rc_context(look(COLUMNS[column].points)):
            for number, one in enumerate(found, start=1):
                mine, called = [runs[place] for place in one.places], [names[place] for place in one.places]
                before = f"{number}-" if len(found) > 1 else ""
                for name, figure in drawn(mine, called, COLUMNS[column]).items():
                    written += kept(figure, out / f"{before}{name}")
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}): name another folder with --figures") from None
    return written


def kept(figure: Any, path: Path) -> list[Path]:
    """The figure in both kinds; without a date, so that the same runs make the same files."""
    dates = {".svg": "Date", ".pdf": "CreationDate"}
    paths = [path.with_name(f"{path.name}{ending}") for ending in dates]
    for one in paths:
        figure.savefig(one, metadata={dates[one.suffix]: None})
    return paths


def look(points: float) -> dict[str, Any]:
    """Letters of one size, as text that can be searched; thin lines."""
    letters = ("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    return {
        **dict.fromkeys(letters, points),
        "font.family": "sans-serif",
        "font.sans-serif": ["Arial", "Helvetica", "Liberation Sans", "DejaVu Sans"],
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
        "svg.hashsalt": "fedrelay",
        "axes.linewidth": 0.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.linewidth": 0.4,
        "grid.color": "#dddddd",
    }


def drawn(runs: Sequence[Run], names: Sequence[str], column: Column) -> dict[str, Any]:
    """By name: the headline along what there is, and the loss."""
    by, together = measures.headline(runs), repeats(runs, names)
    main = measure_of(by.name, by)
    found = {}
    for axis in axes(runs):
        figure = curve(runs, together, main, axis, column)
        if figure is not None:
            found[f"{by.name}-{axis['key']}"] = figure
    loss = None if by.name == "loss" else curve(runs, together, LOSS, axes(runs)[0], column)
    return found if loss is None else found | {"loss-round": loss}


def curve(
    runs: Sequence[Run], together: Sequence[Repeat], measure: Measure, axis: dict[str, Any], column: Column
) -> Any:
    """One figure; None if no run has two points."""
    matplotlib = plotting()
    looks, over = styles(runs), smooth(runs)
    lines = [(one, points(runs, one, measure, axis, over)) for one in together]
    if all(len(line) < 2 for _, line in lines):
        return None
    figure = matplotlib.figure.Figure(figsize=(column.width, HEIGHT * column.width), layout="constrained")
    plot = figure.add_subplot()
    for one, line in lines:
        style, several = looks[one.places[0]], len(one.places) > 1
        along, values = [x for x, _ in line], [[measure.factor * value for value in each] for _, each in line]
        dash = "-" if several else DASHES[style.dash]
        middle = [statistics.fmean(each) for each in values]
        plot.plot(along, middle, dash, color=style.colour, linewidth=1.1, label=one.name)
        if several:
            low, high = [min(each) for each in values], [max(each) for each in values]
            plot.fill_between(along, low, high, color=style.colour, alpha=0.16, linewidth=0)
    percent = " (%)" if measure.by is not None and measure.by.share else ""
    plot.set(xlabel=axis["title"], ylabel=measure.title.format(judged=measures.judged_on(runs)) + percent)
    plot.set_xscale("log" if axis["log"] else "linear")
    plot.grid(visible=True)
    if len(lines) > 1:
        plot.legend(frameon=False)
    return figure


def points(
    runs: Sequence[Run], one: Repeat, measure: Measure, axis: dict[str, Any], over: int
) -> list[tuple[float, list[float]]]:
    """In the rounds that all seeds have: the mean of where they are, and the value of each."""
    found: dict[int, list[tuple[float, float]]] = {}
    for run in (runs[place] for place in one.places):
        where = dict(zip((log.round for log in run.rounds), ALONG[axis["key"]](run), strict=False))
        values = [(log.round, value) for log in run.rounds if (value := measure.of(log)) is not None]
        for round, value in rolling_mean(values, over):
            if round in where:
                found.setdefault(round, []).append((where[round] / axis["divisor"], value))
    whole = [found[round] for round in sorted(found) if len(found[round]) == len(one.places)]
    return [(statistics.fmean(x for x, _ in each), [value for _, value in each]) for each in whole]


def plotting() -> Any:
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError:
        text = 'figures for a paper need matplotlib: pip install "fedrelay[figures]"; the page saves SVG without it'
        raise BadInput(text) from None
    return matplotlib
