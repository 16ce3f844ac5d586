"""The tables of one run of a comparison: what the file says for all runs, and what this one says instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedrelay import config
from fedrelay.errors import BadInput


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with these changes, and what of the old ones the new ones do not know, so that it is left out.

    A section that names something else keeps what that knows too. Inside a section a table that names something else
    replaces the old one whole.
    """
    result, left_out = dict(base), []
    for section, value in changes.items():
        old = result.get(section)
        if not isinstance(value, Mapping) or not isinstance(old, Mapping):
            result[section] = value
            continue
        known = None if value.get("name") in (None, old.get("name")) else keys_of(section, value["name"])
        kept = dict(old) if known is None else {key: item for key, item in old.items() if key in known}
        left_out += [f"{section}.{key}" for key in old if key not in (*kept, *value)]
        result[section] = joined(kept, value)
    return result, left_out


def keys_of(section: str, name: object) -> Collection[str] | None:
    """What a section that names this knows; a name that does not exist is refused later, when the run is built."""
    try:
        return config.keys_of(section, name)
    except BadInput:
        return ()


def joined(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """One table over another; inside, a table that names something else replaces the old one whole."""
    result = dict(old)
    for key, value in new.items():
        before = result.get(key)
        result[key] = value
        if (
            isinstance(before, Mapping)
            and isinstance(value, Mapping)
            and value.get("name") in (None, before.get("name"))
        ):
            result[key] = joined(before, value)
    return result
