"""Saving a run so that it goes on with the same bits: one file, written whole or not at all.

Promised: loading one runs no code and takes no more memory than the file has bytes. A file that is damaged, or that no
run has written, is refused in our words and left alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedrelay.errors import BadInput
from fedrelay.runs.contents import RECORDS, check, state_of, tree
from fedrelay.runs.costs import size_of
from fedrelay.runs.json_files import Damaged
from fedrelay.runs.rounds import Noted
from fedrelay.system import files
from fedrelay.types import State, Tree

FOLDER = "checkpoint"

PIECE = 1 << 24
"""About so many bytes of memories are written, and read, at a time."""

LENGTH = 8
NAME = re.compile(r"round-(\d+)-([0-9a-f]{64})\.pt")


def save(folder: Path, state: State, memories: Mapping[int, Tree], rounds: Noted | None = None) -> Path:
    """Write the state, the clients' memories and what is to be known of rounds.jsonl, into a folder that is there.

    The name carries the round and the fingerprint of the content. A file is the state, the memories in pieces, an index
    of them, and the length of the index: so never more than a piece is in main memory, however much clients keep.
    """
    digest = hashlib.sha256()

    def name() -> str:
        return f"round-{state.round:06d}-{digest.hexdigest()}.pt"

    with files.writing(folder / FOLDER, name, mode=files.PRIVATE) as file:
        for content in contents(state, memories, rounds):
            file.write(content)
            digest.update(content)
    keep_only(folder / name())
    return folder / name()


def keep_only(path: Path) -> None:
    """Only the newest is needed, and it is safely there; parts are of somebody who was killed."""
    for other in path.parent.iterdir():
        if other.name != path.name and (NAME.fullmatch(other.name) or other.name.endswith(".part")):
            other.unlink()


def contents(state: State, memories: Mapping[int, Tree], rounds: Noted | None) -> Iterator[bytes]:
    """The parts of a file, one after another."""
    content = encoded(state)
    yield content
    index: list[dict[str, Any]] = [{"clients": [], "start": 0, "length": len(content)}]
    if rounds is not None:
        index[0]["rounds"] = {"lines": rounds.lines, "sha256": rounds.sha256}
    end = len(content)
    for piece in pieces(memories):
        content = encoded(piece)
        yield content
        index.append({"clients": list(piece), "start": end, "length": len(content)})
        end += len(content)
    words = json.dumps(index).encode()
    yield words + len(words).to_bytes(LENGTH, "little")


def pieces(memories: Mapping[int, Tree]) -> Iterator[dict[int, Tree]]:
    """The memories in groups of about PIECE bytes."""
    piece: dict[int, Tree] = {}
    size = 0
    for client, memory in memories.items():
        piece[client] = memory
        size += size_of(memory)
        if size > PIECE:
            yield piece
            piece, size = {}, 0
    if piece:
        yield piece


def encoded(tree: object) -> bytes:
    """As bytes; what could not be read back is refused now, not on resume."""
    check(tree)
    buffer = io.BytesIO()
    torch.save(tree, buffer)
    return buffer.getvalue()


# --- reading


def files_in(folder: Path) -> list[Path]:
    """All checkpoints, the newest last."""
    found = [path for path in folder.glob("*.pt") if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=round_of)


def round_of(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def newest_round(folder: Path) -> int:
    """The round of the newest checkpoint; 0 if there is none."""
    return max(map(round_of, files_in(folder)), default=0)


def load(folder: Path) -> tuple[State, Mapping[int, Tree]] | None:
    """The newest checkpoint, or None if there is none; a damaged one, or one that no run has written, is refused."""
    found = files_in(folder)
    if not found:
        return None
    path = found[-1]
    with path.open("rb") as file:
        fingerprint = hashlib.file_digest(file, "sha256").hexdigest()
    if not path.name.endswith(f"-{fingerprint}.pt"):
        raise refused(path, "its content does not match the fingerprint in its name")
    try:
        first, *rest = index_of(path)
        state = state_of(read(path, first.place))
        if state.round != round_of(path):
            raise Damaged(f"it is of round {state.round}, which its name does not say")
    except Damaged as damage:
        raise refused(path, str(damage)) from None
    return state, Saved(path, {client: entry.place for entry in rest for client in entry.clients})


def noted(folder: Path) -> Noted | None:
    """What the newest checkpoint says of rounds.jsonl; None if there is none, or it is of an older version."""
    for path in reversed(files_in(folder)):
        try:
            return index_of(path)[0].rounds
        except FileNotFoundError:
            continue  # a newer one has taken its place just now
        except Damaged as damage:
            raise refused(path, str(damage)) from None
    return None


def refused(path: Path, why: str) -> BadInput:
    return BadInput(
        f"checkpoint {path.resolve()} is damaged ({why}); nothing was overwritten: put back an intact copy, or start "
        "again in another --out folder"
    )


class Entry(NamedTuple):
    """A piece of a file: where it is, and whose memories it holds; with the state, what it notes of rounds.jsonl."""

    place: tuple[int, int]
    clients: tuple[int, ...]
    rounds: Noted | None


def index_of(path: Path) -> list[Entry]:
    """The pieces of a file, the state first."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - LENGTH, 0))
        length = int.from_bytes(file.read(LENGTH), "little")
        end = size - LENGTH - length
        if end < 0:
            raise Damaged("it is too short")
        file.seek(end)
        raw = file.read(length)
    try:
        entries = [entry_of(each, end) for each in json.loads(raw)]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Damaged("its index cannot be read") from None
    if not entries or len({client for entry in entries for client in entry.clients}) != sum(
        len(entry.clients) for entry in entries
    ):
        raise Damaged("its index does not hold every client once")
    return entries


def entry_of(found: Mapping[str, Any], end: int) -> Entry:
    """One line of the index; ValueError if no run has written it."""
    numbers = [found["start"], found["length"], *found["clients"]]
    if not all(type(number) is int and number >= 0 for number in numbers) or numbers[0] + numbers[1] > end:
        raise ValueError
    rounds = found.get("rounds")
    if rounds is None:
        return Entry((numbers[0], numbers[1]), tuple(numbers[2:]), None)
    lines, sha256 = rounds["lines"], tuple(rounds["sha256"])
    if type(lines) is not int or lines < 0 or not all(type(one) is str for one in sha256):
        raise ValueError
    return Entry((numbers[0], numbers[1]), tuple(numbers[2:]), Noted(lines, sha256))


def read(path: Path, place: tuple[int, int]) -> Any:
    """One piece of a file; nothing in it can run, and nothing in it becomes larger than it is there."""
    with path.open("rb") as file:
        file.seek(place[0])
        content = io.BytesIO(file.read(place[1]))
    try:
        with zipfile.ZipFile(content) as archive:
            if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
                raise Damaged("it is compressed, which no checkpoint is")
        content.seek(0)
        with torch.serialization.safe_globals(RECORDS):
            return torch.load(content, weights_only=True)
    except Damaged:
        raise
    except Exception as error:  # what is none makes the reader fail in many ways
        raise Damaged(f"what it holds cannot be read, or is not allowed there: {type(error).__name__}") from None


class Saved(Mapping[int, Tree]):
    """The memories in a checkpoint, read piece by piece as they are asked for (in order, each piece once)."""

    def __init__(self, path: Path, places: Mapping[int, tuple[int, int]]) -> None:
        self._path, self._places = path, places
        self._open: tuple[tuple[int, int] | None, Mapping[int, Tree]] = (None, {})

    def __getitem__(self, client: int) -> Tree:
        place = self._places[client]
        if self._open[0] != place:
            self._open = (place, self._piece(place))
        return self._open[1][client]

    def _piece(self, place: tuple[int, int]) -> dict[int, Tree]:
        """Must hold the clients that the index says, and what each keeps."""
        clients = [client for client, where in self._places.items() if where == place]
        try:
            found = read(self._path, place)
            if type(found) is not dict or list(found) != clients:
                raise Damaged("it does not hold the memories of the clients that its index names")
            return {client: tree(found[client], f"the memory of client {client}") for client in clients}
        except Damaged as damage:
            raise refused(self._path, str(damage)) from None

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
