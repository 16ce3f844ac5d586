"""The page of an attacker's images: how near they come, at equal accuracy, and the images themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from fedrelay.report import recovered
from fedrelay.report.figures import COLOURS, DASHES, Figure, Spec, axes, shortened
from fedrelay.report.measures import percent
from fedrelay.report.sheet import Column, sheet
from fedrelay.runs.folder import Run
from fedrelay.studies.recovery.measure import Measured, Point, at_accuracy, common_accuracy

KINDS = ("received", "random", "own")
READ = (
    "The less, the nearer an attacker's images are to those of the other clients. What the received model is worth to "
    "it is how much nearer they come than those of the controls: a random model for a discriminator, or one trained on "
    "the attacker's own examples alone. A generator that was trained in fewer visits is further from everything: of "
    "two methods, the one that reaches an accuracy sooner has given its attacker less time."
)


def html(found: Mapping[str, Measured], runs: Sequence[Run]) -> str:
    """The page for these runs, by name."""
    one = next(iter(found.values()))
    level = common_accuracy(list(found.values()))
    rows, columns = table(found, level)
    return sheet(
        "Recovered images",
        headline(found, level),
        [*notes(found), READ],
        rows,
        columns,
        [*curves(found, one.images), *recovered.figures(runs, list(found))],
        what="images",
    )


def headline(found: Mapping[str, Measured], level: float | None) -> str:
    """FID of all runs at the accuracy that all of them have."""
    if level is None:
        return "Distances of an attacker's images from those of the other clients"
    values = {name: at_accuracy(one.of("received"), level) for name, one in found.items()}
    told = ", ".join(
        f"{name} {figure(value.fid)} (after {value.visits:.3g} visits)"
        for name, value in values.items()
        if value is not None
    )
    return f"FID where the attacked model is right for {percent(level)}: {told}"


def notes(found: Mapping[str, Measured]) -> list[str]:
    """By which network, and of how many images."""
    said = [
        f"{name}: {one.images} images of each kind, {one.features} features by {one.network}."
        for name, one in found.items()
    ]
    return [*said, *dict.fromkeys(note for one in found.values() for note in one.notes)]


def table(found: Mapping[str, Measured], level: float | None) -> tuple[list[str], list[Column]]:
    """A row for every discriminator of every run, and for what they are beside."""
    rows: list[str] = []
    cells: list[tuple[str, ...]] = []
    for name, one in found.items():
        for kind in one.kinds:
            rows.append(f"{name}, {recovered.WORDS.get(kind, kind)}")
            cells.append((*equal(one.of(kind), level), *last(one.of(kind))))
        for beside in one.beside:
            rows.append(f"{name}, {beside.kind}")
            cells.append(("", "", "", "", "", figure(beside.fid), figure(beside.kid)))
    at = "at equal accuracy" if level is None else f"at {percent(level)} accuracy"
    titles = (f"FID {at}", f"KID {at}", "visits until then", "last round", "accuracy before it", "FID", "KID")
    columns = [Column(title, tuple(row[place] for row in cells)) for place, title in enumerate(titles)]
    return rows, columns


def equal(points: Sequence[Point], level: float | None) -> tuple[str, str, str]:
    near = None if level is None else at_accuracy(points, level)
    return ("", "", "") if near is None else (figure(near.fid), figure(near.kid), f"{near.visits:.3g}")


def last(points: Sequence[Point]) -> tuple[str, str, str, str]:
    point = max(points, key=lambda one: one.round)
    accuracy = "" if point.accuracy is None else percent(point.accuracy)
    return str(point.round), accuracy, figure(point.fid), figure(point.kid)


def figure(value: float) -> str:
    return f"{value:.4g}"


def curves(found: Mapping[str, Measured], images: int) -> list[Figure]:
    """FID and KID over the accuracy of the attacked model (FedSeq journal 2024, Fig. 11a)."""
    caption = f"Of {images} images; dashed and dotted: the controls."
    return [
        Figure(what, f"{what.upper()} over the accuracy of the attacked model", caption, lines(found, what))
        for what in ("fid", "kid")
        if any(point.accuracy is not None for one in found.values() for point in one.points)
    ]


def known_first(kind: str) -> tuple[int, str]:
    """The attack before its controls, and what a file of somebody else's calls otherwise after them."""
    return (KINDS.index(kind) if kind in KINDS else len(KINDS)), kind


def lines(found: Mapping[str, Measured], what: str) -> Spec:
    data: list[Spec] = []
    for place, (name, one) in enumerate(found.items()):
        for number, kind in enumerate(sorted(one.kinds, key=known_first)):
            known = sorted((p.accuracy, getattr(p, what), p.round) for p in one.of(kind) if p.accuracy is not None)
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": escape(f"{shortened(name)}, {kind}"),
                    "x": [100 * accuracy for accuracy, _, _ in known],
                    "y": [value for _, value, _ in known],
                    "text": [f"round {round}" for _, _, round in known],
                    "line": {"color": COLOURS[place % len(COLOURS)], "dash": DASHES[number % len(DASHES)]},
                    "hovertemplate": "%{text}: %{y:.4~g} at %{x:.1f} %",
                }
            )
    layout = axes("Accuracy of the attacked model", what.upper())
    layout |= {"showlegend": True, "legend": {"orientation": "h", "y": -0.25}}
    layout["xaxis"] |= {"ticksuffix": " %", "rangemode": "normal"}
    return {"data": data, "layout": layout}
