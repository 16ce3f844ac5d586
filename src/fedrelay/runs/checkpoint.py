"""Saving a run so that it goes on with the same bits: one file, written whole or not at all.

What is large and has not changed since the last checkpoint may lie beside it, in parts that several checkpoints share
(`runs.unchanged` writes them). Promised: loading one runs no code and takes no more memory than its files have bytes. A
file that is damaged, or that no run has written, is refused in our words and left alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedrelay.errors import BadInput
from fedrelay.runs.contents import RECORDS, check, state_of, tensor, tree, with_tensors
from fedrelay.runs.costs import size_of
from fedrelay.runs.json_files import Damaged
from fedrelay.runs.rounds import Noted
from fedrelay.system import files
from fedrelay.system.devices import CPU, placed
from fedrelay.types import State, Tree

FOLDER = "checkpoint"

PIECE = 1 << 24
"""About so many bytes of memories are written, and read, at a time."""

LENGTH = 8
NAME = re.compile(r"round-(\d+)-([0-9a-f]{64})\.pt")
PART = re.compile(r"part-([0-9a-f]{64})\.pt")


class Beside(NamedTuple):
    """The names of files in which a checkpoint has what has not changed: memories, those of later files in place of
    earlier ones, and tensors of the state, by number."""

    memories: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()


def save(
    folder: Path,
    state: State,
    memories: Mapping[int, Tree],
    rounds: Noted | None = None,
    beside: Beside = Beside(),
) -> Path:
    """Write the state, the clients' memories and what is to be known of rounds.jsonl, into a folder that is there.

    The name carries the round and the fingerprint of the content. A file is the state, the memories in pieces, an index
    of them, and the length of the index: so never more than a piece is in main memory, however much clients keep. What
    is `beside` it must be there already.
    """
    about: dict[str, Any] = {name: list(names) for name, names in beside._asdict().items() if names}
    if rounds is not None:
        about["rounds"] = {"lines": rounds.lines, "sha256": rounds.sha256}
    path = write(folder, f"round-{state.round:06d}", chain([(state, (), about)], in_pieces(memories)))
    keep_only(path, beside)
    return path


def save_part(folder: Path, things: Mapping[int, Any]) -> str:
    """Write memories by client, or tensors by number, into a file of their own, and give its name."""
    return write(folder, "part", in_pieces(things)).name


def keep_only(path: Path, beside: Beside | None = None) -> None:
    """Only the newest is needed, with what it has beside it, and it is safely there; other parts are of earlier ones,
    or of somebody who was killed."""
    beside = index_of(path)[0].beside if beside is None else beside
    wanted = {path.name, *beside.memories, *beside.tensors}
    for other in path.parent.iterdir():
        ours = NAME.fullmatch(other.name) or PART.fullmatch(other.name) or other.name.endswith(".part")
        if ours and other.name not in wanted:
            other.unlink()


def write(folder: Path, kind: str, parts: Iterable[tuple[Any, Sequence[int], Mapping[str, Any]]]) -> Path:
    """A file of these parts, each with whose it is and what else the index says of it."""
    digest = hashlib.sha256()

    def name() -> str:
        return f"{kind}-{digest.hexdigest()}.pt"

    index: list[dict[str, Any]] = []
    with files.writing(folder / FOLDER, name, mode=files.PRIVATE) as file:

        def add(content: bytes) -> None:
            file.write(content)
            digest.update(content)

        end = 0
        for tree, whose, about in parts:
            content = encoded(tree)
            add(content)
            index.append({"clients": list(whose), "start": end, "length": len(content), **about})
            end += len(content)
        words = json.dumps(index).encode()
        add(words + len(words).to_bytes(LENGTH, "little"))
    return folder / name()


def in_pieces(things: Mapping[int, Any]) -> Iterator[tuple[Any, Sequence[int], Mapping[str, Any]]]:
    """Things by number, piece by piece, with the numbers."""
    return ((piece, list(piece), {}) for piece in pieces(things))


def pieces(memories: Mapping[int, Any]) -> Iterator[dict[int, Any]]:
    """The memories in groups of about PIECE bytes."""
    piece: dict[int, Any] = {}
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
    torch.save(placed(tree, CPU), buffer)
    return buffer.getvalue()


# --- reading


def parts_in(folder: Path) -> list[Path]:
    """All files that lie beside checkpoints."""
    return [path for path in folder.glob("part-*.pt") if PART.fullmatch(path.name)] if folder.is_dir() else []


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
    check_fingerprint(path)
    try:
        first, *rest = index_of(path)
        tensors = tensors_of(folder, first.beside)
        state = state_of(with_tensors(read(path, first.place), tensors) if tensors else read(path, first.place))
        if state.round != round_of(path):
            raise Damaged(f"it is of round {state.round}, which its name does not say")
    except Damaged as damage:
        raise refused(path, str(damage)) from None
    return state, Saved([*parts_of(folder, first.beside.memories), *((path, entry) for entry in rest)])


def check_fingerprint(path: Path) -> None:
    with path.open("rb") as file:
        fingerprint = hashlib.file_digest(file, "sha256").hexdigest()
    if not path.name.endswith(f"-{fingerprint}.pt"):
        raise refused(path, "its content does not match the fingerprint in its name")


def parts_of(folder: Path, names: Sequence[str]) -> Iterator[tuple[Path, Entry]]:
    """The pieces of files beside a checkpoint, in order."""
    for name in names:
        path = folder / name
        if not path.is_file():
            raise refused(path, "it is missing, and the checkpoint needs it")
        check_fingerprint(path)
        try:
            yield from ((path, entry) for entry in index_of(path))
        except Damaged as damage:
            raise refused(path, str(damage)) from None


def tensors_of(folder: Path, beside: Beside) -> dict[int, torch.Tensor]:
    """The tensors that lie beside a checkpoint, by number."""
    found: dict[int, torch.Tensor] = {}
    for path, entry in parts_of(folder, beside.tensors):
        try:
            piece = read(path, entry.place)
            if type(piece) is not dict or tuple(piece) != entry.clients:
                raise Damaged("it does not hold the tensors that its index names")
            found |= {number: tensor(one, f"tensor {number}") for number, one in piece.items()}
        except Damaged as damage:
            raise refused(path, str(damage)) from None
    return found


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
    """A piece of a file: where it is, and whose memories it holds; with the state, what it notes of rounds.jsonl, and
    what lies beside it."""

    place: tuple[int, int]
    clients: tuple[int, ...]
    rounds: Noted | None = None
    beside: Beside = Beside()


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
    beside = Beside(*(tuple(found.get(name, ())) for name in Beside._fields))
    if not all(type(name) is str and PART.fullmatch(name) for name in beside.memories + beside.tensors):
        raise ValueError  # no file but our own is ever opened
    entry = Entry((numbers[0], numbers[1]), tuple(numbers[2:]), beside=beside)
    rounds = found.get("rounds")
    if rounds is None:
        return entry
    lines, sha256 = rounds["lines"], tuple(rounds["sha256"])
    if type(lines) is not int or lines < 0 or not all(type(one) is str for one in sha256):
        raise ValueError
    return entry._replace(rounds=Noted(lines, sha256))


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

    def __init__(self, pieces: Sequence[tuple[Path, Entry]]) -> None:
        last = {client: number for number, (_, entry) in enumerate(pieces) for client in entry.clients}
        self._pieces = pieces
        self._where = dict(sorted(last.items(), key=lambda one: one[1]))  # of equals the order stays
        self._open: tuple[int, Mapping[int, Tree]] = (-1, {})

    def __getitem__(self, client: int) -> Tree:
        number = self._where[client]
        if self._open[0] != number:
            self._open = (number, self._piece(*self._pieces[number]))
        return self._open[1][client]

    def _piece(self, path: Path, entry: Entry) -> dict[int, Tree]:
        """Must hold the clients that the index says, and what each keeps."""
        try:
            found = read(path, entry.place)
            if type(found) is not dict or tuple(found) != entry.clients:
                raise Damaged("it does not hold the memories of the clients that its index names")
            return {client: tree(found[client], f"the memory of client {client}") for client in entry.clients}
        except Damaged as damage:
            raise refused(path, str(damage)) from None

    def __iter__(self) -> Iterator[int]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)
