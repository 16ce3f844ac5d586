"""The pictures of a page, as plain Plotly specifications; the page's script gives them the colours of its theme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

from fedrelay.report import measures
from fedrelay.report.repeats import repeats
from fedrelay.runs.costs import DIRECTIONS
from fedrelay.runs.folder import Run
from fedrelay.runs.log import RoundLog
from fedrelay.tasks import Headline

Spec = dict[str, Any]

# Each colour stands out at least 3 : 1 from the light and from the dark background; dashes tell the next eleven apart.
COLOURS = (
    "#2f6fde",
    "#d9622b",
    "#1b9470",
    "#b54fc4",
    "#a87b00",
    "#d6456b",
    "#0e8fb0",
    "#7a62d9",
    "#5f8f1f",
    "#a8653f",
    "#c2418f",
)
GREY = "#6d7f95"
DASHES = ("solid", "dash", "dot", "dashdot")
STRENGTHS = {"server_to_client": 1.0, "client_to_server": 0.6, "client_to_client": 0.28}
FEW = 40


@dataclass(frozen=True)
class Figure:
    """A picture with its title, the sentence under it, and the Plotly specification."""

    key: str
    title: str
    caption: str
    spec: Spec
    wide: bool = False
    measure: Measure | None = None
    """What its lines are of, one line a run over rounds; a page may draw them along something else."""


@dataclass(frozen=True)
class Measure:
    """What is drawn upwards; `{judged}` in its title is what models are tested on."""

    of: Callable[[RoundLog], float | None]
    title: str
    hover: str = "%{y:.4~g}"
    factor: float = 1
    by: Headline | None = None
    """What the runs are judged by, if it is that."""


def measure_of(name: str, by: Headline) -> Measure:
    """A metric of the test set."""
    title = f"{{judged}} {measures.words(name)}"
    if name != by.name:
        return Measure(lambda log: log.metrics.get(name), title)
    hover, factor = ("%{y:.1f} %", 100) if by.share else ("%{y:.4~g}", 1)
    return Measure(lambda log: log.metrics.get(name), title, hover, factor, by)


LOSS = Measure(lambda log: log.loss, "{judged} loss")
TRAIN_LOSS = Measure(lambda log: log.train_loss, "Training loss")


@dataclass(frozen=True)
class Scale:
    """What is drawn to the right: one number per round of a run. `shared` when runs have the same ones."""

    title: str
    along: Callable[[Run], Sequence[float]]
    shared: bool = False


@dataclass(frozen=True)
class Style:
    """How a run looks, the same in every picture."""

    colour: str
    dash: str


ROUNDS = Scale("Round", lambda run: [log.round for log in run.rounds], shared=True)


def styles(runs: Sequence[Run]) -> list[Style]:
    """One look per run; seeds of the same run share their colour. A reference is grey and dashed, so that it does not
    seem to compete."""
    found, place = [Style(GREY, "dash")] * len(runs), 0
    for one in repeats(runs, [run.name for run in runs]):
        if measures.is_reference(runs[one.places[0]]):
            continue
        colour, first = COLOURS[place % len(COLOURS)], place // len(COLOURS)
        for number, run in enumerate(one.places):
            found[run] = Style(colour, DASHES[(first + number) % len(DASHES)])
        place += 1
    return found


def curves(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
    """The main measure over rounds, traffic and sequential time, then the losses; only what the runs have."""
    divisor, unit = measures.unit(max((measures.total(run, "bytes") for run in runs), default=0))
    traffic = Scale(f"Traffic since the start ({unit})", lambda run: [sent / divisor for sent in measures.traffic(run)])
    hops = Scale("Hops one after another", measures.hops)
    clock = Scale("Simulated seconds since the start", measures.clock)
    by, judged = measures.headline(runs), measures.judged_on(runs)
    main = measure_of(by.name, by)
    found: list[Figure] = []

    def add(key: str, measure: Measure, over: str, caption: str, scale: Scale, *, wide: bool = False) -> None:
        if not _has(runs, measure):
            return
        measure = replace(measure, title=measure.title.format(judged=judged))
        if scale.shared and measures.once(runs, measure.of):  # a curve of one point is no curve
            found.append(Figure(key, measure.title, "After the last round.", _lengths(runs, names, measure), wide))
        else:
            spec = lines(runs, names, measure, scale)
            live = measure if scale.shared else None
            found.append(Figure(key, f"{measure.title} over {over}", caption, spec, wide, live))

    merged = (
        "How many times models were mixed; there is no server."
        if measures.serverless(runs)
        else ("How many times models were merged.")
    )
    add("rounds", main, "rounds", merged, ROUNDS, wide=True)
    add("traffic", main, "traffic", "All that was sent, whoever sent it to whom.", traffic)
    add("hops", main, "sequential time", "Clients in a chain wait for one another; chains run side by side.", hops)
    if any(measures.clock(run) for run in runs):
        add("clock", main, "simulated time", "As the speeds and bandwidths of [latency] have it.", clock)
    names_of = dict.fromkeys(name for run in runs for log in run.rounds for name in log.metrics)
    for name in (name for name in names_of if name not in (by.name, "loss")):
        add(f"metric_{name}", measure_of(name, by), "rounds", f"On the central {judged.lower()} set.", ROUNDS)
    if by.name != "loss":
        add("loss", LOSS, "rounds", f"On the central {judged.lower()} set.", ROUNDS)
    add("train_loss", TRAIN_LOSS, "rounds", "Mean over the clients that took part, on their own data.", ROUNDS)
    return found


def bars(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
    """How messages and bytes split between the server and the clients."""
    divisor, unit = measures.unit(max((measures.total(run, "bytes") for run in runs), default=0))
    return [
        Figure("messages", "Messages", "By direction:", _stacked(runs, names, "messages", 1, "Messages")),
        Figure("bytes", "Traffic", "By direction:", _stacked(runs, names, "bytes", divisor, f"Traffic ({unit})")),
    ]


def _has(runs: Sequence[Run], measure: Measure) -> bool:
    return any(measure.of(log) is not None for run in runs for log in run.rounds)


def lines(runs: Sequence[Run], names: Sequence[str], measure: Measure, scale: Scale) -> Spec:
    """One line per run. The rounds go along (`customdata`), so that the page can draw means over some of them."""
    data: list[Spec] = []
    for place, (run, name, style) in enumerate(zip(runs, names, styles(runs), strict=True)):
        # A run may have no such scale at all (a virtual clock); it keeps its place, without a line.
        pairs = [(x, measure.of(log), log.round) for x, log in zip(scale.along(run), run.rounds, strict=False)]
        points = [(x, measure.factor * y, number) for x, y, number in pairs if y is not None]
        trace = {
            "type": "scatter",
            "mode": "lines+markers" if len(points) <= FEW else "lines",
            "name": escape(shortened(name)),
            "meta": place,
            "x": [x for x, _, _ in points],
            "y": [y for _, y, _ in points],
            "customdata": [number for _, _, number in points],
            "line": {"color": style.colour, "dash": style.dash, "width": 2},
            "marker": {"size": 5 if len(points) > 1 else 11},  # a point without a line must be seen
            "hovertemplate": measure.hover + ("" if scale.shared else " at %{x:.4~g}"),
        }
        data.append(trace)
    layout = axes(scale.title, measure.title)
    layout["hovermode"] = "x unified" if scale.shared else "closest"
    if wide_apart([max(trace["x"], default=0) for trace in data], 20):
        _logarithmic(layout["xaxis"], "SI")
    if measure.by is not None:
        layout |= _levels(runs, measure.by)
    if measure.by is not None and measure.by.share:
        layout["yaxis"]["ticksuffix"] = " %"
    elif wide_apart([y for trace in data for y in trace["y"]], 100):
        _logarithmic(layout["yaxis"], "e")
    return {"data": data, "layout": layout}


def _lengths(runs: Sequence[Run], names: Sequence[str], measure: Measure) -> Spec:
    """One bar per run: the measure after the last round that has it, written at its end."""
    data: list[Spec] = []
    for place, (run, name, style) in enumerate(zip(runs, names, styles(runs), strict=True)):
        values = [measure.factor * y for log in run.rounds if (y := measure.of(log)) is not None][-1:]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": escape(shortened(name)),
                "meta": place,
                "x": values,
                "y": [place] * len(values),
                "marker": {"color": style.colour},
                "texttemplate": measure.hover.replace("{y", "{x"),
                "textposition": "outside",
                "cliponaxis": False,
                "hovertemplate": measure.hover.replace("{y", "{x"),
            }
        )
    layout = axes(measure.title, "")
    layout |= {"barmode": "overlay", "bargap": 0.35, "height": 90 + 34 * len(runs)}
    layout["xaxis"] |= {"ticksuffix": " %"} if measure.by is not None and measure.by.share else {}
    layout["yaxis"] |= places(names)
    return {"data": data, "layout": layout}


def places(names: Sequence[str]) -> Spec:
    """An axis of runs from above. Places, not names: two long names that are cut to the same text must not share a
    bar."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [escape(shortened(name)) for name in names],
        "autorange": "reversed",
        "showgrid": False,
    }


def wide_apart(values: Sequence[float], times: float) -> bool:
    """Whether a linear axis would press some of these into a corner. A run that sent nothing has no say."""
    positive = [value for value in values if value > 0]
    return min(values, default=0) >= 0 and bool(positive) and max(positive) > times * min(positive)


def _logarithmic(axis: Spec, exponents: str) -> None:
    axis |= {"type": "log", "dtick": 1, "exponentformat": exponents}
    axis["title"]["text"] += ", logarithmic"


def _levels(runs: Sequence[Run], by: Headline) -> Spec:
    """Dotted lines at the shares of the target; none when the runs have different targets, or no shares of it."""
    targets, shares = measures.targets(runs), measures.shares(runs)
    if len(targets) != 1 or not shares:
        return {}
    factor = 100 if by.share else 1
    levels = {factor * by.goal(targets[0], float(share)): measures.share_text(share) for share in shares}
    levels[factor * targets[0]] = "target"
    lines = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": {"dash": "dot", "width": 1}}
        for y in levels
    ]
    texts = [
        {"xref": "paper", "x": 1, "xanchor": "left", "y": y, "text": text, "showarrow": False, "xshift": 4}
        for y, text in levels.items()
    ]
    return {"shapes": lines, "annotations": texts}


def axes(x: str, y: str) -> Spec:
    """The layout of a picture with these axes."""
    return {
        "showlegend": False,
        "margin": {"l": 64, "r": 56, "t": 12, "b": 52},
        "height": 340,
        "xaxis": {"title": {"text": x}, "rangemode": "tozero", "zeroline": False},
        "yaxis": {"title": {"text": y, "standoff": 14}, "zeroline": False, "automargin": True},
    }


def _stacked(
    runs: Sequence[Run], names: Sequence[str], what: Literal["messages", "bytes"], divisor: int, title: str
) -> Spec:
    """One bar per run in the run's colour; the direction is the strength of it."""
    data = []
    for place, (run, name, style) in enumerate(zip(runs, names, styles(runs), strict=True)):
        parts = measures.split(run, what)
        for direction in DIRECTIONS:
            words = direction.replace("_", " ")
            written = measures.count(parts[direction]) if what == "messages" else measures.size(parts[direction])
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": escape(shortened(name)),
                    "meta": place,
                    "x": [parts[direction] / divisor],
                    "y": [place],
                    "customdata": [written],
                    "marker": {"color": style.colour, "opacity": STRENGTHS[direction]},
                    "hovertemplate": f"{words}: %{{customdata}}",
                }
            )
    layout = axes(title, "")
    layout["barmode"] = "stack"
    layout["bargap"] = 0.35
    layout["xaxis"]["showgrid"] = False
    layout["height"] = 90 + 34 * len(runs)
    layout["yaxis"] |= places(names)
    return {"data": data, "layout": layout}


def shortened(name: str, longest: int = 28) -> str:
    """The name, or its two ends when it is too long for an axis."""
    if len(name) <= longest:
        return name
    half = (longest - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
