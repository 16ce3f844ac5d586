"""Whose results a folder holds: a study writes beside what it wrote before, not over what another one found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput

COMPARISON, SWEEP, GROUPINGS, REPRODUCED, RACE = (
    "results.json",
    "tune.json",
    "results.json",
    "results.json",
    "race.json",
)
"""The file that says what was found; it is written first, so that the others never stand alone."""
WRITTEN = ("results.json", "tune.json", "race.json", "results.md", "report.html", "table.md", "page.html")


def claim(out: Path, record: str, same: Callable[[Any], bool], *, force: bool) -> None:
    """Refuse a folder that holds the results of something else.

    Args:
        out: The folder.
        record: The file in it that says what was found.
        same: Whether what this file says would all be there again, so that nothing is lost.
        force: Replace results whatever they are of: plain files only.
    """
    there = [out / name for name in WRITTEN if (out / name).is_symlink() or (out / name).exists()]
    for path in there:
        if path.is_symlink() or not path.is_file():
            raise BadInput(f"{path} is not a plain file, and nothing else is replaced: choose another --out")
    if not there or force:
        return
    others = {COMPARISON, SWEEP, RACE} - {record}
    if any(path.name in others for path in there) or not _holds(out / record, same):
        raise BadInput(
            f"{out.resolve()} holds results of something else ({', '.join(path.name for path in there)}); nothing was "
            "overwritten: choose another --out, or add --force to replace these files"
        )


def _holds(path: Path, same: Callable[[Any], bool]) -> bool:
    try:
        return same(json.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False  # missing, damaged, or another program's
