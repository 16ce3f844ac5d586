"""The pictures of an item: drawn from what its panels have come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from fedrelay.report import figures, measures, pools
from fedrelay.report.figures import Figure, Scale
from fedrelay.reproduce import charts
from fedrelay.reproduce.finished import Finished
from fedrelay.reproduce.item import Item
from fedrelay.runs.folder import Run

EFFORT = Scale("Examples trained on", lambda run: list(accumulate(log.examples for log in run.rounds)))


def curves(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The headline over rounds, panel by panel; of several seeds the first."""
    return over_rounds(panels, "rounds")


def losses(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The test loss over rounds, panel by panel; of several seeds the first."""
    return over_rounds(panels, "loss")


def over_rounds(panels: Mapping[str, Finished], key: str) -> list[Figure]:
    """The curves of this key of a report's, panel by panel."""
    drawn = []
    for number, (panel, found) in enumerate(panels.items()):
        runs = [mine[0] for mine in found.runs.values() if mine]
        made = figures.curves(runs, [name for name, mine in found.runs.items() if mine]) if runs else []
        drawn += [titled(legible(figure), panel, number) for figure in made if figure.key == key]
    return drawn


def curves_by_effort(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The headline over what was trained so far (FedSeq 2022, Fig. 9), panel by panel; of several seeds the first."""
    drawn = []
    for number, (panel, found) in enumerate(panels.items()):
        runs = {name: mine[0] for name, mine in found.runs.items() if mine}
        if runs:
            drawn.append(titled(legible(over_effort(list(runs.values()), list(runs))), panel, number))
    return drawn


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
    """How far the models of the last pool are from one another, run by run; of several seeds the first."""
    drawn = []
    for number, (panel, found) in enumerate(panels.items()):
        runs = {name: mine[0] for name, mine in found.runs.items() if mine}
        drawn += [titled(figure, panel, number) for figure in pools.figures(list(runs.values()), list(runs))]
    return drawn


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
    "bars": charts.bars,
    "growth_maps": charts.growth_maps,
    "components": charts.components,
}
"""By the name that an item says."""


def drawn(item: Item, panels: Mapping[str, Finished]) -> list[Figure]:
    """The pictures of an item; keys say which, so that none takes the place of another."""
    found = [figure for name in item.pictures for figure in PICTURES[name](item, panels)]
    return [replace(figure, key=f"{number}-{figure.key}") for number, figure in enumerate(found)]
