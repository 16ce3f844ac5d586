"""Saving a run so that it goes on with the same bits: one file, written whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from fedrelay import files
from fedrelay.errors import BadInput
from fedrelay.runs.costs import size_of
from fedrelay.runs.log import Dropped, RoundLog, Undescribed
from fedrelay.types import Baton, Chain, Drop, Outcome, Report, State, Tree

RECORDS: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    *(Baton, Chain, Drop, Outcome, Report, State),
    *(RoundLog, Dropped, Undescribed),
]
PIECE = 1 << 24
"""About so many bytes of memories are written, and read, at a time."""

LENGTH = 8
NAME = re.compile(r"round-(\d+)-([0-9a-f]{64})\.pt")


def save(folder: Path, state: State, memories: Mapping[int, Tree]) -> Path:
    """Write the state and the clients' memories; the name carries the round and the fingerprint of the content.

    A file is the state, the memories in pieces, an index of them, and the length of the index: so never more than a
    piece is in main memory, however much all clients together keep.
    """
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()

    def name() -> str:
        return f"round-{state.round:06d}-{digest.hexdigest()}.pt"

    with files.writing(folder / "checkpoint", name) as file:
        for content in contents(state, memories):
            file.write(content)
            digest.update(content)
    for other in folder.iterdir():  # only the newest is needed, and it is safely there now
        if other.name != name() and (NAME.fullmatch(other.name) or other.name.endswith(".part")):
            other.unlink()
    return folder / name()


def contents(state: State, memories: Mapping[int, Tree]) -> Iterator[bytes]:
    """The parts of a file, one after another."""
    content = encoded(state)
    yield content
    index = [{"clients": list[int](), "start": 0, "length": len(content)}]
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


def check(tree: object, where: str = "state") -> None:
    """Only our own records, plain containers, numbers, texts and tensors can be read back."""
    if tree is None or isinstance(tree, torch.Tensor) or type(tree) in (bool, int, float, str, bytes):
        return
    if is_dataclass(tree) and type(tree) in RECORDS:
        for item in fields(tree):
            check(getattr(tree, item.name), f"{where}.{item.name}")
    elif type(tree) is dict:
        for key, value in tree.items():
            check(value, f"{where}[{key!r}]")
    elif type(tree) in (tuple, list):
        for number, value in enumerate(tree):  # type: ignore[arg-type]
            check(value, f"{where}[{number}]")
    else:
        raise TypeError(f"{where} is a {type(tree).__name__}: a checkpoint takes plain data and tensors only")


def newest_round(folder: Path) -> int:
    """The round of the newest checkpoint; 0 if there is none."""
    names = [NAME.fullmatch(path.name) for path in folder.glob("*.pt")] if folder.is_dir() else []
    return max((int(match[1]) for match in names if match), default=0)


def load(folder: Path) -> tuple[State, Mapping[int, Tree]] | None:
    """The newest checkpoint, or None if there is none; a damaged one is refused."""
    found = [match for path in folder.glob("*.pt") if (match := NAME.fullmatch(path.name))] if folder.is_dir() else []
    if not found:
        return None
    newest = max(found, key=lambda match: int(match[1]))
    path = folder / newest[0]
    with path.open("rb") as file:
        fingerprint = hashlib.file_digest(file, "sha256").hexdigest()
    if fingerprint != newest[2]:
        raise BadInput(
            f"checkpoint {path.resolve()} is damaged (its content does not match the fingerprint in its name); "
            "nothing was overwritten: put back an intact copy, or start again in another --out folder"
        )
    with path.open("rb") as file:
        file.seek(-LENGTH, os.SEEK_END)
        length = int.from_bytes(file.read(LENGTH), "little")
        file.seek(-LENGTH - length, os.SEEK_END)
        first, *rest = json.loads(file.read(length))
    state: State = read(path, first["start"], first["length"])
    places = {client: (entry["start"], entry["length"]) for entry in rest for client in entry["clients"]}
    return state, Saved(path, places)


def read(path: Path, start: int, length: int) -> Any:
    """One piece of a file; nothing in it can run."""
    with path.open("rb") as file, torch.serialization.safe_globals(RECORDS):
        file.seek(start)
        return torch.load(io.BytesIO(file.read(length)), weights_only=True)


class Saved(Mapping[int, Tree]):
    """The memories in a checkpoint, read piece by piece as they are asked for (in order, each piece once)."""

    def __init__(self, path: Path, places: Mapping[int, tuple[int, int]]) -> None:
        self._path, self._places = path, places
        self._open: tuple[tuple[int, int] | None, Mapping[int, Tree]] = (None, {})

    def __getitem__(self, client: int) -> Tree:
        place = self._places[client]
        if self._open[0] != place:
            self._open = (place, read(self._path, *place))
        return self._open[1][client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
