"""What runs are worth to a few clients, side by side by name: domains, say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from fedrelay.report.figures import Spec, Style, axes, shortened

MOST = 12
"""More clients than this are drawn from the worst to the best."""


def named(
    values: Sequence[Mapping[str, float]], names: Sequence[str], looks: Sequence[Style], title: str, *, percent: bool
) -> Spec:
    """A dot for every run above the name of every client; `values` are those of each run, by client."""
    clients = list(dict.fromkeys(client for mine in values for client in mine))
    factor, unit = (100, "%{y:.1f} %") if percent else (1, "%{y:.4~g}")
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": escape(shortened(name)),
            "meta": place,
            "x": [clients.index(client) for client in mine],
            "y": [factor * value for value in mine.values()],
            "marker": {"color": look.colour, "size": 11, "opacity": 0.8},
            "hovertemplate": unit,
        }
        for place, (mine, name, look) in enumerate(zip(values, names, looks, strict=True))
    ]
    layout = axes("", title)
    layout["hovermode"] = "x unified"
    # Places, not names, on the axis: two names that are cut to the same text must not share a place.
    ticks = {"tickvals": list(range(len(clients))), "ticktext": [escape(shortened(each, 16)) for each in clients]}
    layout["xaxis"] |= ticks | {"rangemode": "normal", "showgrid": False, "range": [-0.5, len(clients) - 0.5]}
    if percent:
        layout["yaxis"]["ticksuffix"] = " %"
    return {"data": data, "layout": layout}
