"""Shakespeare by speaking role: a LEAF export, or the plain text of the plays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Source
from fedrelay.data.locate import Layout, find
from fedrelay.data.sources.cache import Arrays
from fedrelay.data.sources.checks import examples, wrong
from fedrelay.data.sources.leaf import decode_letters, leaf_layouts, read_leaf
from fedrelay.data.sources.tokens import LETTERS, Tokens, letters, windows
from fedrelay.errors import BadInput, within

LAYOUTS = (
    *leaf_layouts("shakespeare", "shakespeare/data", "shakespeare/leaf"),
    Layout("text", "shakespeare", ("input.txt",)),
)
LENGTH = 80
HEADING = re.compile(r"[^\s:][^:\n]{0,58}:")


def shakespeare(folder: Path, *, test: float = 0.2, stride: int = 1) -> Source:
    """The next character after 80 of them, by speaking role, over LEAF's 80 characters (Shakespeare).

    Of a plain text (`ROLE:`, its lines, an empty line) every `stride`-th character is an example, and the last
    speeches of every role, a share of `test`, are tested on. A LEAF export says itself what is what.
    """
    layout, base = find("shakespeare", folder, LAYOUTS)
    if layout.kind == "leaf":
        stored = read_leaf(base, "shakespeare", decode_letters)
    else:
        within("test", test, above=0, most=0.9)
        within("stride", stride, least=1)
        stored = _cut(speeches(base / "input.txt"), test, stride)
    return Source(
        "shakespeare",
        train=examples(stored["train_x"], stored["train_y"], Tokens()),
        test=examples(stored["test_x"], stored["test_y"], Tokens()),
        classes=len(LETTERS),
        owners=stored["owners"],
        owner_names=tuple(map(str, stored["names"])),
        class_names=tuple(LETTERS),
    )


def speeches(path: Path) -> dict[str, list[str]]:
    """What every role says, speech by speech, in the order of the text. A role that says nothing is none."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise wrong(path, "text in UTF-8", f"something else ({error})") from None
    said: dict[str, list[str]] = {}
    blocks = 0
    for block in re.split(r"\n\s*\n", text):
        heading, _, rest = block.strip().partition("\n")
        blocks += bool(heading)
        if HEADING.fullmatch(heading.strip()) and rest.strip():
            speech = " ".join(line.strip() for line in rest.splitlines())
            said.setdefault(heading.strip().removesuffix(":"), []).append(speech + "\n")
    if len(said) < 2:
        raise wrong(path, "at least two roles (a line `ROLE:`, then what they say)", f"{len(said)} in {blocks} blocks")
    return said


def _cut(said: dict[str, list[str]], test: float, stride: int) -> Arrays:
    train: list[tuple[NDArray[Any], NDArray[Any]]] = []
    tested: list[tuple[NDArray[Any], NDArray[Any]]] = []
    owners: list[NDArray[np.int64]] = []
    for place, mine in enumerate(said.values()):
        # Whole speeches, and the last ones: windows that overlap must not be trained on and tested on.
        kept = len(mine) if len(mine) == 1 else len(mine) - max(round(test * len(mine)), 1)
        parts = [windows(letters(speech), LENGTH, stride) for speech in mine]
        train += parts[:kept]
        tested += parts[kept:]
        owners.append(np.full(sum(len(y) for _, y in parts[:kept]), place, dtype=np.int64))
    if not tested:
        raise BadInput("no role has two speeches, so there is nothing to test on")
    return {
        "train_x": np.concatenate([x for x, _ in train]),
        "train_y": np.concatenate([y for _, y in train]),
        "owners": np.concatenate(owners),
        "names": np.array(list(said)),
        "test_x": np.concatenate([x for x, _ in tested]),
        "test_y": np.concatenate([y for _, y in tested]),
    }
