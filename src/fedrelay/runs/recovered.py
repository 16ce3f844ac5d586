"""The images that attackers have made of the models they received, in the folder of a run: recovered/.

One file for every attacker and round in which it made some: arrays in bytes (images, channels, height, width) by the
name of the discriminator. A run that goes on after a cut writes the same bytes again.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import BadInput
from fedrelay.runs.folder import keep
from fedrelay.types import State, Tree
from fedrelay.visits.attacks.recovery import pictures_in

FOLDER = "recovered"
NAME = re.compile(r"round-(\d+)-client-(\d+)\.npz")
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Made:
    """The images of one attacker in one round, by discriminator."""

    round: int
    client: int
    images: Mapping[str, Bytes]


def write(folder: Path, state: State, memories: Mapping[int, Tree]) -> None:
    """Keep what attackers have made in the last round, if they have made some."""
    assert state.log is not None
    for client in sorted({hit.client for hit in state.log.attacked}):
        found = pictures_in(memories[client]) if client in memories else None
        if found is not None and found[0] == state.round:
            images = {name: tensor.cpu().numpy() for name, tensor in found[1].items()}
            path = folder / FOLDER / f"round-{state.round:06d}-client-{client}.npz"
            path.parent.mkdir(mode=0o700, exist_ok=True)
            keep(path, packed(images))


def packed(images: Mapping[str, Bytes]) -> bytes:
    content = io.BytesIO()
    arrays: dict[str, Any] = dict(images)
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def read(folder: Path, rounds: int | None = None) -> list[Made]:
    """All that there is, by round and client; up to this round, because a run that goes on from an earlier one may find
    later files of its first part."""
    found = []
    for path in sorted((folder / FOLDER).glob("*.npz")):
        name = NAME.fullmatch(path.name)
        if name is not None and (rounds is None or int(name[1]) <= rounds):
            found.append(Made(int(name[1]), int(name[2]), unpacked(path)))
    return found


def unpacked(path: Path) -> dict[str, Bytes]:
    """The arrays of a file; what is no set of images is refused by its name."""
    try:
        with np.load(path, allow_pickle=False) as found:
            images = {str(name): np.asarray(found[name]) for name in found}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BadInput(f"{path} is damaged ({error}): it should hold images of an attacker; delete it") from None
    for name, array in images.items():
        if array.dtype != np.uint8 or array.ndim != 4 or 0 in array.shape:
            raise BadInput(f"{path} is damaged: {name!r:.40} should be images in bytes; delete the file")
    return images
