"""The pictures of an item: drawn from what its panels have come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fedrelay.report import figures
from fedrelay.report.figures import Figure
from fedrelay.reproduce import charts
from fedrelay.reproduce.finished import Finished
from fedrelay.reproduce.item import Item


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
        drawn += [titled(figure, panel, number) for figure in made if figure.key == key]
    return drawn


def titled(figure: Figure, panel: str, number: int) -> Figure:
    """The figure under the name of its panel."""
    title = f"{panel}: {figure.title[:1].lower()}{figure.title[1:]}" if panel else figure.title
    return replace(figure, key=f"{figure.key}{number}", title=title)


PICTURES: dict[str, Callable[[Item, Mapping[str, Finished]], Sequence[Figure]]] = {
    "curves": curves,
    "losses": losses,
    "bars": charts.bars,
    "growth_maps": charts.growth_maps,
    "components": charts.components,
}
"""By the name that an item says."""
