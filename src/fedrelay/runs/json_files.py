"""JSON as we write it and read it back: what is damaged is told with its key, never by an exception of Python's own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from fedrelay.errors import BadInput
from fedrelay.runs.costs import DIRECTIONS


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON as everybody reads it: numbers that are not finite become null."""

    def finite(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {key: finite(part) for key, part in item.items()}
        if isinstance(item, list | tuple):
            return [finite(part) for part in item]
        return None if isinstance(item, float) and not math.isfinite(item) else item

    return json.dumps(finite(value), indent=indent, allow_nan=False)


def read(path: Path, remedy: str) -> bytes:
    """What a file holds; who reads from a pipe or a device in its place could wait for ever."""
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path} is not a plain file: {remedy}")
        return path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path} is missing: {remedy}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): {remedy}") from None


class Damaged(Exception):
    """What is wrong with a line or file; whoever knows its name turns it into BadInput."""


Check = Callable[[Any, str], None]
"""Refuse a value that this key cannot have."""


def need(good: bool, expected: str, found: object) -> None:
    if not good:
        raise Damaged(f"{expected}, found {json.dumps(found)[:60]}")


def parsed(raw: bytes) -> dict[str, Any]:
    try:
        # A loss that overflowed may stand there as NaN or Infinity: there is no point of the curve to draw.
        found = json.loads(raw.decode(), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        text = raw[:40].decode(errors="replace")
        raise Damaged(f"not JSON: it begins with {text!r}") from None
    need(isinstance(found, dict), "it should be one JSON object", found)
    return cast(dict[str, Any], found)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def number(value: Any, key: str) -> None:
    need(is_number(value), f"{key} should be a number", value)


def maybe(value: Any, key: str) -> None:
    need(value is None or is_number(value), f"{key} should be a number", value)


def text(value: Any, key: str) -> None:
    need(isinstance(value, str), f"{key} should be a text", value)


def truth(value: Any, key: str) -> None:
    need(isinstance(value, bool), f"{key} should be true or false", value)


def directions(*more: str) -> Check:
    """A number for every direction, and for these."""

    def check(value: Any, key: str) -> None:
        good = isinstance(value, dict) and all(is_number(value.get(part)) for part in (*DIRECTIONS, *more))
        need(good, f"{key} should have the numbers {', '.join((*DIRECTIONS, *more))}", value)

    return check


def part(value: Any, key: str) -> None:
    good = isinstance(value, dict) and is_number(value.get("bytes")) and is_number(value.get("messages", 0))
    need(good, f"{key} should say messages and bytes", value)


def numbers(value: Any, key: str) -> None:
    good = isinstance(value, dict) and all(item is None or is_number(item) for item in value.values())
    need(good, f"{key} should hold numbers", value)


def shares(value: Any, key: str) -> None:
    """Shares of the target → a number or null; without a target there may be none."""
    good = isinstance(value, dict) and all(is_share(k) and (v is None or is_number(v)) for k, v in value.items())
    need(good, f"{key} should map shares of the target to numbers", value)


def shares_by_name(value: Any, key: str) -> None:
    """Several of them, each with its name."""
    need(isinstance(value, dict), f"{key} should hold numbers by name and share of the target", value)
    for name, each in value.items():
        shares(each, f"{key}.{name}")


def is_share(key: str) -> bool:
    try:
        return 0 < float(key) < math.inf
    except ValueError:
        return False


def lost(*numbered: str) -> Check:
    """A list of clients with these numbers and a reason."""

    def check(value: Any, key: str) -> None:
        need(isinstance(value, list), f"{key} should be a list", value)
        for one in value:
            good = isinstance(one, dict) and all(is_number(one.get(name)) for name in numbered)
            words = ", ".join(numbered)
            need(good and isinstance(one.get("reason"), str), f"{key} should say {words} and reason", one)

    return check


def numbered(*names: str) -> Check:
    """A list of entries with these numbers."""

    def check(value: Any, key: str) -> None:
        need(isinstance(value, list), f"{key} should be a list", value)
        for one in value:
            good = isinstance(one, dict) and all(is_number(one.get(name)) for name in names)
            need(good, f"{key} should say {', '.join(names)}", one)

    return check


def listed(value: Any, key: str) -> None:
    need(isinstance(value, list) and all(map(is_number, value)), f"{key} should be a list of numbers", value)


def chains(value: Any, key: str) -> None:
    need(isinstance(value, list), f"{key} should be a list of chains", value)
    for one in value:
        listed(one, key)


def pool(value: Any, key: str) -> None:
    """The number of a client and a square of numbers."""
    rows = value.get("distances") if isinstance(value, dict) else None
    square = isinstance(rows, list) and all(
        isinstance(row, list) and len(row) == len(rows) and all(item is None or is_number(item) for item in row)
        for row in rows
    )
    need(square and is_number(value.get("client")), f"{key} should say client and distances", value)


def wire(value: Any, key: str) -> None:
    """Bytes there and back, by client, and the seconds of every hop."""
    good = isinstance(value, dict) and all(is_number(value.get(name)) for name in ("sent", "received"))
    need(good, f"{key} should say sent and received", value)
    numbered("client", "visits", "sent", "received")(value.get("clients"), f"{key}.clients")
    numbered("client", "chain", "hop", "waiting", "transfer", "training")(value.get("hops"), f"{key}.hops")
