"""What was slow to read is kept beside it, once and whole: a cache is never half written and never stale."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.locate import cache_folder
from fedrelay.errors import BadInput
from fedrelay.system import files

Arrays = dict[str, NDArray[Any]]
VERSION = 1  # of what is stored; a cache of another version is made anew
FOLDER = ".fedrelay"


def cached(folder: Path, kind: str, files: Iterable[Path], build: Callable[[], Arrays]) -> Arrays:
    """The arrays that `build` makes from these files of `folder`, from the cache when no file has changed since.

    `kind` names the reader and its options. The key holds the name, size and time of every file.
    """
    name = f"{kind}-{_key(folder, files)}.npz"
    homes = _homes(folder)
    for home in homes:
        found = _load(home / name)
        if found is not None:
            return found
    arrays = build()
    for home in homes:
        with contextlib.suppress(OSError):  # a folder we may not write to: the next one, or no cache at all
            _store(home / name, arrays)
            _forget(home, kind, name)
            break
    return arrays


def cached_file(folder: Path, kind: str, read: Iterable[Path], build: Callable[[IO[bytes]], None]) -> Path:
    """A file that `build` writes from files of `folder`, once; the same one as long as none of them has changed."""
    name = f"{kind}-{_key(folder, read)}.npy"
    homes = _homes(folder)
    found = next((home / name for home in homes if (home / name).is_file()), None)
    if found is not None:
        return found
    reasons = []
    for home in homes:
        try:
            home.mkdir(parents=True, exist_ok=True)
            with files.writing(home / name) as stream:
                build(stream)
        except OSError as error:  # a folder we may not write to, or a full disk: the next one
            reasons.append(str(error))
        else:
            _forget(home, kind, name)
            return home / name
    raise BadInput(f"{folder}: what is read from it cannot be stored anywhere ({'; '.join(reasons)})")


def _homes(folder: Path) -> tuple[Path, Path]:
    """Beside the data, or else in the platform's cache."""
    place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return folder / FOLDER, cache_folder() / "read" / place


def _key(folder: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256(f"version {VERSION}\n".encode())
    for file in sorted(files):
        status = file.stat()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:24]


def _load(path: Path) -> Arrays | None:
    """The arrays, or None when there is no such cache or it is damaged (every entry carries a checksum)."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception:  # whatever is wrong with it, it can be made again
        return None


def _store(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.writing(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # it takes any name for an array


def _forget(home: Path, kind: str, name: str) -> None:
    """Remove what the same reader kept of files that have changed."""
    suffix = Path(name).suffix
    for old in home.glob(f"{kind}-*{suffix}"):
        if old.name != name and old.name.removeprefix(f"{kind}-").removesuffix(suffix).isalnum():
            with contextlib.suppress(OSError):
                old.unlink()
