"""Points in the plane, each of one of several kinds: for a page, and as a picture of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from fedrelay.report.figures import COLOURS, Figure, Spec, axes, shortened

SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up")
"""Of the next kinds, when colours begin anew."""
MOST_KINDS = 40
"""Of more kinds than this no list is drawn; a page says the kind of a point under the mouse."""
SIDE, LINE, MARGIN = 420, 18, 14
"""Of one panel of a picture, of a line of its list, and around it, in pixels."""


@dataclass(frozen=True)
class Cloud:
    """Points (rows of x and y), the number of the kind of each, and what kinds are called."""

    title: str
    places: NDArray[np.float32]
    kinds: NDArray[np.int64]
    names: tuple[str, ...]

    def by_kind(self) -> Iterator[tuple[int, str, NDArray[np.float32]]]:
        """Every kind that has points: its number, its name and its points."""
        for kind in np.unique(self.kinds).tolist():
            yield kind, self.names[kind], self.places[self.kinds == kind]


def colour_of(kind: int) -> str:
    return COLOURS[kind % len(COLOURS)]


def cloud_figure(key: str, cloud: Cloud, caption: str) -> Figure:
    """The cloud for a page, one trace a kind, so that its list can show and hide them."""
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": escape(shortened(name)),
            "x": points[:, 0].round(3).tolist(),
            "y": points[:, 1].round(3).tolist(),
            "marker": {
                "size": 6,
                "opacity": 0.75,
                "color": colour_of(kind),
                "symbol": SYMBOLS[kind // len(COLOURS) % len(SYMBOLS)],
            },
            "hovertemplate": "%{fullData.name}<extra></extra>",
        }
        for kind, name, points in cloud.by_kind()
    ]
    layout = axes("", "")
    layout |= {"height": 460, "showlegend": len(data) <= MOST_KINDS, "legend": {"itemsizing": "constant"}}
    layout["margin"] |= {"l": 12, "b": 12, "r": 12}
    bare = {"showticklabels": False, "showgrid": False, "showline": False, "ticks": "", "rangemode": "normal"}
    layout["xaxis"] |= bare
    layout["yaxis"] |= bare | {"scaleanchor": "x"}
    return Figure(key, cloud.title, caption, {"data": data, "layout": layout})


def clouds_svg(clouds: Sequence[Cloud]) -> str:
    """The clouds side by side, two in a row, as one picture."""
    lists = [list_height(cloud) for cloud in clouds]
    tops, height = [], 0
    for row in range(0, len(clouds), 2):
        tops += [height] * len(clouds[row : row + 2])
        height += 2 * MARGIN + LINE + SIDE + max(lists[row : row + 2])
    wide = min(len(clouds), 2) * (SIDE + 2 * MARGIN)
    lefts = [place % 2 * (SIDE + 2 * MARGIN) + MARGIN for place in range(len(clouds))]
    panels = [
        f'<g transform="translate({left},{top + MARGIN})">{panel(cloud)}</g>'
        for left, top, cloud in zip(lefts, tops, clouds, strict=True)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{height}" viewBox="0 0 {wide} {height}"'
    return f'{head} font-family="sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="white"/>\n' + (
        "\n".join(panels) + "\n</svg>\n"
    )


def list_height(cloud: Cloud) -> int:
    kinds = len(np.unique(cloud.kinds))
    return 0 if kinds > MOST_KINDS else LINE * -(-kinds // 3)


def panel(cloud: Cloud) -> str:
    """One cloud with its title above and its kinds below."""
    low, high = cloud.places.min(axis=0), cloud.places.max(axis=0)
    scale = (SIDE - 8) / max(float((high - low).max()), 1e-9)
    found = [f'<text y="{LINE - 5}" font-weight="600">{escape(shortened(cloud.title, 56))}</text>']
    listed = list_height(cloud) > 0
    for place, (kind, name, points) in enumerate(cloud.by_kind()):
        x, y = ((points - (low + high) / 2) * scale * (1, -1) + (SIDE / 2, LINE + SIDE / 2)).T
        dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in zip(x, y, strict=True))
        found.append(f'<g fill="{colour_of(kind)}" fill-opacity="0.75">{dots}</g>')
        if listed:
            left, down = place % 3 * SIDE // 3, LINE + SIDE + LINE * (place // 3 + 1) - 5
            found.append(f'<circle cx="{left + 5}" cy="{down - 4}" r="4" fill="{colour_of(kind)}"/>')
            found.append(f'<text x="{left + 14}" y="{down}">{escape(shortened(name, 16))}</text>')
    return "".join(found)
