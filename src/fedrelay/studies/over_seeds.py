"""What several seeds of the same runs say together: a picture for the page, and a table of clients."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from fedrelay.report.figures import COLOURS, GREY, Figure, Spec, axes, places, shortened
from fedrelay.report.measures import words
from fedrelay.runs.results import read_clients
from fedrelay.studies.markdown import markdown_table
from fedrelay.tasks import METRICS, Headline

MOST_CLIENTS = 12
"""With more clients than this the table would be too wide: clients.csv of every run has them."""


@dataclass(frozen=True)
class Repeated:
    """One run over its seeds: its name, the headline of every seed, and the folders."""

    name: str
    values: tuple[float, ...]
    folders: tuple[Path, ...] = ()


def mean_and_deviation(values: Sequence[float], unit: Callable[[float], str]) -> str:
    """As tables have it; a deviation that rounds to nothing is left out."""
    apart = unit(statistics.stdev(values) if len(values) > 1 else 0)
    return unit(statistics.fmean(values)) + (f" ± {apart}" if apart != unit(0) else "")


def picture(runs: Sequence[Repeated], by: Headline) -> list[Figure]:
    """A bar for the mean of every run, with its deviation, and a dot for every seed; nothing if all have one seed."""
    known = [run for run in runs if run.values]
    if all(len(run.values) < 2 for run in known):
        return []
    seeds = max(len(run.values) for run in known)
    title = f"{words(by.name)[:1].upper()}{words(by.name)[1:]} over seeds"
    caption = f"The mean of {seeds} seeds with its standard deviation; every dot is a seed."
    return [Figure("seeds", title, caption, bars(known, by), wide=True)]


def bars(runs: Sequence[Repeated], by: Headline) -> Spec:
    factor = 100.0 if by.share else 1.0
    data: list[Spec] = []
    for place, run in enumerate(runs):
        colour = COLOURS[place % len(COLOURS)]
        apart = statistics.stdev(run.values) if len(run.values) > 1 else 0.0
        told = f"{escape(shortened(run.name))}: {mean_and_deviation(run.values, by.text)}"
        bar = {
            "type": "bar",
            "orientation": "h",
            "x": [factor * statistics.fmean(run.values)],
            "y": [place],
            "error_x": {"type": "data", "array": [factor * apart], "color": GREY},
            "marker": {"color": colour, "opacity": 0.6},
            "hovertemplate": f"{told}<extra></extra>",
        }
        dots = {
            "type": "scatter",
            "mode": "markers",
            "x": [factor * value for value in run.values],
            "y": [place] * len(run.values),
            "marker": {"color": colour, "size": 7},
            "hovertemplate": "%{x:.4~g}<extra></extra>",
        }
        data += [bar, dots]
    layout = axes(words(by.name).capitalize(), "")
    layout |= {"bargap": 0.35, "height": 90 + 34 * len(runs)}
    layout["xaxis"] |= {"ticksuffix": " %"} if by.share else {}
    layout["yaxis"] |= places([run.name for run in runs])
    return {"data": data, "layout": layout}


def by_client(runs: Sequence[Repeated]) -> str:
    """What the runs are worth to every client (every domain, say), over seeds, as Markdown; nothing where clients have
    no test examples of their own, or there are very many."""
    found = [[clients for folder in run.folders if (clients := read_clients(folder)) is not None] for run in runs]
    first = next((one for clients in found for one in clients), None)
    names = list(dict.fromkeys(client.name for clients in found for each in clients for client in each.clients))
    if first is None or len(names) > MOST_CLIENTS:
        return ""
    share = first.headline in METRICS and METRICS[first.headline]().share
    by = Headline(first.headline, first.higher_is_better, share)
    rows = []
    for run, mine in zip(runs, found, strict=True):
        cells = []
        for name in names:
            values = [one.metrics.get(by.name) for each in mine for one in each.clients if one.name == name]
            known = [value for value in values if value is not None]
            cells.append(mean_and_deviation(known, by.text) if known and len(known) == len(run.folders) else "–")
        rows.append([run.name, *cells])
    return f"{words(by.name).capitalize()} of every client:\n\n{markdown_table(['run', *names], rows, words=1)}\n"
