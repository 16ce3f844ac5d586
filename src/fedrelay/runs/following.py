"""A run that another process writes, as one looks at it again and again: only what is new is read.

Nothing is refused here: a damaged line is skipped and counted, and what is not there yet is simply missing. Who wants
a run that is whole reads it with `folder.load`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.runs import checkpoint, holder, underway
from fedrelay.runs.folder import CONFIG, ROUNDS, SUMMARY, Run, read_config, read_summary
from fedrelay.runs.log import RoundLog, Summary
from fedrelay.runs.salvage import readable

STARTING, RUNNING, FINISHED, STOPPED, FAILED, KILLED = "starting", "running", "finished", "stopped", "failed", "killed"
GOING = (STARTING, RUNNING)
LATELY = 20
"""Rounds whose mean time says how long the others will take."""
DEEPEST = 8
"""Folders below one another in which runs are looked for."""


@dataclass(frozen=True)
class Glance:
    """What is known of a run at one moment."""

    run: Run
    status: str
    total: int | None
    """Rounds that were asked for; None where no configuration says so."""
    damaged: int
    """Lines that were skipped."""
    part: int
    """Grows when the lines begin anew: a run that was stopped has gone on from its checkpoint."""
    why: str = ""
    """Why it failed."""
    pid: int | None = None
    underway: tuple[underway.Told, ...] = ()
    """How far the chains of the present round are, where it takes long enough for them to say so."""

    @property
    def done(self) -> int:
        return self.run.rounds[-1].round if self.run.rounds else 0

    @property
    def seconds_left(self) -> float | None:
        """By the mean of the last rounds; None if nothing is left, or nobody can tell."""
        last = self.run.rounds[-LATELY:]
        if self.total is None or not last or self.status not in GOING or self.done >= self.total:
            return None
        return (self.total - self.done) * sum(log.seconds for log in last) / len(last)


class Following:
    """The run in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.resolve().name
        self._rounds: list[RoundLog] = []
        self._numbers: set[int] = set()
        self._read = self._reached = self._damaged = self._part = 0
        self._file: tuple[int, int] | None = None
        self._config: tuple[int, dict[str, Any]] = (0, {})
        self._summary: tuple[int, Summary | None] = (0, None)

    def look(self) -> Glance:
        """All that there is by now."""
        going = holder.held(self.folder)  # before the rest: who has ended meanwhile has written all of it
        self._look_at_files()
        self._take_lines()
        summary = self._summary[1]
        if summary is not None and summary.rounds != self._reached:
            summary = None  # of an earlier part
        config = self._config[1]
        run = Run(self.name, self.folder, config, list(self._rounds), summary)
        wanted = config.get("rounds")
        total = wanted if type(wanted) is int and wanted > 0 else None
        status, why = self._status(going, summary)
        found = holder.holder_of(self.folder) if going else None
        told = tuple(underway.told(self.folder / checkpoint.FOLDER / underway.FOLDER)) if going else ()
        pid = None if found is None else found.pid
        return Glance(run, status, total, self._damaged, self._part, why, pid, told)

    def _status(self, going: bool, summary: Summary | None) -> tuple[str, str]:
        if going:
            return RUNNING if self._config[1] else STARTING, ""
        if summary is not None:
            return FINISHED, ""
        left = holder.left(self.folder)
        if left is None:
            return STOPPED, ""
        return (FAILED, left) if left else (KILLED, "")

    def _look_at_files(self) -> None:
        """The configuration and the summary, if they have changed; what is damaged is not there."""
        for name, read in ((CONFIG, read_config), (SUMMARY, read_summary)):
            path = self.folder / name
            try:
                changed = path.stat().st_mtime_ns
                if path.is_symlink() or changed == (self._config if name == CONFIG else self._summary)[0]:
                    continue
                found: Any = read(path)
            except (OSError, BadInput):
                changed, found = 0, {} if name == CONFIG else None
            if name == CONFIG:
                self._config = changed, found
            else:
                self._summary = changed, found

    def _take_lines(self) -> None:
        """The lines that have been written since the last look."""
        path = self.folder / ROUNDS
        with suppress(OSError):
            if path.is_symlink() or not path.is_file():
                return
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if (found.st_dev, found.st_ino) != self._file or found.st_size < self._read:
                    self._begin_anew((found.st_dev, found.st_ino))
                file.seek(self._read)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.split(b"\n")[:-1]:
                self._take(readable(line))

    def _take(self, log: RoundLog | None) -> None:
        """The round of a line, whichever it is: lines before it may be lost. One that is there already is damage."""
        if log is None or log.round in self._numbers:
            self._damaged += 1
            self._reached += log is None  # it was the line of a round, most likely
            return
        self._rounds.append(log)
        self._numbers.add(log.round)
        self._reached = log.round

    def _begin_anew(self, file: tuple[int, int]) -> None:
        self._part += self._file is not None
        self._file, self._rounds, self._numbers = file, [], set()
        self._read = self._reached = self._damaged = 0


def is_run(folder: Path) -> bool:
    """Whether a run was begun in this folder."""
    if (folder / CONFIG).is_file():
        return (folder / ROUNDS).is_file() or (folder / checkpoint.FOLDER).is_dir()
    return holder.lock_of(folder).is_file()


def runs_below(folder: Path) -> list[Path]:
    """Every run in this folder or below it, in order; links to folders are not followed."""
    return sorted(_found(folder, DEEPEST))


def _found(folder: Path, depth: int) -> Iterator[Path]:
    if is_run(folder):
        yield folder
        return
    with suppress(OSError):  # gone, or not ours to look at
        with os.scandir(folder) as entries:
            below = [
                entry.path
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            ]
        for path in below if depth else ():
            yield from _found(Path(path), depth - 1)
