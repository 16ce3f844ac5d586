"""A split as a file: who has which examples, so that others can train on exactly the same clients."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrelay.data.federation import Federation, Source
from fedrelay.data.nests import leaves
from fedrelay.errors import BadInput
from fedrelay.system import files

FORMAT = 1
UNREADABLE: tuple[type[Exception], ...] = (
    *(OSError, EOFError, LookupError, ValueError, TypeError, AttributeError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What reading a damaged file can end in; zipfile raises RuntimeError for encrypted parts and unknown methods."""
PARTS = ("order", "starts", "test_order", "test_starts")


def save_split(federation: Federation, path: Path | str) -> Path:
    """Write the split (not the examples) to an .npz file; the file is there whole or not at all."""
    path = Path(path)
    rows = {name: getattr(federation, name) for name in PARTS}
    content: dict[str, Any] = {name: tensor.numpy() for name, tensor in rows.items() if tensor is not None}
    content |= {"format": FORMAT, "fingerprint": federation.fingerprint}
    content |= {"source": federation.source.name, "targets": targets_hash(federation.source)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.writing(path) as file:
        np.savez_compressed(file, **content)
    return path


def load_split(source: Source, path: Path | str) -> Federation:
    """The federation of a saved split over its source; a damaged file or another source is refused."""
    path = Path(path)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            found = {name: content[name] for name in content.files}
        if int(found["format"]) != FORMAT:
            raise BadInput(f"{path}: a split file of format {int(found['format'])}; this version reads format {FORMAT}")
        federation = Federation(
            source, **{name: torch.from_numpy(found[name].astype(np.int64)) for name in PARTS if name in found}
        )
        fingerprint, name, targets = (str(found[key]) for key in ("fingerprint", "source", "targets"))
    except FileNotFoundError:
        raise BadInput(f"there is no split file {path.resolve()}") from None
    except BadInput:
        raise
    except UNREADABLE as error:
        raise BadInput(f"{path}: expected a split file (.npz) that was saved whole, found {error}") from error
    if federation.fingerprint != fingerprint:
        raise BadInput(f"{path} is damaged: its content has hash {federation.fingerprint[:12]}, not {fingerprint[:12]}")
    if targets != targets_hash(source):
        raise BadInput(f"{path} is a split of {name} with other examples than this {source.name}")
    return federation


def targets_hash(source: Source) -> str:
    """A hash of all targets, which tells one data set (and one order of it) from another."""
    digest = hashlib.sha256()
    for examples in (source.train, source.test):
        for targets in leaves(examples.y):
            digest.update(np.ascontiguousarray(targets.numpy()).tobytes())
    return digest.hexdigest()
