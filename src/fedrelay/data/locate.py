"""Where data sets lie: which folder is searched, and which files there make a data set whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from fedrelay.errors import BadInput

VARIABLE = "FEDRELAY_DATA"
UNFINISHED = ".fedrelay-unpacking"
"""A file in a folder that an archive is being unpacked into, or was when the process was killed."""


def data_folder(given: Path | str | None = None) -> Path:
    """The folder of the data sets: what was given, else the variable FEDRELAY_DATA, else the platform's cache."""
    chosen = given or os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else cache_folder() / "data"


def cache_folder() -> Path:
    """Where this platform keeps what can be made again."""
    return platformdirs.user_cache_path("fedrelay", appauthor=False)


@dataclass(frozen=True)
class Layout:
    """One way a data set is laid out: these files in this folder. `a|b` is either file, `*` any name."""

    kind: str
    folder: str
    files: tuple[str, ...]

    def missing(self, base: Path) -> tuple[str, ...]:
        """The files that are not in `base`."""
        if (base / UNFINISHED).exists():
            return ("the rest of an archive that was not unpacked to its end",)
        return tuple(wanted for wanted in self.files if not any(_there(base, name) for name in wanted.split("|")))

    def __str__(self) -> str:
        files = self.files if len(self.files) <= 8 else (*self.files[:3], "…", self.files[-1])
        return f"{self.folder}/ with " + ", ".join(map(_words, files))


def _words(wanted: str) -> str:
    """Either of two files; `a[.gz]` where one is the other compressed, which keeps messages short."""
    first, _, second = wanted.partition("|")
    if second.startswith(first) and "|" not in second:
        return f"{first}[{second.removeprefix(first)}]"
    return wanted.replace("|", " or ")


def _there(base: Path, name: str) -> bool:
    if "*" in name:
        return any(True for _ in base.glob(name))
    return (base / name).exists()


def find(name: str, folder: Path | str, layouts: Sequence[Layout]) -> tuple[Layout, Path]:
    """The first layout that is whole, in its own place below `folder` or in `folder` itself, and where it is."""
    folder = Path(folder)
    nearest: tuple[int, Layout, Path, tuple[str, ...]] | None = None
    for layout in layouts:
        for base in (folder / layout.folder, folder):
            missing = layout.missing(base)
            if not missing:
                return layout, base
            present = len(layout.files) - len(missing)
            if present and (nearest is None or present > nearest[0]):
                nearest = (present, layout, base, missing)
    raise BadInput(_not_found(name, folder, layouts, nearest))


def _not_found(
    name: str,
    folder: Path,
    layouts: Sequence[Layout],
    nearest: tuple[int, Layout, Path, tuple[str, ...]] | None,
) -> str:
    if nearest is not None:
        _, layout, base, missing = nearest
        names = ", ".join(map(_words, missing))
        found = f"{len(missing)} of the {len(layout.files)} files of {base} are missing: {names}"
    else:
        found = "none of its files are there" if folder.is_dir() else "there is no such folder"
    return (
        f"{name} was not found in {folder}: {found}.\n"
        f"Run `fedrelay data get {name}`, name another folder (--data-dir or {VARIABLE}), or lay out one of:\n"
        f"{ways(folder, layouts)}"
    )


def ways(folder: Path, layouts: Sequence[Layout]) -> str:
    """The layouts as lines; several places of the same files are one line."""
    lines = []
    for files in dict.fromkeys(layout.files for layout in layouts):
        first, *others = (layout for layout in layouts if layout.files == files)
        places = f" (or in {', '.join(f'{layout.folder}/' for layout in others)})" if others else ""
        lines.append(f"  {folder}/{first}{places}")
    return "\n".join(lines)
