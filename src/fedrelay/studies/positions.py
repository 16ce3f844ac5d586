"""What an attacker's place in the chain is worth to it: the damage by position, from the runs of a comparison.

Runs whose attackers stand at a place counted from the end of a chain (`who = { name = "position", position = -1 }`) are
set beside the honest run of the same method: one without [attack], or with `strength = 0`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fedrelay.report.figures import COLOURS, Figure, Spec, axes, shortened
from fedrelay.report.measures import words
from fedrelay.studies.compared import Row, headline
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.over_seeds import mean_and_deviation
from fedrelay.tasks import Headline

BESIDE = ("name", "who", "first_round", "last_round")


@dataclass(frozen=True)
class Damage:
    """What an attack from one place took off the headline, seed by seed."""

    attack: str
    after: int
    """How many clients follow the attacker in its chain."""
    lost: tuple[float, ...]


def damages(rows: Sequence[Row], tables: Mapping[str, Mapping[str, Any]]) -> list[Damage]:
    """Of all rows that attack from a place; `tables` has the configuration of each. A row without its honest one, or in
    which a seed failed, is left out."""
    several = len({method_of(tables[row.name]) for row in rows if place_of(tables[row.name]) is not None}) > 1
    found = []
    for row in rows:
        own = tables[row.name]
        place, base = place_of(own), honest(row, rows, tables)
        if place is None or base is None:
            continue
        lost = lost_of(base, row)
        if lost:
            name = f"{method_of(own)}: {attack_of(own)}" if several else attack_of(own)
            found.append(Damage(name, -1 - place, tuple(lost)))
    return found


def lost_of(base: Row, row: Row) -> list[float]:
    """By how much a row is worse than another, seed by seed, where both were tested."""
    by = headline(row.summaries)
    means = [(one.mean, other.mean) for one, other in zip(base.summaries, row.summaries, strict=True)]
    return [by.merit(one) - by.merit(other) for one, other in means if one is not None and other is not None]


def place_of(tables: Mapping[str, Any]) -> int | None:
    """Where its attackers stand, counted from the end; None if they do not stand at such a place."""
    attack = tables.get("attack")
    who = attack.get("who") if isinstance(attack, Mapping) and attack.get("strength") != 0 else None
    who = {"name": who} if isinstance(who, str) else who
    if not isinstance(who, Mapping) or who.get("name") != "position":
        return None
    place = who.get("position", -1)
    return place if isinstance(place, int) and place < 0 else None


def method_of(tables: Mapping[str, Any]) -> str:
    return str(tables["algorithm"].get("name"))


def attack_of(tables: Mapping[str, Any]) -> str:
    """The attack with its settings, in words."""
    attack = tables["attack"]
    own = [f"{words(key)} {value}" for key, value in attack.items() if key not in BESIDE]
    return ", ".join([words(str(attack["name"])), *own])


def honest(row: Row, rows: Sequence[Row], tables: Mapping[str, Mapping[str, Any]]) -> Row | None:
    """The row of the same method, with the same seeds, in which nobody attacks."""
    for one in rows:
        attack = tables[one.name].get("attack")
        quiet = attack is None or (isinstance(attack, Mapping) and attack.get("strength") == 0)
        alike = tables[one.name]["algorithm"] == tables[row.name]["algorithm"] and one.seeds == row.seeds
        if quiet and alike and not one.failed and not row.failed:
            return one
    return None


def table(found: Sequence[Damage], by: Headline) -> str:
    """In Markdown: a line for every attack, a column for every place; empty if nobody attacks from a place."""
    if not found:
        return ""
    places = sorted({one.after for one in found})
    attacks = dict.fromkeys(one.attack for one in found)
    cells = {(one.attack, one.after): mean_and_deviation(one.lost, by.text) for one in found}
    lines = [[attack, *(cells.get((attack, place), "–") for place in places)] for attack in attacks]
    heads = ["attack", *("the last" if not place else f"{place} follow" for place in places)]
    about = f"{words(by.name).capitalize()} lost to an attacker, by how many clients follow it in its chain:"
    return f"{about}\n\n{markdown_table(heads, lines, words=1)}\n"


def picture(found: Sequence[Damage], by: Headline) -> list[Figure]:
    """A line for every attack; nothing if all attack from one place."""
    if len({one.after for one in found}) < 2:
        return []
    caption = f"What is lost of the honest run's {words(by.name)}. Deviations are over seeds."
    return [Figure("positions", "Damage by position in the chain", caption, drawn(found, by), wide=True)]


def drawn(found: Sequence[Damage], by: Headline) -> Spec:
    factor = 100.0 if by.share else 1.0
    data: list[Spec] = []
    for number, attack in enumerate(dict.fromkeys(one.attack for one in found)):
        mine = sorted((one for one in found if one.attack == attack), key=lambda one: one.after)
        apart = [factor * statistics.stdev(one.lost) if len(one.lost) > 1 else 0.0 for one in mine]
        colour = COLOURS[number % len(COLOURS)]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": escape(shortened(attack, 48)),
                "x": [one.after for one in mine],
                "y": [factor * statistics.fmean(one.lost) for one in mine],
                "error_y": {"type": "data", "array": apart, "color": colour, "thickness": 1},
                "line": {"color": colour, "width": 2},
                "hovertemplate": "%{y:.4~g}",
            }
        )
    layout = axes("Clients that follow the attacker in its chain", f"{words(by.name).capitalize()} lost")
    layout |= {"showlegend": True, "hovermode": "x unified"}
    layout["yaxis"] |= {"ticksuffix": " %"} if by.share else {}
    return {"data": data, "layout": layout}
