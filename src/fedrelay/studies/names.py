"""The folders of runs inside a study's folder: names that every file system takes, and no way out of it.

Promised: a study writes below its own folder only. A name that leads elsewhere, that another system could not have, or
that is one of our own files is refused; and so is a link in the place of a run's folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fedrelay.errors import BadInput
from fedrelay.runs.checkpoint import FOLDER
from fedrelay.runs.folder import AT_THE_END, CONFIG, ROUNDS
from fedrelay.studies.claims import WRITTEN

LONGEST = 200
"""Bytes of a name: file systems take 255 of them, Windows 260 characters of a whole path."""
RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])", re.IGNORECASE)
"""What Windows keeps for devices, also with anything after a point."""
OWN = frozenset((CONFIG, ROUNDS, *AT_THE_END, FOLDER, *WRITTEN))


def folder_name(text: str) -> str:
    """A text as the name of a folder; what a file system may not take becomes an underscore."""
    return re.sub(r"[^\w.+=-]+", "_", text)


def refuse_controls(name: str, what: str) -> None:
    """Refuse a name that would steer a terminal in which it is shown."""
    if any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in name.replace("\n", "").replace("\0", "")):
        raise BadInput(f"{what[:200]} has control characters: give it another name")


def check_name(name: str, what: str) -> str:
    """The name, if a folder can have it everywhere."""
    why = ""
    if not name.strip("._ "):
        why = "has nothing that could name a folder"
    elif len(name.encode()) > LONGEST:
        why = f"is too long ({len(name.encode())} bytes, at most {LONGEST})"
    elif RESERVED.fullmatch(name.partition(".")[0].strip()):
        why = "is reserved on Windows"
    elif name.endswith((".", " ")):
        why = "ends with a point or a space, which Windows takes off"
    elif name.casefold() in OWN:
        why = "is the name of one of our own files"
    if why:
        raise BadInput(f"{what[:200]} {why}: give it another name")
    return name


def refuse_links(out: Path, folders: Iterable[Path]) -> None:
    """Below the study's folder, nothing that leads to a run may be a link: who made it could lead us anywhere."""
    for folder in folders:
        for place in (folder, *folder.parents):
            if place == out:
                break
            if place.is_symlink():
                raise BadInput(
                    f"{place} is a link; nothing was overwritten: a study writes into folders of its own only, so "
                    "remove it, or choose another --out"
                )
