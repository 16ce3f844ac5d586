"""The file of a grid: methods, attacks and defences as tables, and the runs that come of crossing them.

`[methods.NAME]` and `[defences.NAME]` say what differs, section by section, as `[runs.NAME]` of a comparison does;
`[attacks.NAME]` is the section [attack]. `[methods.NAME.defences.NAME]` is a defence that only this method has, or has
in another way than the others. Nobody attacks in the first row, and nothing is done about it in the first column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fedrelay.errors import BadInput
from fedrelay.report.measures import words
from fedrelay.studies.overrides import joined

METHODS, ATTACKS, DEFENCES = AXES = ("methods", "attacks", "defences")
NOBODY, NOTHING = "nobody attacks", "no defence"

Place: TypeAlias = tuple[str, str, str]
"""A method, an attack and a defence, by their names in the file."""


@dataclass(frozen=True)
class Crossing:
    """What is crossed, by names in the order of the file, and what differs in every run."""

    methods: tuple[str, ...]
    attacks: tuple[str, ...]
    defences: tuple[str, ...]
    runs: Mapping[Place, Mapping[str, Any]]
    who: Mapping[str, str]
    """Who attacks, in words, by the name of the attack."""

    def along_the_edges(self) -> Iterator[Place]:
        """The first row and the first column of every method: whoever is wrong there is wrong everywhere."""
        yield from (place for place in self.runs if NOBODY in place or NOTHING in place)


def name_of(place: Place) -> str:
    return " · ".join(place)


def crossed(tables: Mapping[str, Any]) -> Crossing:
    """The grid of a file that has one."""
    methods, attacks, defences = (named(tables, axis) for axis in AXES)
    if not methods:
        raise BadInput("a grid needs methods: add a table [methods.NAME] for each, with what differs in it")
    if not attacks:
        raise BadInput("a grid needs attacks: add a table [attacks.NAME] for each, such as { name = 'sign_flip' }")
    if "attack" in tables:
        raise BadInput("[attack] would attack in every run, and nobody attacks in the first row: use [attacks.NAME]")
    own = {method: named(changes, DEFENCES, f"methods.{method}.") for method, changes in methods.items()}
    columns = list(dict.fromkeys([*defences, *(name for some in own.values() for name in some)]))
    for name, reserved in ((NOBODY, attacks), (NOTHING, columns)):
        if name in reserved:
            raise BadInput(f"{name!r} is there without being said: give the table of this name another one")
    runs: dict[Place, Mapping[str, Any]] = {}
    for method, changes in methods.items():
        base = {key: value for key, value in changes.items() if key != DEFENCES}
        known = {NOTHING: {}, **{name: {**defences, **own[method]}.get(name) for name in columns}}
        for attack in (NOBODY, *attacks):
            poison = {"attack": attacks[attack]} if attack in attacks else {}
            for defence, more in known.items():
                if more is not None:
                    runs[method, attack, defence] = joined(joined(base, more), poison)
    who = {name: in_words(attack.get("who")) for name, attack in attacks.items()}
    return Crossing(tuple(methods), (NOBODY, *attacks), (NOTHING, *columns), runs, who)


def in_words(who: Any) -> str:
    """Who attacks: a share of all clients, as a rule."""
    who = {"name": who} if isinstance(who, str) else {"name": "share"} if who is None else who
    if not isinstance(who, Mapping):
        return str(who)
    if who.get("name") == "share" and isinstance(who.get("share", 0.1), int | float):
        return f"{100 * who.get('share', 0.1):g} % of the clients"
    return " ".join(words(str(part)) for item in who.items() for part in item if part != "name")


def named(tables: Mapping[str, Any], axis: str, where: str = "") -> Mapping[str, Mapping[str, Any]]:
    """The tables of one axis by name."""
    found = tables.get(axis, {})
    if not isinstance(found, Mapping) or not all(isinstance(one, Mapping) for one in found.values()):
        raise BadInput(f"{where}{axis} must be tables [{where}{axis}.NAME], each with what differs in it")
    return found


def asked(tables: Mapping[str, Any]) -> bool:
    """Whether a file is one of a grid."""
    some = [axis for axis in AXES if axis in tables]
    if some and "runs" in tables:
        raise BadInput(
            f"a file has [runs] that stand side by side or {some[0]} that are crossed: leave one of them out"
        )
    return bool(some)


def refused_everywhere(grid: Crossing, refused: Mapping[Place, str]) -> tuple[str, str] | None:
    """A table whose every run along the edges is refused, and why: that is a mistake in it, and no condition."""
    edges = list(grid.along_the_edges())
    for axis, names, first in zip((0, 1, 2), (grid.methods, grid.attacks, grid.defences), AXES, strict=True):
        for name in names:
            mine = [place for place in edges if place[axis] == name and alone(place, axis)]
            if mine and all(place in refused for place in mine):
                return f"{first}.{name}", refused[mine[0]]
    return None


def alone(place: Place, axis: int) -> bool:
    """Whether only this axis differs from the run in which nobody attacks and nothing is done about it."""
    others: Sequence[str] = [name for number, name in enumerate(place) if number not in (0, axis)]
    return all(name in (NOBODY, NOTHING) for name in others)
