"""The items that there are: those of the papers, which come with the package, and a user's own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from fedrelay.config import schema
from fedrelay.errors import BadInput
from fedrelay.studies.reproduce.item import Item, Paper
from fedrelay.studies.reproduce.reading import PAPER_FILE, read, read_paper

PAPERS = Path(__file__).parent / "papers"


def papers() -> dict[str, Paper]:
    """All papers by name."""
    return {folder.name: read_paper(folder / PAPER_FILE) for folder in sorted(PAPERS.iterdir()) if folder.is_dir()}


def names() -> list[str]:
    """All items, as they are asked for."""
    files = (path for path in PAPERS.glob("*/*.toml") if path.name != PAPER_FILE)
    return [f"{path.parent.name}/{path.stem}" for path in sorted(files, key=in_order)]


def in_order(path: Path) -> tuple[str, str, int, str]:
    """Paper by paper, table2 before table10, figure3a after figure3."""
    word, number, letter = re.fullmatch(r"(.*?)(\d*)(\D*)", path.stem).groups()  # type: ignore[union-attr]
    return path.parent.name, word, int(number or 0), letter


def item_of(name: str) -> Item:
    """The item of this name."""
    return read(PAPERS / f"{name}.toml")


def wanted(text: str) -> list[Item]:
    """The items that are asked for: one, all of a paper, or one in a file of the user's own."""
    if text.endswith(".toml"):
        return [replace(read(Path(text)), asked=text)]
    known = names()
    mine = [name for name in known if name == text or name.startswith(f"{text.rstrip('/')}/")]
    if not mine:
        valid = [*dict.fromkeys(name.partition("/")[0] for name in known), *known]
        raise BadInput(f"there is no table or figure {text!r}{schema.nearest(text, valid)}")
    return [item_of(name) for name in mine]
