"""Draws the chains of docs/concepts.md: `python docs/tools/chains.py` writes docs/pictures/*.svg.

A client is a circle whose slices are the classes it has. Every picture has a ground of its own, so that it can be read
on light and on dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
CLASSES = ("#2f6fde", "#e08a2c", "#1b9470")
STYLE = """
.ground { fill: #fbfbfd; stroke: #d5d7de; }
.ink { fill: #23252b; font: 14px sans-serif; }
.small { fill: #555a66; font: 12px sans-serif; }
.line { stroke: #555a66; stroke-width: 2; fill: none; }
.faint { stroke: #9aa0ad; stroke-width: 1.5; fill: none; stroke-dasharray: 5 4; }
.head { fill: #555a66; }
.box { fill: #e9ecf5; stroke: #7d86a3; stroke-width: 1.5; }
.baton { fill: #c2255c; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #22242b; stroke: #3b3f4a; }
  .ink { fill: #f0f1f5; } .small { fill: #b9bfcc; } .line { stroke: #b9bfcc; } .head { fill: #b9bfcc; }
  .faint { stroke: #7f8796; } .box { fill: #343946; stroke: #7d86a3; } .baton { fill: #ff6b9d; }
}
"""
Point = tuple[float, float]
RADIUS = 17


def svg(name: str, size: tuple[int, int], parts: Sequence[str], title: str) -> tuple[str, str]:
    """A picture: its file, and what is in it."""
    wide, high = size
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0,0 L8,4 L0,8 Z"/></marker>'
    )
    return f"{name}.svg", "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style><defs>{head}</defs>",
            f'<rect class="ground" x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="10"/>',
            *parts,
            "</svg>\n",
        ]
    )


def client(at: Point, mix: Sequence[float]) -> str:
    """A circle with a slice for every class."""
    x, y = at
    parts, begin = [], -math.pi / 2
    for share, colour in zip(mix, CLASSES, strict=True):
        if share >= 1:
            parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{RADIUS}" fill="{colour}"/>')
        elif share > 0:
            end = begin + 2 * math.pi * share
            first, last = ((x + RADIUS * math.cos(turn), y + RADIUS * math.sin(turn)) for turn in (begin, end))
            large = int(share > 0.5)
            way = f"M{x:g},{y:g} L{first[0]:.1f},{first[1]:.1f} A{RADIUS},{RADIUS} 0 {large} 1 "
            way += f"{last[0]:.1f},{last[1]:.1f} Z"
            parts.append(f'<path d="{way}" fill="{colour}"/>')
            begin = end
    return "".join(parts)


def words(at: Point, text: str, *, small: bool = False, anchor: str = "middle") -> str:
    kind = "small" if small else "ink"
    return f'<text class="{kind}" x="{at[0]:g}" y="{at[1]:g}" text-anchor="{anchor}">{escape(text)}</text>'


def box(at: Point, size: tuple[float, float], text: str) -> str:
    (x, y), (wide, high) = at, size
    drawn = f'<rect class="box" x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="6"/>'
    return drawn + words((x + wide / 2, y + high / 2 + 5), text)


def arrow(start: Point, end: Point, *, gap: float = RADIUS + 3, baton: bool = False, faint: bool = False) -> str:
    """From one place to another, leaving room for the circles at both; the baton rides in its middle."""
    long = math.dist(start, end)
    along = ((end[0] - start[0]) / long, (end[1] - start[1]) / long)
    a = (start[0] + gap * along[0], start[1] + gap * along[1])
    b = (end[0] - gap * along[0], end[1] - gap * along[1])
    kind = "faint" if faint else "line"
    ends = f'x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}"'
    drawn = f'<line class="{kind}" {ends} marker-end="url(#head)"/>'
    if baton:
        middle = ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2)
        drawn += f'<rect class="baton" x="{middle[0] - 7:.1f}" y="{middle[1] - 4:.1f}" width="14" height="8" rx="3"/>'
    return drawn


def chain(left: Point, mixes: Sequence[Sequence[float]], *, step: float = 66, baton: int | None = None) -> str:
    """Clients from left to right; the baton is before the client of this number."""
    x, y = left
    places = [(x + number * step, y) for number in range(len(mixes))]
    ways = [arrow(one, other, baton=baton == number) for number, (one, other) in enumerate(pairwise(places), 1)]
    return "".join([*ways, *(client(place, mix) for place, mix in zip(places, mixes, strict=True))])


ONLY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
BLUE, ORANGE, GREEN = ONLY
MOSTLY = ((0.7, 0.3, 0.0), (0.0, 0.7, 0.3), (0.3, 0.0, 0.7))


def one_round() -> tuple[str, str]:
    """Plan, relay, merge."""
    parts = [words((70, 30), "plan"), words((355, 30), "relay"), words((640, 30), "merge")]
    parts += [box((20, 95), (100, 50), "server"), box((590, 95), (100, 50), "mean")]
    for number, (y, mixes) in enumerate(((65, ONLY), (120, (ORANGE, GREEN, BLUE)), (175, (GREEN, BLUE, ORANGE)))):
        parts.append(arrow((120, 120), (260, y), gap=6 + RADIUS))
        parts.append(chain((270, y), mixes, step=85, baton=number % 2 + 1))
        parts.append(arrow((440, y), (590, 120), gap=RADIUS + 4))
    parts.append('<path class="faint" d="M640,152 V218 H70 V152" marker-end="url(#head)"/>')
    parts.append(words((355, 212), "the next round begins with what was merged", small=True))
    parts.append(
        words((355, 245), "circles: clients, by the classes they have; red: the baton, a model on its way", small=True)
    )
    return svg(
        "round",
        (710, 262),
        parts,
        "A round: the server plans three chains of unlike clients, a model goes along each, their mean is the next",
    )


def family() -> tuple[str, str]:
    """FedAvg, FedSeq and FedCyclic: the same six clients."""
    parts = []
    for left, name, chains in (
        (20, "fedavg: chains of one", tuple((mix,) for mix in (*ONLY, *ONLY))),
        (250, "fedseq: a chain per group", (ONLY, (ORANGE, GREEN, BLUE))),
        (480, "fedcyclic: one chain", ((*ONLY, *ONLY),)),
    ):
        parts.append(words((left + 105, 28), name))
        if len(chains[0]) == 6:  # too long for one line
            upper = [(left + 30 + 66 * number, 90) for number in range(3)]
            lower = [(left + 162 - 66 * number, 165) for number in range(3)]
            places = upper + lower
            parts += [arrow(one, other, baton=number == 1) for number, (one, other) in enumerate(pairwise(places))]
            parts += [client(place, mix) for place, mix in zip(places, chains[0], strict=True)]
        elif len(chains) == 2:
            parts += [chain((left + 30, y), mixes, baton=1) for y, mixes in zip((90, 165), chains, strict=True)]
        else:
            places = [(left + 30 + 66 * (number % 3), 90 + 75 * (number // 3)) for number in range(6)]
            parts += [client(place, mix) for place, (mix,) in zip(places, chains, strict=True)]
        merged = {6: "six models are merged", 2: "two models are merged", 1: "nothing to merge"}[len(chains)]
        parts.append(words((left + 105, 215), merged, small=True))
    parts += [f'<line class="faint" x1="{x}" y1="15" x2="{x}" y2="225"/>' for x in (240, 470)]
    return svg(
        "family",
        (710, 240),
        parts,
        "Six clients in FedAvg (six chains of one), FedSeq (two chains of three) and FedCyclic (one chain of six)",
    )


def growth() -> tuple[str, str]:
    """From few long chains to many short ones."""
    parts = []
    for left, name, chains in (
        (20, "first rounds", ((*ONLY, *MOSTLY[:1]), (*MOSTLY[1:], *ONLY[:2]))),
        (310, "later", (ONLY[:2], MOSTLY[1:], (GREEN, MOSTLY[0]), ONLY[:2])),
        (510, "at the end", tuple((mix,) for mix in (*ONLY, *MOSTLY, *ONLY[:2]))),
    ):
        if len(chains) == 2:
            parts += [chain((left + 30, y), mixes, step=62) for y, mixes in zip((85, 155), chains, strict=True)]
            parts.append(words((left + 125, 28), name))
        elif len(chains) == 4:
            parts += [chain((left + 40, 62 + 44 * row), mixes, step=62) for row, mixes in enumerate(chains)]
            parts.append(words((left + 70, 28), name))
        else:
            places = [(left + 40 + 42 * (number % 4), 95 + 52 * (number // 4)) for number in range(8)]
            parts += [client(place, mix) for place, (mix,) in zip(places, chains, strict=True)]
            parts.append(words((left + 100, 28), name))
    parts += [arrow((272, 120), (322, 120), gap=0), arrow((470, 120), (520, 120), gap=0)]
    parts.append(
        words((355, 238), "long chains learn fast from unlike clients; many short ones average well", small=True)
    )
    return svg(
        "growth",
        (710, 254),
        parts,
        "FedSeq2Par and FedGSP: two chains of four, then four chains of two, then eight chains of one",
    )


def several() -> tuple[str, str]:
    """Batons that go on to another group, and are merged now and then."""
    parts = []
    groups = (ONLY, (ORANGE, GREEN, BLUE))
    for number, left in enumerate((20, 275)):
        parts.append(words((left + 95, 28), f"round {number + 1}"))
        parts += [chain((left + 30, y), mixes, baton=1) for y, mixes in zip((80, 160), groups, strict=True)]
    parts += [arrow((182, 80), (305, 160), faint=True), arrow((182, 160), (305, 80), faint=True)]
    parts += [arrow((437, 80), (570, 120), gap=RADIUS + 4), arrow((437, 160), (570, 120), gap=RADIUS + 4)]
    parts += [words((625, 28), "every period rounds"), box((575, 95), (100, 50), "mean")]
    parts.append(words((355, 215), "every baton goes on to another group; they are merged now and then", small=True))
    return svg(
        "several-batons",
        (710, 232),
        parts,
        "FedSeqInter: two batons change groups after every round, and are merged every few rounds",
    )


def serverless() -> tuple[str, str]:
    """A ring of neighbours, and a model that is passed round."""

    def ring(centre: Point) -> list[Point]:
        turns = [2 * math.pi * number / 6 - math.pi / 2 for number in range(6)]
        return [(centre[0] + 85 * math.cos(turn), centre[1] + 78 * math.sin(turn)) for turn in turns]

    parts = [words((180, 30), "dfedavgm: neighbours mix their models"), words((530, 30), "metafed: a model goes round")]
    left, right, mixes = ring((180, 142)), ring((530, 142)), (*ONLY, *ONLY)
    for number in range(6):
        one, other = left[number], left[(number + 1) % 6]
        parts += [arrow(one, other), arrow(other, one)]
        parts.append(arrow(right[number], right[(number + 1) % 6], baton=number == 1))
    parts += [client(place, mix) for places in (left, right) for place, mix in zip(places, mixes, strict=True)]
    parts.append('<line class="faint" x1="355" y1="15" x2="355" y2="250"/>')
    return svg(
        "without-a-server",
        (710, 264),
        parts,
        "Without a server: six clients on a ring exchange models with both neighbours, or pass one model round",
    )


def drawn() -> dict[str, str]:
    """All pictures, by the names of their files."""
    return dict([one_round(), family(), growth(), several(), serverless()])


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, content in drawn().items():
        (PICTURES / name).write_text(content, encoding="utf-8")
