"""What of a long round is done already, in files beside the checkpoint: a run that is killed in it goes on from there.

Nothing is written of rounds that are shorter than `seconds`, and nothing is left when the round is in a checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from fedrelay.errors import say_once
from fedrelay.runs import checkpoint, contents
from fedrelay.runs.json_files import Damaged
from fedrelay.system import files
from fedrelay.system.devices import CPU, placed
from fedrelay.types import Tree, Underway

FOLDER = "underway"
SECONDS = 60.0
"""So much work may be lost, besides what has not got to its next model or client when somebody is stopped."""

SHARE = 20
"""Writing takes no more than one part in so many of the time."""

GLANCE = 1.0
"""Seconds between two signs of how far a chain is."""

CLIENTS = "clients"
"""Beside the figures of a chain: who trains after whom in it."""


class UnderwayFiles(Underway):
    """One file for each name, replaced whole, by each process at most every SECONDS. It can be sent to processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.begin()

    def begin(self) -> None:
        """A round begins. What an earlier process has left is looked for once: then only those of this run write."""
        self._left = {path.name for path in self._folder.glob("*.pt")} if self._folder.is_dir() else set[str]()
        self._first = time.monotonic() + SECONDS
        self._next: dict[str, float] = {}
        self._free = 0.0
        self._glance = time.monotonic() + GLANCE

    def __getstate__(self) -> Path:
        return self._folder

    def __setstate__(self, folder: Path) -> None:
        self._folder = folder
        self.begin()

    def find(self, name: str, whose: Callable[[], str], /) -> Tree | None:
        path = self._folder / f"{name}.pt"
        if path.name not in self._left or not path.is_file():
            return None
        try:
            found = contents.tree(checkpoint.read(path, (0, path.stat().st_size)), path.name)
            kept: Tree = contents.tree(found["what"], path.name)
            return kept if found["whose"] == whose() else None
        except (OSError, KeyError, Damaged) as error:  # it only saves time
            say_once(f"{path.resolve()} cannot be read ({error}): what it was of is computed again")
            return None

    def keep(self, name: str, whose: Callable[[], str], tree: Callable[[], Tree], /, *, now: bool = False) -> None:
        began = time.monotonic()
        if not now and began < max(self._next.get(name, self._first), self._free):
            return
        try:
            kept = {"whose": whose(), "what": placed(tree(), CPU)}
            contents.check(kept)
            with self._writing(f"{name}.pt") as file:
                torch.save(kept, file)  # a pool may be as large as memory allows: there is no copy of it
        except (OSError, TypeError, RuntimeError) as error:  # the last is torch's; the run can do without what is kept
            say_once(f"how far the round is cannot be kept in {self._folder.resolve()}: {error}")
        else:
            self._left.add(f"{name}.pt")  # another may go on from it: a worker in place of one that was lost
        ended = time.monotonic()
        self._next[name], self._free = ended + SECONDS, ended + SHARE * (ended - began)

    def _writing(self, name: str) -> AbstractContextManager[IO[bytes]]:
        self._folder.mkdir(mode=files.PRIVATE_FOLDER, exist_ok=True)
        return files.writing(self._folder / name, mode=files.PRIVATE)

    def tell(self, name: str, figures: Mapping[str, tuple[int, int]], /, clients: Sequence[int] = ()) -> None:
        if time.monotonic() < self._glance:
            return
        self._glance = time.monotonic() + GLANCE
        with suppress(OSError), self._writing(f"{name}.json") as file:
            file.write(json.dumps({**figures, CLIENTS: list(clients)}).encode())

    def names(self) -> Collection[str]:
        return {Path(name).stem for name in self._left}

    def clear(self) -> None:
        """The round has ended: another begins."""
        with suppress(OSError):  # there is none, or somebody has put something there
            for path in self._folder.iterdir():
                if path.suffix in (".pt", ".json"):
                    path.unlink()
            self._folder.rmdir()
        self.begin()


@dataclass(frozen=True)
class Told:
    """How far something of a round has last said to be; of a chain, with its clients in order."""

    figures: Mapping[str, tuple[int, int]]
    clients: tuple[int, ...] = ()


def told(folder: Path) -> Iterator[Told]:
    """All that is under way."""
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        with suppress(OSError, ValueError, TypeError, AttributeError):  # it is gone, or no file of ours
            found = json.loads(path.read_bytes())
            clients = tuple(int(client) for client in found.pop(CLIENTS, ()))
            yield Told({str(key): (int(done), int(of)) for key, (done, of) in found.items()}, clients)


def in_words(folder: Path) -> str:
    """How far the chains of the round are, for people; empty if nobody has said anything."""
    found = [each.figures for each in told(folder)]
    if not found:
        return ""
    keys = list(dict.fromkeys(key for figures in found for key in figures))
    if len(found) > 1:  # the parts of a visit say nothing where many visits are under way
        keys = keys[:1]
    sums = {
        key: [sum(part) for part in zip(*(each[key] for each in found if key in each), strict=True)] for key in keys
    }
    return ", ".join(f"{key} {done}/{of}" for key, (done, of) in sums.items())
