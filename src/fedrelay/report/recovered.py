"""Images that attackers have made: rows of the same noise, round after round."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from fedrelay.report.figures import Figure, Spec, axes, shortened
from fedrelay.runs import recovered
from fedrelay.runs.folder import Run
from fedrelay.runs.recovered import Bytes, Made

MOST_PICTURES, MOST_ROUNDS, ACROSS = 6, 6, 16
"""Of pictures on a page, and of rows and images in one."""
LEAST_SIDE, GAP = 32, 2
"""Small images are enlarged to so many pixels."""
WORDS = {
    "received": "the model it received",
    "random": "a random model",
    "own": "a model of its own examples alone",
}


def figures(runs: Sequence[Run], names: Sequence[str]) -> list[Figure]:
    """A picture for every attacker and discriminator of every run (the first few)."""
    found: list[Figure] = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        whose = f": {shortened(name)}" if len(runs) > 1 else ""
        for (client, kind), made in by_attacker(recovered.read(run.folder, len(run.rounds))).items():
            if len(found) < MOST_PICTURES:
                drawn = picture(f"recovered-{place}-{client}-{kind}", whose, client, kind, made)
                drawn.spec["data"][0]["meta"] = place
                found.append(drawn)
    return found


def by_attacker(made: Sequence[Made]) -> dict[tuple[int, str], list[tuple[int, Bytes]]]:
    """Rounds and images, by attacker and discriminator."""
    found: dict[tuple[int, str], list[tuple[int, Bytes]]] = {}
    for one in made:
        for kind, images in one.images.items():
            found.setdefault((one.client, kind), []).append((one.round, images))
    return found


def picture(key: str, whose: str, client: int, kind: str, made: Sequence[tuple[int, Bytes]]) -> Figure:
    shown = some(made)
    grid = grid_of([images[:ACROSS] for _, images in shown])
    title = f"Images that client {client} has made{whose}"
    rounds = [f"round {round}" for round, _ in shown]
    caption = f"From the same noise every time; the discriminator is {WORDS.get(kind, kind)}."
    return Figure(key, title, caption, spec_of(grid, rounds), wide=True)


def some(made: Sequence[tuple[int, Bytes]]) -> list[tuple[int, Bytes]]:
    """A few rounds, evenly, the first and the last among them."""
    if len(made) <= MOST_ROUNDS:
        return list(made)
    return [made[round(place)] for place in np.linspace(0, len(made) - 1, MOST_ROUNDS)]


def grid_of(rows: Sequence[Bytes]) -> Bytes:
    """Rows of images as one image: (height, width, 3)."""
    height, width = rows[0].shape[2:]
    times = max(-(-LEAST_SIDE // min(height, width)), 1)
    high, wide = height * times + GAP, width * times + GAP
    grid = np.full((high * len(rows), wide * max(map(len, rows)), 3), 255, np.uint8)
    for down, images in enumerate(rows):
        for across, image in enumerate(images):
            colours = image if len(image) == 3 else image[:1]
            large = colours.transpose(1, 2, 0).repeat(times, 0).repeat(times, 1)
            top, left = down * high, across * wide
            grid[top : top + high - GAP, left : left + wide - GAP] = large
    return grid


def png(grid: Bytes) -> bytes:
    content = io.BytesIO()
    Image.fromarray(grid).save(content, "PNG", optimize=True)
    return content.getvalue()


def spec_of(grid: Bytes, labels: Sequence[str]) -> Spec:
    """A picture with a word beside every row."""
    high = grid.shape[0] / len(labels)
    source = f"data:image/png;base64,{base64.b64encode(png(grid)).decode()}"
    layout = axes("", "")
    layout["height"] = 60 + min(grid.shape[0], 120 * len(labels))
    layout["xaxis"] |= {"showgrid": False, "showticklabels": False, "ticks": "", "rangemode": "normal"}
    layout["yaxis"] |= {
        "showgrid": False,
        "tickvals": [high * (place + 0.5) for place in range(len(labels))],
        "ticktext": list(labels),
    }
    return {"data": [{"type": "image", "source": source, "hoverinfo": "skip"}], "layout": layout}
