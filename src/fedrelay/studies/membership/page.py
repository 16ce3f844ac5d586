"""The page of membership inference: who can tell members from others, in which run, and how well."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np

from fedrelay.report.figures import COLOURS, DASHES, GREY, Figure, Spec, axes, shortened
from fedrelay.report.measures import percent, words
from fedrelay.report.sheet import Column, sheet
from fedrelay.studies.membership.measure import LOW, OBSERVERS, POINTS, Leak, Measured

READ = (
    "AUC is the probability that an example that was trained on looks more like it than one that was not: 0.5 is a "
    "guess, 1 is certain. ± is the deviation of its mean over clients. Advantage is the most that true positives are "
    "above false ones, with one threshold for all clients; of few examples it is above 0 even in the control, where "
    "nothing can be known. Both halves are a client's own examples, drawn class by class, so that neither its classes "
    "nor its hand tell them apart."
)
WHO = (
    "The final model: everybody who gets it. Around a round, the common models before and after it: all who take part. "
    "After a visit: whoever gets that model next, which is the next client of a chain, or FedAvg's server if it does "
    "not aggregate securely. Around a visit, the models before and after it: both neighbours together, the client "
    "after the first of a chain, a server that relays, and FedAvg's server. Never saw the client: a control, the model "
    "that went into its first visit."
)
SHOWN = ("final", "next", "around")
"""Whose curves are drawn."""


def html(found: Mapping[str, Measured]) -> str:
    """The page for these runs, by name."""
    rows, columns = table(found)
    return sheet(
        "membership",
        headline(found),
        [*notes(found), READ, WHO],
        rows,
        columns,
        curves(found),
        what="Run, and what is seen of it",
    )


def headline(found: Mapping[str, Measured]) -> str:
    """What the final model gives away, and what the one that was handed on does."""
    told = []
    for name, one in found.items():
        final, after = one.of("final"), one.of("next")
        if final is not None and after is not None:
            told.append(f"{name} {final.auc:.2f} and {after.auc:.2f}")
    return f"AUC of membership, by the final model and by the model after a visit: {'; '.join(told)}"


def notes(found: Mapping[str, Measured]) -> list[str]:
    """How many clients and visits, and what the models are worth."""
    said = []
    for name, one in found.items():
        share = one.accuracy is not None and "accuracy" in one.headline
        worth = "" if one.accuracy is None else f"{percent(one.accuracy) if share else f'{one.accuracy:.4g}'}"
        worth = f"; {words(one.headline)} of the final model {worth}" if worth else ""
        epsilon, delta = one.privacy.get("epsilon"), one.privacy.get("delta")
        spent = "" if epsilon is None or delta is None else f"; epsilon {epsilon:.3g} at delta {delta:g}"
        said.append(f"{name}: {len(one.clients)} clients, {one.visits} visits{worth}{spent}.")
    return said


def table(found: Mapping[str, Measured]) -> tuple[list[str], list[Column]]:
    """A row for everything that can be seen of every run."""
    leaks = [(name, leak) for name, one in found.items() for leak in one.leaks]
    titles = ("AUC", "±", "advantage", *(f"TPR at FPR {percent(low)}" for low in LOW), "advantage at most, by ε")
    cells = [cells_of(leak) for _, leak in leaks]
    columns = [Column(title, tuple(row[place] for row in cells)) for place, title in enumerate(titles)]
    if all(leak.most is None for _, leak in leaks):
        columns = columns[:-1]
    return [f"{name}, {OBSERVERS[leak.observer]}" for name, leak in leaks], columns


def cells_of(leak: Leak) -> tuple[str, ...]:
    low = [percent(leak.tpr[f"{one:g}"]) for one in LOW]
    most = "–" if leak.most is None or leak.observer == "control" else f"{leak.most:.3f}"
    return f"{leak.auc:.3f}", f"{leak.deviation:.3f}", f"{leak.advantage:.3f}", *low, most


def curves(found: Mapping[str, Measured]) -> list[Figure]:
    """TPR over FPR, both as logarithms, where what matters is to be seen (Carlini et al. 2022)."""
    caption = "Both axes are logarithmic; grey is a guess."
    return [
        Figure(f"roc-{observer}", f"Membership: {OBSERVERS[observer]}", caption, lines(found, observer), wide=False)
        for observer in SHOWN
    ]


def lines(found: Mapping[str, Measured], observer: str) -> Spec:
    grid = np.linspace(0, 1, POINTS)
    data: list[Spec] = [guess(grid.tolist())]
    for place, (name, one) in enumerate(found.items()):
        leak = one.of(observer)
        if leak is not None:
            dash = DASHES[place // len(COLOURS) % len(DASHES)]
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": escape(shortened(name)),
                    "x": grid[1:].tolist(),
                    "y": list(leak.curve)[1:],
                    "line": {"color": COLOURS[place % len(COLOURS)], "dash": dash},
                    "hovertemplate": "%{y:.3f} at %{x:.2f}",
                }
            )
    layout = axes("False positives", "True positives")
    layout |= {"showlegend": True, "legend": {"orientation": "h", "y": -0.25}}
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"type": "log", "rangemode": "normal"}
    return {"data": data, "layout": layout}


def guess(grid: list[float]) -> Spec:
    line = {"color": GREY, "dash": "dot", "width": 1}
    return {"type": "scatter", "mode": "lines", "name": "a guess", "x": grid[1:], "y": grid[1:], "line": line}
