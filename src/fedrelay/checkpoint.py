"""Saving a run so that it goes on with the same bits: one file, written whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from fedrelay.errors import BadInput
from fedrelay.types import Baton, Chain, Drop, Outcome, Report, State, Tree

RECORDS: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [Baton, Chain, Drop, Outcome, Report, State]
NAME = re.compile(r"round-(\d+)-([0-9a-f]{64})\.pt")


def write_atomically(path: Path, content: bytes) -> None:
    """The file is either the old one or the new one, whenever the process or the machine stops."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def save(folder: Path, state: State, memories: Mapping[int, Tree]) -> Path:
    """Write the state and the clients' memories; the name carries the round and the fingerprint of the content."""
    buffer = io.BytesIO()
    torch.save({"state": state, "memories": dict(memories)}, buffer)
    content = buffer.getvalue()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"round-{state.round:06d}-{hashlib.sha256(content).hexdigest()}.pt"
    write_atomically(path, content)
    for other in folder.iterdir():  # only the newest is needed, and it is safely there now
        if other != path and (NAME.fullmatch(other.name) or other.name.endswith(".part")):
            other.unlink()
    return path


def load(folder: Path) -> tuple[State, Mapping[int, Tree]] | None:
    """The newest checkpoint, or None if there is none; a damaged one is refused."""
    found = [match for path in folder.glob("*.pt") if (match := NAME.fullmatch(path.name))] if folder.is_dir() else []
    if not found:
        return None
    newest = max(found, key=lambda match: int(match[1]))
    path = folder / newest[0]
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != newest[2]:
        raise BadInput(
            f"checkpoint {path.resolve()} is damaged (its content does not match the fingerprint in its name); "
            "nothing was overwritten: put back an intact copy, or start again in another --out folder"
        )
    with torch.serialization.safe_globals(RECORDS):
        saved = torch.load(io.BytesIO(content), weights_only=True)
    return saved["state"], saved["memories"]
