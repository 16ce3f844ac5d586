"""What clients tell of their data, before it is believed: within bounds, and who does not go with most others."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from fedrelay.data.examples import Target
from fedrelay.data.own.brought import ARRAYS, TABLE, agreed_on_arrays, wanted_of
from fedrelay.data.own.brought_pictures import FOLDER, agreed_on_pictures
from fedrelay.data.tables.statistics import merged
from fedrelay.data.tables.table import Kind
from fedrelay.errors import BadInput
from fedrelay.types import Tree

MOST_ROWS = 10_000_000
"""Of one client. A server counts every one of them."""
MOST_NUMBERS = 1 << 24
"""Of one example: a picture of 4096 x 4096."""
MOST_CLASSES = 1 << 16
MOST_COLUMNS = 1 << 14
LARGEST = 1e300
TYPES = ("uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
NUMBER = re.compile(r"-?[0-9]{1,18}")
STARTS = 8
"""From so many clients on it is tried who goes with whom, if not all go together."""


def check_bounds(told: Tree) -> None:
    """Refuse (BadInput) what no client can have, or no server hold; a description that lacks a part raises a KeyError
    or a TypeError."""
    _whole("rows", told["rows"], most=MOST_ROWS)
    if told["kind"] == TABLE:
        _check_table(told)
        return
    _check_shape("shape", told["shape"])
    _among("type", told["type"], TYPES)
    if told["kind"] == FOLDER:
        names = told["classes"]
        if not isinstance(names, list) or not all(isinstance(name, str) and len(name) <= 255 for name in names):
            raise BadInput("its classes are no names")
        _whole("classes", len(names), most=MOST_CLASSES)
        for value in told.get("range", ()):
            _number("range", value)
    elif told["kind"] == ARRAYS:
        _check_shape("targets", told["targets"])
        _among("target", told["target"], get_args(Target))
        _whole("classes", told["classes"], most=MOST_CLASSES)


def _check_table(told: Tree) -> None:
    columns, labels = told["columns"], told["labels"]
    _whole("columns", len(columns), most=MOST_COLUMNS)
    for name, column in [*columns.items(), *([("labels", labels)] if labels else [])]:
        _among(f"kind of {name!s:.60}", column["kind"], (*get_args(Kind), "text"))
        for count in (column.get("count", 0), column.get("different", 0), *column.get("counts", {}).values()):
            _whole(f"counts of {name!s:.60}", count, least=0, most=MOST_ROWS)
        for part in ("sum", "squares"):
            _number(f"{part} of {name!s:.60}", column.get(part, 0.0), least=-LARGEST if part == "sum" else 0.0)
    if labels:
        _whole("classes", len(labels["counts"]), most=MOST_CLASSES)
        if labels["kind"] == "number" and not all(NUMBER.fullmatch(word) for word in labels["counts"]):
            raise BadInput("its labels are called numbers, and are none")


def _check_shape(name: str, shape: object) -> None:
    if not isinstance(shape, list) or len(shape) > 8:
        raise BadInput(f"its {name} is no list of at most 8 sides")
    for side in shape:
        _whole(name, side, most=MOST_NUMBERS)
    _whole(f"{name}, multiplied,", math.prod(shape), most=MOST_NUMBERS)


def _whole(name: str, value: object, *, least: int = 1, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise BadInput(f"its {name} is {value!s:.40}, and a whole number from {least} to {most:,} can be taken")


def _number(name: str, value: object, *, least: float = -LARGEST) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LARGEST:
        raise BadInput(f"its {name} is {value!s:.40}, which is no finite number, or too large")


def _among(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise BadInput(f"its {name} is {value!s:.40}, and it can be {', '.join(known)}")


# --- who goes with whom


def check_together(told: Mapping[str, Tree], data: Mapping[str, Any]) -> None:
    """Refuse data that cannot be put together, by names of clients; too little of it is not refused here."""
    kinds = {str(tree["kind"]) for tree in told.values()}
    if len(kinds) > 1:
        found = ", ".join(f"{name} {tree['kind']}" for name, tree in list(told.items())[:10])
        raise BadInput(f"clients bring different kinds of data ({found}): all tables, all folders, or all arrays")
    if kinds == {TABLE}:
        _check_columns(told)
        merged("the clients' tables", dict(told), wanted_of(data)[0].declared.categories)
    elif kinds == {FOLDER}:
        agreed_on_pictures(told, data)
    else:
        agreed_on_arrays(told, data)


def _check_columns(told: Mapping[str, Tree]) -> None:
    first, *others = told
    for other in others:
        for name in sorted(told[first]["columns"].keys() ^ told[other]["columns"].keys()):
            has, lacks = (first, other) if name in told[first]["columns"] else (other, first)
            raise BadInput(f"the clients' tables differ: {has} has a column {name!r:.60}, and {lacks} has none")


class NoMajority(BadInput):
    """Clients' data does not go together, and nobody can say which of them is the odd one."""


def misfits(told: Mapping[str, Tree], data: Mapping[str, Any]) -> dict[str, str]:
    """The clients whose data does not go with that of most others, and why; nobody, if all go together. If no more than
    half of them go together, none of them is refused (`NoMajority`)."""
    if _why_not(told, data) is None:
        return {}
    alone = {name: _why_not({name: tree}, data) for name, tree in told.items()}
    sound = {name: tree for name, tree in told.items() if alone[name] is None}
    best: list[str] = []
    for start in list(sound)[:STARTS]:
        group: list[str] = []
        for name in (start, *(name for name in sound if name != start)):
            if _why_not({one: sound[one] for one in (*group, name)}, data) is None:
                group.append(name)
        best = max(best, group, key=len)
        if 2 * len(best) > len(sound):
            break
    fitting = {name: told[name] for name in best}
    odd = {name: alone[name] or _why_not({**fitting, name: tree}, data) for name, tree in told.items()}
    found = {name: reason for name, reason in odd.items() if reason is not None}
    if 2 * len(best) <= len(sound) and (other := next((name for name in found if name in sound), None)):
        raise NoMajority(
            f"the data of {best[0]} and {other} does not go together, and no more than half of {len(sound)} clients "
            f"agree, so it cannot be said which is the odd one: {found[other]}. Mend the data of one, or leave it out"
        )
    return found


def _why_not(told: Mapping[str, Tree], data: Mapping[str, Any]) -> str | None:
    try:
        check_together(told, data)
    except BadInput as error:
        return str(error)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError) as error:
        return f"what they tell of it cannot be read ({type(error).__name__})"
    return None
