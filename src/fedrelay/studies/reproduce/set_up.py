"""Whether a run that lies in a folder has the set-up that its item asks for.

A folder may be of an older item, or made by hand. What resumes a run refuses it; what only reads its results must too,
or numbers of another set-up stand beside the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput

DECIDING = ("data", "model", "task", "local", "algorithm")
"""The sections that decide what is trained, and how."""


def refuse_another(asked: Mapping[str, Any], found: Mapping[str, Any], folder: Path) -> None:
    """An error if the run that was found differs in anything that was asked for."""
    for section in DECIDING:
        for key, wanted, there in differences(asked.get(section, {}), found.get(section, {}), section):
            raise BadInput(
                f"{folder} holds a run of another set-up: {key} is {there!r:.100} there and {wanted!r:.100} here; "
                "move that folder away, or name another with --out"
            )


def differences(asked: Any, found: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """What was asked for and is not found; what is found besides are defaults."""
    if isinstance(found, Mapping) and isinstance(asked, str):  # "greedy" is short for {name = "greedy"}
        asked = {"name": asked}
    if not isinstance(asked, Mapping) or not isinstance(found, Mapping):
        if asked != found:
            yield key, asked, found
        return
    for name, wanted in asked.items():
        yield from differences(wanted, found.get(name), f"{key}.{name}")
