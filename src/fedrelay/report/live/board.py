"""All runs below a folder for the page: what is new since it asked, the chains of a round, stop and resume.

Runs are known by numbers that we give them, never by a path that somebody sends: nothing outside the folder is reached.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.report import federations, measures
from fedrelay.report.figures import COLOURS
from fedrelay.report.live import facts
from fedrelay.report.live.resuming import Resumed, resume
from fedrelay.runs import holder
from fedrelay.runs.folder import Run
from fedrelay.runs.following import Following, Glance, runs_below
from fedrelay.runs.log import RoundLog

AGAIN = 2.0
"""Seconds between two searches for new runs."""
PATIENCE = 0.5
"""Seconds for runs that have not been read yet; the others come with the next answer."""
Cursor = tuple[int, int]
"""What the page has of a run: of which part of it, and how many points."""


class Seen:
    """One run, and what was made of it for the page."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.following = number, Following(folder)
        self.glance: Glance | None = None
        self.resumed: Resumed | None = None
        self._facts: dict[str, Any] = {}
        self._points: list[tuple[float | None, ...]] = []
        self._bytes = self._seconds = 0.0

    def look(self) -> Glance:
        glance, before = self.following.look(), self.glance
        again = before is None or glance.part != before.part
        if again:
            self._points, self._bytes, self._seconds = [], 0.0, 0.0
        by = measures.headline_of(glance.run).name
        if self._facts and by != self._facts["metric"]["name"]:
            self._points, self._bytes, self._seconds = [], 0.0, 0.0
        for log in glance.run.rounds[len(self._points) :]:
            self._points.append(self._point(log, by))
        if before is None or _signs(before) != _signs(glance):
            self._facts = facts.facts(glance)
        self.glance = glance
        return glance

    def _point(self, log: RoundLog, by: str) -> tuple[float | None, ...]:
        self._bytes += facts.sent(log)
        self._seconds += log.seconds
        values = (log.metrics.get(by), log.train_loss, log.loss, self._bytes, self._seconds)
        return (log.round, *(None if value is None else float(f"{value:.6g}") for value in values))

    def told(self, cursor: Cursor, shared: Path) -> dict[str, Any]:
        """What the page does not have yet."""
        glance = self.glance
        assert glance is not None
        part, count = cursor
        first = count if part == glance.part and count <= len(self._points) else 0
        return self._facts | {
            "id": self.number,
            "folder": self.following.folder.relative_to(shared).as_posix(),
            "part": glance.part,
            "first": first,
            "points": self._points[first:],
            "resumed": None if self.resumed is None else self.resumed.told(),
        }


def _signs(glance: Glance) -> tuple[object, ...]:
    """What changes when there is something new to say."""
    return (
        *(glance.part, len(glance.run.rounds), glance.damaged, glance.status, glance.total),
        *(glance.why, glance.pid, glance.underway, glance.run.summary is None),
    )


def numbered(runs: Sequence[Run]) -> dict[int, int]:
    """The number of every run's federation, by the run's place: curves of different data are not drawn together."""
    return {place: number for number, one in enumerate(federations.apart(runs)) for place in one.places}


class Board:
    """What the page asks for; threads take turns."""

    POINT = ("round", "value", "train_loss", "loss", "bytes", "seconds")

    def __init__(self, folder: Path, data_dir: Path | None = None) -> None:
        if not folder.is_dir():
            raise BadInput(f"{folder} is not a folder: name one that `fedrelay run FILE.toml --out DIR` writes into")
        self.folder, self._data_dir = folder.resolve(), data_dir
        self._seen: dict[Path, Seen] = {}
        self._searched = -AGAIN
        self._count = 0
        self._turn = threading.Lock()

    def runs(self, have: Mapping[int, Cursor]) -> dict[str, Any]:
        """Every run, with the points that the page does not have."""
        with self._turn:
            self._search()
            looked = self._look()
            found = [glance.run for _, glance in looked]
            names, of = measures.labels(found), numbered(found)
            told = [seen.told(have.get(seen.number, (-1, 0)), self.folder) for seen, _ in looked]
            pending = len(self._seen) - len(looked)
        runs = [
            one | {"name": name, "federation": of[place]}
            for place, (one, name) in enumerate(zip(told, names, strict=True))
        ]
        return {"folder": str(self.folder), "colours": COLOURS, "point": self.POINT, "runs": runs, "pending": pending}

    def _look(self) -> list[tuple[Seen, Glance]]:
        """At all runs; those that are read for the first time only as long as the page should wait."""
        until = time.monotonic() + PATIENCE
        found: list[tuple[Seen, Glance]] = []
        for seen in self._seen.values():
            if seen.glance is not None or not found or time.monotonic() < until:
                found.append((seen, seen.look()))
        return found

    def _search(self) -> None:
        if time.monotonic() - self._searched < AGAIN:
            return
        self._searched = time.monotonic()
        found = runs_below(self.folder)
        for path in found:
            if path not in self._seen:
                self._seen[path] = Seen(self._count, path)
                self._count += 1
        self._seen = {path: self._seen[path] for path in found}

    def round(self, number: int, round: int) -> dict[str, Any]:
        """Who trained after whom in a round, and who was lost."""
        with self._turn:
            glance = self._of(number).look()
        log = next((log for log in reversed(glance.run.rounds) if log.round == round), None)
        if log is None:
            raise BadInput(f"{glance.run.name} has no round {round}")
        return {
            "round": log.round,
            "chains": log.chains,
            "order": log.order,
            "lost": [(drop.chain, drop.hop, drop.reason) for drop in log.drops],
            "serverless": not any(log.messages[key] for key in ("server_to_client", "client_to_server")),
        }

    def stop(self, number: int) -> dict[str, Any]:
        """Ask the process that writes a run to stop, as Ctrl-C does."""
        with self._turn:
            holder.stop(self._of(number).following.folder)
        return {"said": "asked to stop; its last round is being saved"}

    def resume(self, number: int) -> dict[str, Any]:
        """Go on with a run that was stopped."""
        with self._turn:
            seen = self._of(number)
            if seen.resumed is not None and seen.resumed.process.poll() is None:
                raise BadInput("it is being resumed already")
            seen.resumed = resume(seen.look(), self._data_dir)
        return {"said": "going on"}

    def _of(self, number: int) -> Seen:
        for seen in self._seen.values():
            if seen.number == number:
                return seen
        raise BadInput(f"there is no run {number}: it may have been removed")
