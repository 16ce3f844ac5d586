"""Runs of a file one after another, each measured once: whoever is stopped goes on with those that are left."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fedrelay import __version__, config
from fedrelay.errors import BadInput
from fedrelay.studies import compare
from fedrelay.studies.compare import Job
from fedrelay.system import files

T = TypeVar("T")


def jobs_of(tables: Mapping[str, Any], sets: Sequence[str] = ()) -> dict[str, config.Tables]:
    """The tables of every run by name: those of a comparison (with every seed), or the one run that a file is."""
    if "runs" not in tables:
        one = config.override(tables, sets)
        return {str(config.section_of(one, "algorithm").get("name")): one}
    jobs = compare.plan(tables, Path(), sets)[0]
    return {named(job, jobs): job.tables for job in jobs}


def named(job: Job, jobs: Sequence[Job]) -> str:
    several = len({one.seed for one in jobs if one.name == job.name}) > 1
    return f"{job.name}, seed {job.seed}" if several else job.name


class Kept:
    """What was found of runs, in a JSON file that is written after each of them: records by name, each with a
    fingerprint of what it is of."""

    def __init__(self, path: Path, what: str, *, force: bool) -> None:
        self.path, self.what = path, what
        self._found: dict[str, Any] = {}
        if not path.is_symlink() and not path.exists():
            return
        if path.is_symlink() or not path.is_file():
            raise BadInput(f"{path} is not a plain file, and nothing else is replaced: name another --out")
        try:
            found = json.loads(path.read_bytes())
            self._found = dict(found[what])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            if not force:
                raise BadInput(
                    f"{path} is there already and is not what `fedrelay {what}` has found before; nothing was "
                    "overwritten: name another --out, or add --force"
                ) from None

    def get(self, name: str, tables: object, read: Callable[[Mapping[str, Any]], T]) -> T | None:
        """What was found of this run before, if it is of the same tables and version."""
        try:
            one = self._found[name]
            return read(one["found"]) if one["of"] == fingerprint(tables) else None
        except (LookupError, TypeError, AttributeError):
            return None

    def put(self, name: str, tables: object, record: Mapping[str, Any]) -> None:
        self._found[name] = {"of": fingerprint(tables), "found": record}
        self.write()

    def only(self, names: Sequence[str]) -> None:
        """Keep those of these runs, in this order."""
        self._found = {name: self._found[name] for name in names}
        self.write()

    def write(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            files.write(self.path, (json.dumps({self.what: self._found}, indent=2) + "\n").encode())
        except OSError as error:
            raise BadInput(f"{self.path} cannot be written ({error.strerror}): name another --out") from None


def fingerprint(tables: object) -> str:
    words = json.dumps([__version__, tables], sort_keys=True, default=str)
    return hashlib.sha256(words.encode()).hexdigest()
