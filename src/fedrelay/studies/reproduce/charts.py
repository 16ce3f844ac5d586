"""Charts of an item's columns: bars of every row, maps over how groups grow, lines over epochs of training alone."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedrelay.report.figures import COLOURS, Figure, Spec, axes, shortened
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.groups_study import after
from fedrelay.studies.reproduce.item import Column, Item

VALUE = re.compile(r"(.+) = (-?\d+(?:\.\d+)?)")
"""The name of a row that is one value of a setting."""
NO_RUN = -1
"""The place of a trace that belongs to no run."""


def mean_of(column: Column, found: Finished, row: str) -> float | None:
    """The mean over seeds in the column's unit; None if a seed lacks it."""
    values = [reading.value for reading in column.measure(found, row)]
    known = [value for value in values if value is not None]
    return column.factor * statistics.fmean(known) if known and len(known) == len(values) else None


def titled(column: Column) -> str:
    """The column with its unit, as an axis says it."""
    return f"{column.name} ({column.unit})" if column.unit else column.name


# --- bars


def bars(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """A chart for every column: a bar for every row, panel by panel."""
    rows = list(dict.fromkeys(row for found in panels.values() for row in found.rows))
    drawn = []
    for number, column in enumerate(item.columns):
        traces = [bar(item, column, row, place, panels) for place, row in enumerate(rows)]
        if any(value is not None for trace in traces for value in trace["y"]):
            layout = axes("", titled(column)) | {"barmode": "group", "showlegend": True, "legend": {"orientation": "h"}}
            layout["xaxis"] |= {"type": "category"}
            title = column.name[:1].upper() + column.name[1:]
            spec = {"data": traces, "layout": layout}
            drawn.append(Figure(f"bars{number}", title, "No bar: not reached, or not run.", spec, wide=True))
    return drawn


def bar(item: Item, column: Column, row: str, place: int, panels: Mapping[str, Finished]) -> Spec:
    """The bars of one row."""
    return {
        "type": "bar",
        "name": escape(shortened(item.called(row))),
        "meta": place,
        "x": [escape(panel or item.where) for panel in panels],
        "y": [mean_of(column, found, row) for found in panels.values()],
        "marker": {"color": COLOURS[place % len(COLOURS)]},
        "hovertemplate": "%{y:.4~g}",
    }


# --- maps


def growth_maps(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The first column over alpha and beta of the growth, for every growth of every panel (FedGSP 2022, Fig. 4)."""
    column, drawn = item.columns[0], []
    for number, (panel, found) in enumerate(panels.items()):
        points = [(growth, mean_of(column, found, row)) for row in found.runs if (growth := growth_of(found, row))]
        for name in dict.fromkeys(str(growth["name"]) for growth, _ in points):
            mine = [(growth["alpha"], growth["beta"], value) for growth, value in points if growth["name"] == name]
            title = f"{column.name[:1].upper()}{column.name[1:]}, {name} growth"
            title += f": {panel}" if panel not in ("", name) else ""
            caption = "Over the rate alpha and the number of groups to begin with, beta."
            drawn.append(Figure(f"map{number}{name}", title, caption, map_of(mine, column)))
    return drawn


def growth_of(found: Finished, row: str) -> Mapping[str, Any] | None:
    """How the groups of a run grow, where it is by a rate."""
    section = found.runs[row][0].config.get("algorithm") if found.runs[row] else None
    growth = section.get("growth") if isinstance(section, Mapping) else None
    return growth if isinstance(growth, Mapping) and {"name", "alpha", "beta"} <= growth.keys() else None


def map_of(points: Sequence[tuple[float, int, float | None]], column: Column) -> Spec:
    """A map of these values; what is missing stays empty."""
    alphas, betas = sorted({alpha for alpha, _, _ in points}), sorted({beta for _, beta, _ in points})
    value = {(alpha, beta): found for alpha, beta, found in points}
    known = [found for found in value.values() if found is not None]
    digits = 2 if column.digits is None else column.digits
    trace = {
        "type": "heatmap",
        "meta": NO_RUN,
        "x": [f"{alpha:g}" for alpha in alphas],
        "y": [f"{beta:g}" for beta in betas],
        "z": [[value.get((alpha, beta)) for alpha in alphas] for beta in betas],
        "texttemplate": f"%{{z:.{digits}f}}",
        "colorscale": "Viridis",
        "showscale": len(set(known)) > 1,
        "colorbar": {"thickness": 10},
        "hovertemplate": f"alpha %{{x}}, beta %{{y}}: %{{z:.{digits}f}}<extra></extra>",
    }
    layout = axes("alpha", "beta")
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"type": "category", "showgrid": False}
    return {"data": [trace], "layout": layout}


# --- lines


def sweep(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The first column over the value that rows have in their names (`S = 5`; FedELMY 2024, Fig. 7)."""
    column, drawn = item.columns[0], []
    for number, found in enumerate(panels.values()):
        said = [(match, row) for row in found.rows if (match := VALUE.fullmatch(item.called(row)))]
        values = [(float(match[2]), readings_of(column, found, row)) for match, row in said]
        points = sorted((value, mine) for value, mine in values if mine)
        if points:
            setting = said[0][0][1]
            title = f"{column.name[:1].upper()}{column.name[1:]} over {setting}"
            caption = "The mean over seeds with its standard deviation."
            drawn.append(Figure(f"sweep{number}", title, caption, curve(points, setting, column)))
    return drawn


def readings_of(column: Column, found: Finished, row: str) -> list[float]:
    """What seeds have come to, in the column's unit."""
    return [column.factor * reading.value for reading in column.measure(found, row) if reading.value is not None]


def curve(points: Sequence[tuple[float, Sequence[float]]], setting: str, column: Column) -> Spec:
    apart = [statistics.stdev(values) if len(values) > 1 else 0.0 for _, values in points]
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "meta": NO_RUN,
        "x": [value for value, _ in points],
        "y": [statistics.fmean(values) for _, values in points],
        "error_y": {"type": "data", "array": apart, "visible": any(apart)},
        "line": {"color": COLOURS[0]},
        "hovertemplate": f"{escape(setting)} = %{{x}}: %{{y:.4~g}}<extra></extra>",
    }
    layout = axes(escape(setting), titled(column))
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"rangemode": "normal"}
    return {"data": [trace], "layout": layout}


def components(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The share of the principal components that are kept, over epochs of training alone (journal 2024, Fig. 8)."""
    column = item.columns[0]
    traces = []
    for place, (panel, found) in enumerate(panels.items()):
        rows = [(epochs, row) for row in found.figures if (epochs := epochs_of(row)) is not None]
        points = [(epochs, value) for epochs, row in rows if (value := mean_of(column, found, row)) is not None]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": escape(panel),
                "meta": place,
                "x": [epochs for epochs, _ in points],
                "y": [value for _, value in points],
                "line": {"color": COLOURS[place % len(COLOURS)]},
                "hovertemplate": "%{y:.3~g}",
            }
        )
    layout = axes("Epochs alone", titled(column)) | {"showlegend": True, "legend": {"orientation": "h"}}
    caption = "Of the linear layers of all clients' models; 90 % of their variance is kept."
    title = "Components kept over epochs of training alone"
    return [Figure("components", title, caption, {"data": traces, "layout": layout}, wide=True)]


def epochs_of(row: str) -> int | None:
    """How long clients trained alone in this row, if it is one of those."""
    said = row.split(" ")[0]
    return int(said) if said.isdecimal() and row == after(int(said)) else None
