"""The pictures of an item: drawn from what its panels have come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from fedrelay.report import figures, measures, pools
from fedrelay.report import over_clients as of_clients
from fedrelay.report.figures import Figure, Scale
from fedrelay.runs.folder import Run
from fedrelay.runs.measures import rolling_mean
from fedrelay.studies.reproduce import charts
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.item import Item

Drawing = Callable[[Sequence[Run], Sequence[str]], list[Figure]]
"""From runs and their names to pictures."""
EFFORT = Scale("Examples trained on", lambda run: list(accumulate(log.examples for log in run.rounds)))
CLIENT_CURVES = ("clients_train_loss", "clients_train_loss_deviation", "clients_test_accuracy_deviation")
"""Of all that is known over clients: what clustered sampling 2021 draws."""
ROLLED = 50
"""Rounds that its Fig. 2 takes the mean over."""


def curves(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The headline over rounds, panel by panel; of several seeds the first."""
    return over_rounds(panels, "rounds")


def losses(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The test loss over rounds, panel by panel; of several seeds the first."""
    return over_rounds(panels, "loss")


def over_rounds(panels: Mapping[str, Finished], key: str) -> list[Figure]:
    """The curves of this key of a report's, panel by panel."""

    def draw(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
        return [legible(figure) for figure in figures.curves(runs, names) if figure.key == key]

    return by_panel(panels, draw)


def by_panel(panels: Mapping[str, Finished], draw: Drawing) -> list[Figure]:
    """What is drawn of the first seed of all runs, panel by panel."""
    drawn = []
    for number, (panel, found) in enumerate(panels.items()):
        runs = {name: mine[0] for name, mine in found.runs.items() if mine}
        made = draw(list(runs.values()), list(runs)) if runs else []
        drawn += [titled(figure, panel, number) for figure in made]
    return drawn


def curves_by_effort(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The headline over what was trained so far (FedSeq 2022, Fig. 9), panel by panel; of several seeds the first."""
    return by_panel(panels, lambda runs, names: [legible(over_effort(runs, names))])


def over_effort(runs: Sequence[Run], names: Sequence[str]) -> Figure:
    """The headline over the examples that were trained on."""
    by = measures.headline(runs)
    measure = figures.measure_of(by.name, by)
    measure = replace(measure, title=measure.title.format(judged=measures.judged_on(runs)))
    caption = "Runs that have done equally much lie above one another, however many rounds it took."
    spec = figures.lines(runs, names, measure, EFFORT)
    return Figure("effort", f"{measure.title} over examples trained on", caption, spec, wide=True)


def of_study(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """What the studies themselves draw."""
    return some_of_study(panels, lambda figure: True)


def similarities(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """How alike clients' models are after epochs alone (FedSeq 2022, Figs. 3, 4): the norm, and every matrix."""
    return some_of_study(panels, lambda figure: figure.key.startswith(("pretraining", "alike")))


def boxes(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """How unlike groups, and clients, are in their classes (FedGSP 2022, Fig. 3a)."""
    return some_of_study(panels, lambda figure: figure.key == "cpd")


def client_distances(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """How far clients are apart by every trait, and from one of them (FedSeq journal 2024, Fig. 9)."""
    return some_of_study(panels, lambda figure: figure.key.startswith("apart"))


def mixes(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """What is in groups (FedSeq 2022, Figs. 6-8), of the groupings that the item shows."""
    rows = item.rows
    return some_of_study(
        panels, lambda figure: figure.key.startswith("mix") and (rows is None or item.called(figure.title) in rows)
    )


def some_of_study(panels: Mapping[str, Finished], wanted: Callable[[Figure], bool]) -> list[Figure]:
    return [
        titled(figure, panel, number)
        for number, (panel, found) in enumerate(panels.items())
        for figure in found.pictures
        if wanted(figure)
    ]


def pools_of(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """How far the models of the last pool are from one another, run by run."""
    return by_panel(panels, pools.figures)


# --- clustered sampling 2021


def over_clients(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The global training loss, and how unlike clients are in loss and accuracy (Fig. 1)."""
    return by_panel(panels, client_curves)


def client_curves(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
    return [legible(figure) for figure in of_clients.curves(runs, names) if figure.key in CLIENT_CURVES]


def rolling_50(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The global training loss, every value the mean over the last 50 rounds (Fig. 2)."""
    return by_panel(panels, rolling_curve)


def rolling_curve(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
    drawn = []
    for figure in client_curves(runs, names):
        if figure.key == CLIENT_CURVES[0]:
            traces = [{**trace, "y": rolled(trace["x"], trace["y"])} for trace in figure.spec["data"]]
            title = f"{figure.title}, rolling mean over {ROLLED} rounds"
            drawn.append(replace(figure, title=title, spec={**figure.spec, "data": traces}))
    return drawn


def rolled(rounds: Sequence[int], values: Sequence[float]) -> list[float]:
    return [value for _, value in rolling_mean(list(zip(rounds, values, strict=True)), ROLLED)]


def classes_seen(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """How many different classes every round saw (Fig. 1)."""
    return by_panel(panels, class_curve)


def class_curve(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
    if not any(log.classes is not None for run in runs for log in run.rounds):
        return []
    seen = figures.Measure(lambda log: log.classes, "Different classes in a round", "%{y}")
    caption = "Among the examples of all clients that took part."
    return [legible(Figure("classes", seen.title, caption, figures.lines(runs, names, seen, figures.ROUNDS)))]


# --- what they share


def legible(figure: Figure) -> Figure:
    """The figure with a list of its lines, for a page that has none of its own."""
    layout = {**figure.spec["layout"], "showlegend": True, "legend": {"orientation": "h", "y": -0.2}, "height": 420}
    return replace(figure, spec={**figure.spec, "layout": layout})


def titled(figure: Figure, panel: str, number: int) -> Figure:
    """The figure under the name of its panel."""
    title = f"{panel}: {figure.title[:1].lower()}{figure.title[1:]}" if panel else figure.title
    return replace(figure, key=f"{figure.key}{number}", title=title)


PICTURES: dict[str, Callable[[Item, Mapping[str, Finished]], Sequence[Figure]]] = {
    "curves": curves,
    "losses": losses,
    "pools": pools_of,
    "curves_by_effort": curves_by_effort,
    "study": of_study,
    "similarities": similarities,
    "mixes": mixes,
    "boxes": boxes,
    "client_distances": client_distances,
    "over_clients": over_clients,
    "rolling_50": rolling_50,
    "classes": classes_seen,
    "bars": charts.bars,
    "sweep": charts.sweep,
    "growth_maps": charts.growth_maps,
    "components": charts.components,
}
"""By the name that an item says."""


def drawn(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The pictures of an item; keys say which, so that none takes the place of another."""
    found = [figure for name in item.pictures for figure in PICTURES[name](item, panels)]
    return [replace(figure, key=f"{number}-{figure.key}") for number, figure in enumerate(found)]
