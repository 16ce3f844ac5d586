"""An experiment whose clients have not come yet, with data made up in their place: to see whether it can be built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedrelay.data import Federation
from fedrelay.data.examples import Examples
from fedrelay.data.own.brought import ARRAYS, standing_in, wanted_of
from fedrelay.data.own.brought_pictures import FOLDER, SIZE
from fedrelay.errors import BadInput

COLUMNS, CLASSES, ROWS = 4, 2, 8
"""Of what is made up."""


def made_up(names: Sequence[str], data: Mapping[str, Any], *, exemplars: bool) -> list[Federation]:
    """What the clients' data may be like, as far as [data] says: rows of numbers, or pictures."""
    wanted_of(data)
    size, classes, numbers = data.get("size", SIZE), data.get("classes", CLASSES), data.get("target") == "numbers"
    if not isinstance(size, int) or not 0 < size <= 4096:
        raise BadInput(f"[data].size: expected a whole number up to 4096, not {size!r:.40}")
    if not isinstance(classes, int) or not 0 < classes < 1 << 16:
        raise BadInput(f"[data].classes: expected a whole number, not {classes!r:.40}")
    target = "numbers" if numbers else "classes"
    rows: dict[str, Any] = {"kind": ARRAYS, "shape": [COLUMNS], "type": "float32", "target": target, "targets": []}
    rows["classes"] = 1 if numbers else classes
    pictures = {"kind": FOLDER, "shape": [size, size, 3], "type": "uint8", "levels": []}
    pictures["class_names"] = [str(number) for number in range(classes)]
    found = [standing_in(names, [ROWS] * len(names), agreed, data) for agreed in (rows, pictures)]
    return [with_public(one) for one in found] if exemplars else found


def with_public(federation: Federation) -> Federation:
    """With an exemplar."""
    source = federation.source
    assert isinstance(source.train, Examples)
    x, y = source.train.x, source.train.y
    return replace(federation, source=replace(source, public=Examples(x[:1], y[:1], source.train.transform)))
