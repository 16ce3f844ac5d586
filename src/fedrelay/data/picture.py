"""A split to look at: the label mix of every client as a picture file, and in small on the terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedrelay.data.federation import Federation
from fedrelay.data.heterogeneity import Floats, Spread, describe, label_mixes
from fedrelay.system import files, notebook

MOST_COLUMNS = 200
MOST_CLASSES = 200
STOPS = ((255, 255, 255), (253, 224, 160), (244, 142, 82), (196, 51, 84), (84, 15, 92))
"""White (no examples of the class) to dark (all of them)."""
SHADES = " ░▒▓█"
INK, FAINT = (30, 30, 30), (190, 190, 190)
Shade = tuple[int, int, int]


@dataclass(frozen=True)
class Mosaic:
    """What is drawn: label mixes (columns of clients x classes), a size per column, and the words beside them."""

    mixes: Floats
    sizes: Floats
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    caption: str


def heatmap(federation: Federation, path: Path | str) -> Path:
    """Write the label mix of every client as a PNG: clients along, classes down, client sizes as bars above.

    More clients than fit are sorted by their commonest class, and each column is the mean of a few that are alike.
    """
    path = Path(path)
    image = draw(mosaic(federation, MOST_COLUMNS, MOST_CLASSES), title(federation))
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.writing(path) as file:
        image.save(file, format="PNG", optimize=True)
    return path


def rendered(federation: Federation, *, rows: int = 20, width: int = 60) -> RenderableType:
    """The figures of a split and a small heat map, for the terminal."""
    found = describe(federation)
    table = Table.grid(padding=(0, 2))
    figures = {
        "source": found["source"],
        "clients": f"{found['clients']:,}",
        "examples": f"{found['examples']:,} ({found['unused']:,} unused, {found['repeated']:,} repeated)",
        "size of a client": three(found["sizes"]),
        "Gini of the sizes": f"{found['gini']:.3f}",
    }
    mix = found["mix"]
    if mix is not None:
        figures["classes per client"] = three(mix["classes_per_client"])
        figures["distance to the overall mix"] = (
            f"total variation {mix['total_variation']:.3f}, Jensen-Shannon {mix['jensen_shannon']:.3f}, "
            f"earth mover {mix['earth_mover']:.3f}"
        )
    if federation.source.preparation is not None:
        figures["columns"] = federation.source.preparation.kinds
    figures["fingerprint"] = found["fingerprint"][:16]
    if found["notes"]:
        figures["notes"] = "\n".join(found["notes"])
    for name, value in figures.items():
        table.add_row(Text(name, style="dim"), value)
    return table if mix is None else Group(table, Text(), shades(mosaic(federation, rows, width)))


def in_notebook(federation: Federation) -> str:
    """What a notebook shows of a federation: how many, how large, and the label mix of every client."""
    sizes, source = federation.sizes, federation.source
    facts = {
        "clients": f"{len(federation):,}",
        "examples": f"{sum(sizes):,} to train on, {len(federation.evaluated):,} to test on",
        "inputs": source.train.form,
        "size of a client": f"{min(sizes):,} to {max(sizes):,}, the median {np.median(sizes):,.10g}",
    }
    shown = notebook.facts(title(federation), facts)
    if federation.classes_of_clients() is None:
        return shown
    written = io.BytesIO()
    draw(mosaic(federation, MOST_COLUMNS, MOST_CLASSES), title(federation)).save(written, format="PNG", optimize=True)
    return shown + notebook.picture(written.getvalue(), "label mix of every client")


def three(spread: Spread) -> str:
    return f"{spread['smallest']:g} / {spread['median']:g} / {spread['largest']:g} (smallest / median / largest)"


def title(federation: Federation) -> str:
    source = federation.source
    what = {"labels": f"{source.classes} labels", "numbers": f"{source.classes} numbers to predict"}
    told = what.get(source.train.target, f"{source.classes} classes")
    return f"{source.name}: {len(federation):,} clients, {len(federation.order):,} examples, {told}"


def shades(picture: Mosaic) -> RenderableType:
    """One line per client, one cell per class; the darker, the larger the class's share."""
    table = Table.grid(padding=(0, 1))
    levels = np.ceil(picture.mixes * (len(SHADES) - 1) - 1e-9).astype(int)
    cell = 2 if len(picture.classes) <= 30 else 1
    for name, size, line in zip(picture.columns, picture.sizes, levels, strict=True):
        table.add_row(Text(name, style="dim"), "".join(SHADES[level] * cell for level in line), f"{size:,.0f}")
    return Group(
        Text(f"{picture.caption}; columns: classes {picture.classes[0]} … {picture.classes[-1]}; right: size"), table
    )


def mosaic(federation: Federation, most_columns: int, most_classes: int) -> Mosaic:
    """The label mixes, with clients and classes put together where there are more than fit."""
    counts = federation.label_counts()
    counts, classes = fewer_classes(counts, federation.source.class_names, most_classes)
    mixes, sizes = label_mixes(counts), counts.sum(axis=1).astype(np.float64)
    if len(counts) <= most_columns:
        return Mosaic(mixes, sizes, classes, called(federation.names), "clients")
    # Clients in their own order would blur into the overall mix, whatever the split; alike ones together do not.
    commonest = mixes.argmax(axis=1)
    bins = np.array_split(np.lexsort((-mixes.max(axis=1), commonest)), most_columns)
    ends = np.cumsum([len(members) for members in bins])
    columns = tuple(f"{end - len(members)}-{end - 1}" for members, end in zip(bins, ends, strict=True))
    return Mosaic(
        np.stack([mixes[members].mean(axis=0) for members in bins]),
        np.array([sizes[members].mean() for members in bins]),
        classes,
        columns,
        f"place among the clients sorted by commonest class; means of about {len(bins[-1])} clients",
    )


def called(names: Sequence[str]) -> tuple[str, ...]:
    """Clients by their names, cut short; by their numbers alone where nobody has named them."""
    return tuple(str(n) if name == f"client {n}" else shortened(name) for n, name in enumerate(names))


def shortened(name: str, most: int = 16) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def fewer_classes(
    counts: NDArray[np.int64], names: Sequence[str], most: int
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """At most `most` classes: the commonest ones, and one for all the others."""
    classes = counts.shape[1]
    named = tuple(names) if len(names) == classes else tuple(str(label) for label in range(classes))
    if classes <= most:
        return counts, named
    kept = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[: most - 1])
    rest = counts.sum(axis=1) - counts[:, kept].sum(axis=1)
    return np.column_stack([counts[:, kept], rest]), (*(named[label] for label in kept), "others")


def colours(shares: Floats) -> NDArray[np.uint8]:
    """Shares between 0 and 1 as colours."""
    at = np.linspace(0, 1, len(STOPS))
    channels = [np.interp(shares, at, [stop[channel] for stop in STOPS]) for channel in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def draw(picture: Mosaic, heading: str) -> Image.Image:
    """The whole picture: heading, bars of sizes, the mosaic, axes and the scale of colours."""
    columns, classes = picture.mixes.shape
    wide, high = max(3, min(40, 900 // columns)), max(4, min(24, 480 // classes))
    font = ImageFont.load_default(13)
    names = [shortened(name) for name in picture.classes]
    left = 40 + int(max(font.getlength(name) for name in names))
    top, bars = 40, 60
    width, height = max(columns * wide, 420), classes * high
    image = Image.new("RGB", (left + width + 130, top + bars + height + 60), "white")
    pen = ImageDraw.Draw(image)
    pen.text((left, 10), heading, fill=INK, font=font)
    _draw_sizes(pen, picture.sizes, (left, top), (wide, bars - 8))
    cells = Image.fromarray(colours(picture.mixes.T)).resize((columns * wide, height), Image.Resampling.NEAREST)
    corner = (left, top + bars)
    image.paste(cells, corner)
    pen.rectangle((left - 1, corner[1] - 1, left + columns * wide, corner[1] + height), outline=FAINT)
    for number in ticks(classes, height, 15):
        pen.text((left - 8, corner[1] + (number + 0.5) * high), names[number], fill=INK, font=font, anchor="rm")
    below = corner[1] + height
    pen.text((left - 8, below + 7), "class", fill=INK, font=font, anchor="ra")
    longest = max(font.getlength(name) for name in picture.columns)
    for number in ticks(columns, columns * wide, longest + 14):
        middle = left + (number + 0.5) * wide
        pen.line((middle, below, middle, below + 4), fill=INK)
        pen.text((middle, below + 7), picture.columns[number], fill=INK, font=font, anchor="ma")
    pen.text((left, below + 28), picture.caption, fill=INK, font=font)
    _draw_scale(image, pen, (left + width + 24, corner[1]), max(height, 60))
    return image


def ticks(count: int, length: float, room: float) -> list[int]:
    """Which of `count` entries along `length` pixels get a label when each label needs `room`: every n-th."""
    fitting = max(1, int(length // room))
    step = -(-count // fitting)
    for scale in (1, 10, 100, 1000, 10_000):
        for nice in (1, 2, 5):
            if nice * scale >= step:
                return list(range(0, count, nice * scale))
    return [0]


def _draw_sizes(pen: ImageDraw.ImageDraw, sizes: Floats, corner: tuple[int, int], cell: tuple[int, int]) -> None:
    """A bar per column; the largest is as high as there is room."""
    (left, top), (wide, high) = corner, cell
    font = ImageFont.load_default(11)
    for number, size in enumerate(sizes):
        bar = max(1, round(high * size / sizes.max()))
        right = left + (number + 1) * wide - (2 if wide > 5 else 1)
        pen.rectangle((left + number * wide, top + high - bar, right, top + high), fill=(120, 140, 170))
    pen.text((left - 8, top), f"{sizes.max():,.0f}", fill=INK, font=font, anchor="rt")
    pen.text((left - 8, top + high), "size", fill=INK, font=font, anchor="rb")


def _draw_scale(image: Image.Image, pen: ImageDraw.ImageDraw, corner: tuple[int, int], height: int) -> None:
    """Which colour is which share."""
    left, top = corner
    font = ImageFont.load_default(11)
    strip = Image.fromarray(colours(np.linspace(1, 0, height)[:, None].repeat(16, axis=1)))
    image.paste(strip, corner)
    pen.rectangle((left - 1, top - 1, left + 16, top + height), outline=FAINT)
    for share, word in ((1.0, "100 %"), (0.5, "50 %"), (0.0, "0 %")):
        pen.text((left + 22, top + (1 - share) * height), word, fill=INK, font=font, anchor="lm")
    pen.text((left, top - 10), "share of a client", fill=INK, font=font, anchor="ls")
