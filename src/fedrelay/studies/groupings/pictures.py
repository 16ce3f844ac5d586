"""Pictures of the laboratory: how far groups, and clients, are from one another."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.report.figures import COLOURS, Figure, Spec, places
from fedrelay.report.figures import axes as curve_axes
from fedrelay.runs.measures import Box
from fedrelay.studies.groupings.apart import DIGITS, Apart

MEDIAN, MEAN = COLOURS[1], COLOURS[2]


def boxes(known: Sequence[tuple[str, Box | None]]) -> list[Figure]:
    """The class distances of every two groups (FedGSP 2022, Fig. 3a): a box for every grouping, by name, and usually
    one for the clients themselves, which FedAvg averages."""
    drawn = [(name, box) for name, box in known if box is not None]
    if not drawn:
        return []
    caption = (
        "CPD of every two groups of the first repeat, and of every two clients: the middle half is a box with the "
        "median in it, the triangle is the mean; whiskers end at the last value within one and a half times the box."
    )
    return [Figure("cpd", "How unlike groups are in their classes", caption, box_plot(drawn), wide=True)]


def box_plot(known: Sequence[tuple[str, Box]]) -> Spec:
    """One box per row, from above; the mean as a triangle."""
    rows, found = list(range(len(known))), [box for _, box in known]
    hover = [f"median {box.median:.4g}, mean {box.mean:.4g}" for box in found]
    box: Spec = {
        "type": "box",
        "orientation": "h",
        "y": rows,
        "q1": [one.q1 for one in found],
        "median": [one.median for one in found],
        "q3": [one.q3 for one in found],
        "lowerfence": [one.low for one in found],
        "upperfence": [one.high for one in found],
        "line": {"color": MEDIAN, "width": 1.5},
        "fillcolor": "rgba(0,0,0,0)",
        "hoverinfo": "skip",
    }
    mean: Spec = {
        "type": "scatter",
        "mode": "markers",
        "x": [one.mean for one in found],
        "y": rows,
        "marker": {"symbol": "triangle-up", "size": 9, "color": MEAN},
        "text": hover,
        "hovertemplate": "%{text}<extra></extra>",
    }
    layout = curve_axes("CPD", "")
    layout |= {"height": 90 + 30 * len(known)}
    layout["yaxis"] |= places([name for name, _ in known])
    return {"data": [box, mean], "layout": layout}


def heat_maps(between: Sequence[Apart]) -> list[Figure]:
    """The distances of clients by every trait, side by side, and those of one client (FedSeq journal 2024, Fig. 9)."""
    return [*(matrix(number, one) for number, one in enumerate(between)), one_row(between)] if between else []


def matrix(number: int, one: Apart) -> Figure:
    """A square for every two clients."""
    trace = {
        "type": "heatmap",
        "z": one.matrix.round(DIGITS).tolist(),
        "x": list(one.clients),
        "y": list(one.clients),
        "colorscale": "Viridis",
        "hovertemplate": "%{y} and %{x}: %{z:.3f}<extra></extra>",
        "colorbar": {"thickness": 10},
    }
    layout = curve_axes("", "")
    layout |= {"height": 480}
    layout["xaxis"] |= {"type": "category", "showgrid": False, "automargin": True}
    layout["yaxis"] |= {"type": "category", "showgrid": False, "autorange": "reversed"}
    caption = (
        f"The {one.distance.replace('_', ' ')} distance of every two of {len(one.clients)} clients; dark is alike."
    )
    return Figure(f"apart{number}", f"Distances by {one.trait}", caption, {"data": [trace], "layout": layout})


def one_row(between: Sequence[Apart]) -> Figure:
    """From one client to all others, by every trait, as shares of the largest distance."""
    clients, row = between[0].clients, between[0].row
    others = [place for place in range(len(clients)) if place != row]
    data: list[Spec] = []
    for number, one in enumerate(between):
        values = one.matrix[row, others]
        trace = {
            "type": "scatter",
            "mode": "lines+markers",
            "name": one.trait,
            "x": [clients[place] for place in others],
            "y": (values / (values.max() or 1.0)).round(DIGITS).tolist(),
            "line": {"color": COLOURS[number % len(COLOURS)], "width": 1.5},
            "marker": {"size": 5},
            "hovertemplate": "%{y:.3f}",
        }
        data.append(trace)
    layout = curve_axes("", "Share of the largest distance")
    layout |= {"showlegend": True, "legend": {"orientation": "h", "y": 1.1}, "hovermode": "x unified", "height": 380}
    layout["xaxis"] |= {"type": "category", "automargin": True}
    layout["yaxis"] |= {"rangemode": "tozero"}
    caption = "Where a trait knows no likeness between classes, all clients of another class are equally far."
    spec = {"data": data, "layout": layout}
    return Figure("apart_row", f"From {clients[row]} to the others", caption, spec, wide=True)
