"""How objects look in a notebook: small tables, pictures and curves, as HTML that cannot be more than that.

Whatever is shown is escaped: names of runs and clients are other people's texts. Colours are the notebook's own, so
light and dark both do.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#2f6fde", "#d9622b", "#1b9470", "#b54fc4", "#a87b00", "#d6456b", "#0e8fb0", "#7a62d9")
WIDTH, HEIGHT, MARGIN = 520, 240, 44
Curve = Sequence[tuple[float, float]]
"""Points from left to right."""


def facts(title: str, named: Mapping[str, object]) -> str:
    """A heading, and two columns: what, and how much of it."""
    lines = [f"<tr><th style='text-align:left'>{text(name)}</th>{cell(value)}</tr>" for name, value in named.items()]
    return f"{heading(title)}<table><tbody>{''.join(lines)}</tbody></table>"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A heading, and rows below the names of their columns."""
    top = "".join(f"<th style='text-align:left'>{text(column)}</th>" for column in columns)
    body = "".join(f"<tr style='white-space:nowrap'>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"{heading(title)}<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def picture(png: bytes, described: str) -> str:
    """A picture that is part of the page."""
    coded = base64.b64encode(png).decode("ascii")
    return f"<img alt='{text(described)}' src='data:image/png;base64,{coded}' style='max-width:100%'>"


def curves(named: Mapping[str, Curve], *, across: str, up: str) -> str:
    """Lines with their legend, drawn small; empty where no line has two points."""
    named = {name: points for name, points in named.items() if len(points) > 1}
    if not named:
        return ""
    xs, ys = ([point[axis] for points in named.values() for point in points] for axis in (0, 1))
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    wide, tall = right - left or 1.0, high - low or 1.0

    def place(x: float, y: float) -> str:
        at = MARGIN + (x - left) / wide * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - (y - low) / tall * (HEIGHT - 64)
        return f"{at[0]:.1f},{at[1]:.1f}"

    drawn, legend = [], []
    for number, (name, points) in enumerate(named.items()):
        colour = COLOURS[number % len(COLOURS)]
        way = " ".join(place(*point) for point in points)
        drawn.append(f"<polyline fill='none' stroke='{colour}' stroke-width='2' points='{way}'/>")
        legend.append(f"<span style='color:{colour}'>&#9644;</span> {text(name)}")
    bottom, end = HEIGHT - MARGIN, WIDTH - MARGIN
    words = [
        (MARGIN, bottom + 16, "start", f"{left:g}"),
        (end, bottom + 16, "end", f"{right:g}"),
        ((MARGIN + end) / 2, bottom + 32, "middle", across),
        (MARGIN - 4, bottom, "end", f"{low:.3g}"),
        (MARGIN - 4, 24, "end", f"{high:.3g}"),
        (MARGIN, 12, "start", up),
    ]
    said = "".join(
        f"<text x='{x:g}' y='{y:g}' text-anchor='{anchor}' font-size='12' fill='currentColor'>{text(word)}</text>"
        for x, y, anchor, word in words
    )
    axes = f"<path d='M{MARGIN},20 V{bottom} H{end}' fill='none' stroke='currentColor' stroke-opacity='0.4'/>"
    size = f"viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' style='max-width:100%'"
    about = f"role='img' aria-label='{text(up)} by {text(across)}'"
    return f"<svg {size} {about}>{axes}{said}{''.join(drawn)}</svg><div>{' &nbsp; '.join(legend)}</div>"


def heading(title: str) -> str:
    return f"<div><b>{text(title)}</b></div>"


def cell(value: object) -> str:
    return f"<td style='text-align:left'>{text('–' if value is None else value)}</td>"


def text(value: object) -> str:
    """Anything as words of a page, in a tag's attribute as well."""
    return escape(str(value), quote=True)
