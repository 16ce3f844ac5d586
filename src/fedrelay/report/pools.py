"""How far the models of the last pool are from one another (FedELMY 2024, Fig. 10): one square of numbers a run."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.report.figures import Figure, Spec, axes, shortened
from fedrelay.runs.folder import Run

MOST_PICTURES = 6
MOST_NUMBERS = 12
"""In a larger pool the squares have no numbers."""


def figures(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
    """A picture for every run (the first few) whose clients told the distances in their pools."""
    found: list[Figure] = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        pool = next((log.pool for log in reversed(run.rounds) if log.pool), None)
        if pool is None or len(found) == MOST_PICTURES:
            continue
        whose = f": {shortened(name)}" if len(runs) > 1 else ""
        caption = (
            f"The length of the difference of every two models of client {pool['client']}, the last one; "
            "model 0 is the one it received."
        )
        found.append(
            Figure(f"pool-{place}", f"Models of the last pool{whose}", caption, squares(pool["distances"], place))
        )
    return found


def squares(distances: Sequence[Sequence[float | None]], place: int) -> Spec:
    numbers = list(range(len(distances)))
    few = len(numbers) <= MOST_NUMBERS
    trace: Spec = {
        "type": "heatmap",
        "meta": place,
        "z": [list(row) for row in distances],
        "zmin": 0,
        "colorscale": "Viridis",
        "colorbar": {"thickness": 10},
        "hovertemplate": "models %{y} and %{x}: %{z:.4~g}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }
    if few:
        trace["texttemplate"] = "%{z:.3~g}"
    layout = axes("Model", "Model")
    layout["height"] = 420
    layout["xaxis"] |= {"showgrid": False, "rangemode": "normal"}
    layout["yaxis"] |= {"showgrid": False, "autorange": "reversed"}
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"tickvals": numbers} if few else {}
    return {"data": [trace], "layout": layout}
