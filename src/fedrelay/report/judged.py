"""What the result of each run is worth to every client, and class by class: tables and pictures of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fedrelay.report import few_clients, measures
from fedrelay.report.figures import Figure, Spec, Style, axes, shortened, styles
from fedrelay.report.tables import Column
from fedrelay.runs.folder import Run
from fedrelay.runs.quality import Spread
from fedrelay.runs.results import ClientResult, Clients, Quality, read_clients, read_quality
from fedrelay.tasks import METRICS

MOST_CLIENTS = 40
"""A longer table shows the worst of them."""
MOST_MISTAKES = 5
MOST_PICTURES = 6
MOST_NUMBERS = 12
"""Of more classes than this, the squares of a picture have no numbers."""
MOST_NAMES = 30
"""Of more classes than this, its axes have numbers in place of names."""
SPREAD = {
    "worst": "worst",
    "p10": "10th percentile",
    "p50": "median",
    "p90": "90th percentile",
    "best": "best",
    "deviation": "deviation",
}


@dataclass(frozen=True)
class Judged:
    """What was judged at the end of one run; nothing if it has not ended, or is of before there was this."""

    clients: Clients | None = None
    quality: Quality | None = None

    @property
    def spread(self) -> Spread | None:
        return None if self.clients is None else self.clients.spread


def judged(run: Run) -> Judged:
    """What the run's folder holds of it."""
    if run.summary is None:
        return Judged()
    return Judged(read_clients(run.folder), read_quality(run.folder))


def written(headline: str, value: float | None) -> str:
    """A figure as people read it."""
    share = headline in METRICS and METRICS[headline]().share
    return measures.percent(value) if share else measures.plain(value)


def headline_of(found: Sequence[Judged]) -> str:
    """What clients are compared by."""
    return next((each.clients.headline for each in found if each.clients is not None), "accuracy")


# --- tables


def spread(found: Sequence[Judged]) -> list[Column]:
    """How the figure of the clients is spread in every run; empty if no run has any."""
    if not any(each.spread for each in found):
        return []
    headline = headline_of(found)
    name = measures.words(headline)
    group = f"{name[:1].upper()}{name[1:]} over clients"
    counts = [None if each.spread is None else each.spread.clients for each in found]
    columns = [Column("Clients", "tested", tuple(map(measures.count, counts)))]
    for key, title in SPREAD.items():
        values = [None if each.spread is None else float(getattr(each.spread, key)) for each in found]
        columns.append(Column(group, title, tuple(written(headline, value) for value in values)))
    return columns


@dataclass(frozen=True)
class Line:
    """One client in every run; a cell is a dash where the run has nothing of it."""

    name: str
    examples: str
    tested: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class ByClient:
    """Clients by name, in order; or, of very many, those that did worst in some run."""

    headline: str
    lines: tuple[Line, ...]
    clients: int
    """How many there are in all."""


def by_client(found: Sequence[Judged]) -> ByClient | None:
    """The figure of every client in every run; None if no run has any."""
    known = [{} if each.clients is None else {c.name: c for c in each.clients.clients} for each in found]
    names = list(dict.fromkeys(name for clients in known for name in clients))
    if not names:
        return None
    headline, shown = headline_of(found), names
    if len(names) > MOST_CLIENTS:
        shown = worst_names(found, MOST_CLIENTS)
    lines = [_line(name, [clients.get(name) for clients in known], headline) for name in shown]
    return ByClient(headline, tuple(lines), len(names))


def worst_names(found: Sequence[Judged], most: int) -> list[str]:
    """The clients that did worst in some run, the worst of each run in turn."""
    ranked = [[client.name for client in each.clients.worst] for each in found if each.clients is not None]
    longest = max(map(len, ranked), default=0)
    turns = (names[place] for place in range(longest) for names in ranked if place < len(names))
    return list(dict.fromkeys(turns))[:most]


def _line(name: str, clients: Sequence[ClientResult | None], headline: str) -> Line:
    first = next(client for client in clients if client is not None)
    cells = [measures.NONE if client is None else written(headline, client.metrics.get(headline)) for client in clients]
    return Line(name, measures.count(first.examples), measures.count(first.tested), tuple(cells))


@dataclass(frozen=True)
class Mistake:
    """Examples of one class that were taken for another one."""

    run: int
    name: str
    truth: str
    taken_for: str
    times: int
    share: str
    """Of the examples of the class."""


def mistakes(found: Sequence[Judged], names: Sequence[str]) -> list[Mistake]:
    """The commonest of every run."""
    listed = []
    for place, (each, name) in enumerate(zip(found, names, strict=True)):
        quality = each.quality
        if quality is None:
            continue
        wrong = [
            (count, row, column)
            for row, counts in enumerate(quality.confusion)
            for column, count in enumerate(counts)
            if row != column and count
        ]
        for count, row, column in sorted(wrong, key=lambda item: -item[0])[:MOST_MISTAKES]:
            share = measures.percent(count / sum(quality.confusion[row]))
            listed.append(Mistake(place, name, quality.classes[row], quality.classes[column], count, share))
    return listed


def calibration(found: Sequence[Judged], names: Sequence[str]) -> str | None:
    """The expected calibration error of every run that has one, in a sentence."""
    values = [None if each.quality is None else each.quality.calibration for each in found]
    said = [f"{name} {measures.percent(value.error)}" for name, value in zip(names, values, strict=True) if value]
    return f"Expected calibration error: {', '.join(said)}." if said else None


# --- pictures


def figures(runs: Sequence[Run], found: Sequence[Judged], names: Sequence[str]) -> list[Figure]:
    """Clients from the worst to the best, how sure models are, and what they confuse: only what the runs have."""
    looks, drawn = styles(runs), []
    if any(each.clients for each in found):
        drawn.append(_clients(found, names, looks))
    if any(each.quality and each.quality.calibration for each in found):
        caption = "On the dotted line a model is as often right as it is sure; below it, it is too sure."
        drawn.append(Figure("reliability", "Calibration", caption, _reliability(found, names, looks)))
    several = len(runs) > 1
    for place, each in enumerate(found[:MOST_PICTURES]):
        if each.quality is not None and each.quality.confusion:
            title = f"Confusion: {shortened(names[place])}" if several else "Confusion"
            caption = "Rows are what it is, columns what it was taken for; the stronger, the larger the share of a row."
            drawn.append(Figure(f"confusion-{place}", title, caption, _squares(each.quality, place, looks[place])))
    return drawn


def _clients(found: Sequence[Judged], names: Sequence[str], looks: Sequence[Style]) -> Figure:
    """Clients by name if there are few of them, else from the worst to the best."""
    headline, caption = headline_of(found), "Every client on its own test examples."
    several = [() if each.clients is None else each.clients.clients for each in found]
    values = [{one.name: value for one in mine if (value := one.metrics.get(headline)) is not None} for mine in several]
    if len({client for mine in values for client in mine}) <= few_clients.MOST:
        spec = few_clients.named(values, names, looks, headline.capitalize(), percent=headline == "accuracy")
        return Figure("clients", f"{headline.capitalize()} of every client", caption, spec)
    title = f"{headline.capitalize()} of the clients, from the worst to the best"
    return Figure("clients", title, caption, _ranked(found, names, looks, headline))


def _trace(place: int, name: str, look: Style, points: Sequence[tuple[float, float]]) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escape(shortened(name)),
        "meta": place,
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "line": {"color": look.colour, "dash": look.dash, "width": 2},
        "marker": {"size": 5},
    }


def _ranked(found: Sequence[Judged], names: Sequence[str], looks: Sequence[Style], headline: str) -> Spec:
    percent = headline == "accuracy"
    data = []
    for place, (each, name, look) in enumerate(zip(found, names, looks, strict=True)):
        worst = [] if each.clients is None else each.clients.worst
        factor = 100 if percent else 1
        points = [
            (100 * (rank + 1) / len(worst), factor * (client.metrics[headline] or 0.0))
            for rank, client in enumerate(worst)
        ]
        said = {
            "text": [escape(shortened(client.name)) for client in worst],
            "hovertemplate": "%{text}: %{y:.1f} %" if percent else "%{text}: %{y:.4~g}",
        }
        data.append(_trace(place, name, look, points) | said)
    layout = axes("Share of the clients", headline.capitalize())
    layout["xaxis"]["ticksuffix"] = " %"
    if percent:
        layout["yaxis"]["ticksuffix"] = " %"
    return {"data": data, "layout": layout}


def _reliability(found: Sequence[Judged], names: Sequence[str], looks: Sequence[Style]) -> Spec:
    data = []
    for place, (each, name, look) in enumerate(zip(found, names, looks, strict=True)):
        sure = None if each.quality is None else each.quality.calibration
        bins = () if sure is None else sure.bins
        points = [(100 * each.confidence, 100 * each.accuracy) for each in bins]
        said = {
            "customdata": [each.examples for each in bins],
            "hovertemplate": "%{x:.1f} % sure, %{y:.1f} % right (%{customdata} examples)",
        }
        data.append(_trace(place, name, look, points) | said)
    layout = axes("How sure it is", "How often it is right")
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"ticksuffix": " %", "range": [-2, 102]}
    layout["shapes"] = [{"type": "line", "x0": 0, "x1": 100, "y0": 0, "y1": 100, "line": {"dash": "dot", "width": 1}}]
    return {"data": data, "layout": layout}


def _squares(quality: Quality, place: int, look: Style) -> Spec:
    shares = [[count / max(sum(row), 1) for count in row] for row in quality.confusion]
    texts = [escape(shortened(name, 16)) for name in quality.classes]
    classes = list(range(len(texts)))
    trace: dict[str, Any] = {
        "type": "heatmap",
        "meta": place,
        "z": shares,
        "zmin": 0,
        "zmax": 1,
        "customdata": quality.confusion,
        "x": classes,
        "y": classes,
        "hovertemplate": "%{customdata} of %{y} taken for %{x}<extra></extra>",
        "colorscale": [[0, _faded(look.colour, 0.04)], [1, _faded(look.colour, 0.8)]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    layout = axes("Taken for", "What it is")
    layout["height"] = 420
    layout["xaxis"] |= {"showgrid": False, "rangemode": "normal", "automargin": True}
    layout["yaxis"] |= {"showgrid": False, "autorange": "reversed"}
    if len(classes) <= MOST_NAMES:
        # Places, not names, on the axes: two names that are cut to the same text must not share a row.
        ticks = {"tickvals": classes, "ticktext": texts}
        layout["xaxis"] |= ticks
        layout["yaxis"] |= ticks
    few = [_numbers(quality, place)] if len(classes) <= MOST_NUMBERS else []
    return {"data": [trace, *few], "layout": layout}


def _numbers(quality: Quality, place: int) -> Spec:
    """What is written on the squares; a trace of its own, so that it is hidden with its run."""
    filled = [(row, column, n) for row, counts in enumerate(quality.confusion) for column, n in enumerate(counts) if n]
    return {
        "type": "scatter",
        "mode": "text",
        "meta": place,
        "x": [column for _, column, _ in filled],
        "y": [row for row, _, _ in filled],
        "text": [str(count) for _, _, count in filled],
        "hoverinfo": "skip",
    }


def _faded(colour: str, strength: float) -> str:
    """The same colour, seen through: so numbers on it can be read on a light page and on a dark one."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{strength})"
