"""The pictures of a sweep: a curve over one setting, a map over two; each point is the mean over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedrelay.report.figures import COLOURS, Figure, Spec, axes, shortened
from fedrelay.report.measures import words
from fedrelay.studies.trials import Trial, is_number, text_of

RULES = -1
"""The place of a trace that belongs to no run, so that hiding runs does not hide it."""


def figures(trials: Sequence[Trial], grid: Mapping[str, Sequence[Any]]) -> list[Figure]:
    """What came out over one setting or two; of three and more there is no picture, only the table."""
    varied = [key for key, values in grid.items() if len(values) > 1]
    if len(varied) not in (1, 2) or all(trial.figure is None for trial in trials):
        return []
    seeds = len(trials[0].attempts)
    judged = f"Validation {words(trials[0].headline.name)}"
    stopped = sum(bool(trial.stopped) for trial in trials)
    caption = (
        f"Mean over {seeds} seeds, and their standard deviation."
        if seeds > 1
        else "One seed, so nothing is said of chance."
    )
    if stopped:
        caption += (
            f" {stopped} of {len(trials)} values were stopped early and stand as they were then: --to-the-end runs all."
        )
    title = f"{judged} over {' and '.join(name_of(key) for key in varied)}"
    draw = curve if len(varied) == 1 else chart
    return [Figure("sweep", title, caption, draw(trials, varied, grid, judged), wide=True)]


def name_of(key: str) -> str:
    return key.rpartition(".")[2]


def factor_of(trial: Trial) -> float:
    """Shares are drawn in percent."""
    return 100.0 if trial.headline.share else 1.0


def curve(trials: Sequence[Trial], varied: Sequence[str], grid: Mapping[str, Sequence[Any]], judged: str) -> Spec:
    """The figure of every value; numbers lie where they belong, all else side by side in the order given."""
    (key,) = varied
    values = grid[key]
    numbers = all(map(is_number, values))
    order = sorted(values) if numbers else list(values)
    by_value = {text_of(trial.settings[key]): trial for trial in trials}
    shown = [(value, trial) for value in order if (trial := by_value[text_of(value)]).figure is not None]
    factor, headline = factor_of(trials[0]), trials[0].headline
    trace: Spec = {
        "type": "scatter",
        "mode": "lines+markers" if numbers else "markers",
        "meta": RULES,
        "x": [value for value, _ in shown] if numbers else [order.index(value) for value, _ in shown],
        "y": [factor * (trial.figure or 0.0) for _, trial in shown],
        "customdata": [f"{escape(trial.name)}: {trial.told}" for _, trial in shown],
        "hovertemplate": "%{customdata}<extra></extra>",
        "line": {"color": COLOURS[0], "width": 2},
        "marker": {"size": 9, "color": COLOURS[0]},
    }
    if any(trial.deviation is not None for _, trial in shown):
        trace["error_y"] = {"type": "data", "array": [factor * (trial.deviation or 0.0) for _, trial in shown]}
    layout = axes(name_of(key), judged)
    layout["xaxis"]["rangemode"] = "normal"
    if headline.share:
        layout["yaxis"]["ticksuffix"] = " %"
    if not numbers:
        layout["xaxis"] |= ticks(order)
    elif wide_apart(order):
        layout["xaxis"] |= {"type": "log", "tickvals": order, "ticktext": [f"{value:g}" for value in order]}
    return {"data": [trace], "layout": layout}


def chart(trials: Sequence[Trial], varied: Sequence[str], grid: Mapping[str, Sequence[Any]], judged: str) -> Spec:
    """A square for every pair of values, with its figure written on it."""
    columns, rows = (sorted(grid[key]) if all(map(is_number, grid[key])) else list(grid[key]) for key in varied)
    by_pair = {(text_of(trial.settings[varied[0]]), text_of(trial.settings[varied[1]])): trial for trial in trials}
    squares = [[by_pair[text_of(column), text_of(row)] for column in columns] for row in rows]
    factor = factor_of(trials[0])
    unit = " %" if trials[0].headline.share else ""
    heat: Spec = {
        "type": "heatmap",
        "meta": RULES,
        "z": [[None if trial.figure is None else factor * trial.figure for trial in row] for row in squares],
        "customdata": [[f"{escape(trial.name)}: {trial.told or 'nothing yet'}" for trial in row] for row in squares],
        "text": [[trial.told for trial in row] for row in squares],
        "texttemplate": "%{text}",
        "hovertemplate": "%{customdata}<extra></extra>",
        "colorscale": "Viridis",
        "colorbar": {"thickness": 10, "ticksuffix": unit},
        "xgap": 2,
        "ygap": 2,
    }
    if not trials[0].headline.higher_is_better:
        heat["reversescale"] = True
    layout = axes(name_of(varied[0]), name_of(varied[1]))
    layout["height"] = 160 + 48 * len(rows)
    layout["xaxis"] |= ticks(columns) | {"showgrid": False}
    layout["yaxis"] |= ticks(rows) | {"showgrid": False}
    return {"data": [heat], "layout": layout}


def ticks(values: Sequence[Any]) -> Spec:
    """Values side by side, each at its place in the list: two that are cut to the same text must not share one."""
    places = list(range(len(values)))
    return {
        "tickvals": places,
        "ticktext": [escape(shortened(text_of(value), 20)) for value in values],
        "rangemode": "normal",
    }


def wide_apart(values: Sequence[float]) -> bool:
    """Whether a linear axis would press the small ones together."""
    return min(values) > 0 and max(values) > 20 * min(values)
