"""What must be the same in two folders of results, however often one of them was interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

TIMES = frozenset({"seconds", "examples_per_second", "described_seconds"})
"""What a clock has measured."""
DRAWN = frozenset({"report.html", "results.md"})
"""Pages with times in them: they must be there."""


def record(folder: Path) -> dict[str, Any]:
    """Every file by name, without what a clock has measured. Checkpoints count by how many there are."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or path.name == ".lock":
            continue
        if "/checkpoint/" in f"/{name}":
            key = f"{path.parent.relative_to(folder).as_posix()}/*{path.suffix}"
            found[key] = found.get(key, 0) + 1
        else:
            found[name] = content(path)
    return found


def content(path: Path) -> Any:
    if path.name in DRAWN:
        return "there"
    raw = path.read_bytes()
    try:
        if path.suffix == ".jsonl":
            return [timeless(json.loads(line)) for line in raw.decode().splitlines()]
        if path.suffix == ".json":
            return timeless(json.loads(raw))
    except ValueError:
        return f"not JSON: {raw[:80]!r}"
    return raw.decode() if path.suffix == ".toml" else hashlib.sha256(raw).hexdigest()


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(part) for key, part in value.items() if key not in TIMES}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def let_an_hour_pass(folder: Path) -> None:
    """Parts of files beside runs (a study's tables and pages) are taken for abandoned an hour later: make it so.

    Those in run folders are not touched here, since a run that goes on knows at once that nobody writes them.
    """
    for part in folder.glob(".fedrelay-*.part"):
        if not (folder / "checkpoint").exists():
            before = time.time() - 2 * 3600
            os.utime(part, (before, before))


def difference(expected: dict[str, Any], found: dict[str, Any]) -> str:
    """The first file that differs; nothing if none does."""
    for name in sorted({*expected, *found}):
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is left over"
        if expected[name] != found[name]:
            return f"{name} differs"
    return ""
