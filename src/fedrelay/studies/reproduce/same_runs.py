"""Items that show the runs of another item: a figure with the curves of a table's methods, say.

`like = "table2"` takes the experiment, panels and scales of that item of the same paper; `panels` and `runs` name those
that are shown, if not all. What is run for one of them is not run again for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedrelay.config import schema
from fedrelay.errors import BadInput

TAKEN = ("study", "experiment", "names", "scales", "needs")
"""What comes from the other item; besides its panels."""


def taken_over(tables: Mapping[str, Any], path: Path, read: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """These tables with what they take of the item that they are like."""
    name = schema.convert(tables["like"], str, "like")
    other = path.parent / f"{name}.toml"
    if name == path.stem or not other.is_file():
        raise BadInput(f"like: there is no other item {name!r} beside {path.name}")
    base = read(other)
    if "like" in base:
        raise BadInput(f"like: {name!r} is itself like {base['like']!r}: name that one")
    for key in (*TAKEN[:-1], "means"):
        if key in tables:
            raise BadInput(f"{key} is taken from {name!r} and cannot be said again")
    shown = panels_of(tables, base, name)
    mine = {key: base[key] for key in TAKEN if key in base} | dict(tables)
    if "panels" in base:
        mine["panels"] = {panel: base["panels"][panel] for panel in shown}
    else:
        mine.pop("panels", None)
    return {**mine, "scales": {scale: only_of(values, shown) for scale, values in base.get("scales", {}).items()}}


def panels_of(tables: Mapping[str, Any], base: Mapping[str, Any], name: str) -> list[str]:
    """The panels that are shown."""
    known = list(base.get("panels", {}))
    shown: list[str] = schema.convert(tables.get("panels", known), list[str], "panels")
    for panel in shown:
        if panel not in known:
            raise BadInput(f"panels: {name!r} has no {panel!r}{schema.nearest(panel, known)}")
    return shown


def only_of(scale: Any, shown: list[str]) -> Any:
    """A scale without what it says of other panels."""
    if not isinstance(scale, dict) or not shown:
        return scale
    kept = dict(scale)
    if "panels" in scale:
        kept["panels"] = [panel for panel in scale["panels"] if panel in shown]
    if isinstance(scale.get("change_in"), dict):
        kept["change_in"] = {panel: change for panel, change in scale["change_in"].items() if panel in shown}
    return kept
