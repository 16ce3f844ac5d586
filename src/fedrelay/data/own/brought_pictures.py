"""Pictures that stay with their clients: a folder <class>/<image> at each, told by names of classes and a range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.augment import levelled
from fedrelay.data.examples import Examples
from fedrelay.data.federation import Source
from fedrelay.data.sources.checks import wrong
from fedrelay.data.sources.domains import Tree
from fedrelay.data.sources.images import DEEP_SCALE, SCALE
from fedrelay.errors import BadInput, within
from fedrelay.types import Tree as Told

FOLDER = "folder"
SIZE = 64


@dataclass(frozen=True)
class PicturesBrought:
    """The pictures of one client, scaled to the size that [data] says."""

    name: str
    x: NDArray[Any]
    labels: tuple[str, ...]
    """The class of every picture."""
    levels: tuple[float, ...] | None

    @classmethod
    def read(cls, path: Path, name: str, data: Mapping[str, Any]) -> PicturesBrought:
        """From a folder; what is no picture in a folder of a class is left out."""
        size, background, levels = data.get("size", SIZE), data.get("background"), data.get("levels")
        if not isinstance(size, int):
            raise BadInput(f"[data].size: expected a whole number, not {size!r:.40}")
        within("size", size, least=1, most=4096)
        path = path.resolve()
        tree = Tree.of(path.parent, [path])
        x, _ = tree.pixels(size, background if isinstance(background, str) and background != "none" else None)
        given = tuple(map(float, levels)) if isinstance(levels, list | tuple) else None
        x = np.require(x, requirements=("C", "W"))  # torch wants memory that it may write to
        return cls(name, x, tuple(tree.class_names[label] for label in tree.labels), given)

    @property
    def deep(self) -> bool:
        """Whether they have more than 8 bits."""
        return self.x.dtype == np.float32

    def told(self) -> Told:
        """Number, shape and classes; of deep pictures the least and the most value, unless the levels are given."""
        found: dict[str, Any] = {"kind": FOLDER, "rows": len(self.x), "shape": list(self.x.shape[1:])}
        found |= {"type": str(self.x.dtype), "classes": sorted(set(self.labels))}
        if self.deep and self.levels is None:
            found["range"] = [float(self.x.min()), float(self.x.max())]
        return found

    def prepared(self, agreed: Told, /) -> Source:
        """With the numbers of classes, and the range, that all have agreed on."""
        place = {name: number for number, name in enumerate(agreed["class_names"])}
        strange = sorted(set(self.labels) - set(place))
        if strange:
            raise wrong(self.name, f"classes among {', '.join(place)}", ", ".join(strange[:5]))
        x = levelled(self.x, *agreed["levels"]) if self.deep else self.x
        y = torch.tensor([place[label] for label in self.labels])
        made = Examples(torch.from_numpy(x), y, DEEP_SCALE if self.deep else SCALE)
        none = Examples(torch.from_numpy(x[:0]), y[:0], made.transform)
        return Source(self.name, train=made, test=none, classes=len(place), class_names=tuple(place))


def agreed_on_pictures(told: Mapping[str, Told], data: Mapping[str, Any]) -> Told:
    """All classes, and the range that deep pictures are scaled by."""
    kinds = {name: (tuple(tree["shape"]), tree["type"]) for name, tree in told.items()}
    if len(set(kinds.values())) != 1:
        found = "; ".join(f"{name} {shape} of {kind}" for name, (shape, kind) in list(kinds.items())[:5])
        raise BadInput(f"the clients' pictures differ: {found}")
    names = sorted({kind for tree in told.values() for kind in tree["classes"]})
    spelt = {"".join(name.split()).casefold() for name in names}
    if len(spelt) < len(names):
        raise BadInput(f"clients write classes differently: {', '.join(names[:20])}")
    levels = data.get("levels")
    if not isinstance(levels, list | tuple):
        ranges = [tree["range"] for tree in told.values() if "range" in tree]
        levels = [min(least for least, _ in ranges), max(most for _, most in ranges)] if ranges else []
    first = next(iter(told.values()))
    agreed = {"kind": FOLDER, "shape": list(first["shape"]), "type": first["type"], "class_names": names}
    return agreed | {"levels": [float(level) for level in levels]}


def stands_for_pictures(agreed: Told, data: Mapping[str, Any], rows: int, test: Path | None) -> Source:
    """What the server has in place of the clients' pictures; `test` is a folder of its own."""
    deep, names = agreed["type"] == "float32", tuple(agreed["class_names"])
    x = torch.zeros(1, *agreed["shape"], dtype=torch.float32 if deep else torch.uint8)
    y, scale = torch.zeros(1, dtype=torch.int64), DEEP_SCALE if deep else SCALE
    tested = Examples(x[:0], y[:0], scale)
    if test is not None:
        found = PicturesBrought.read(test, "test part", data).prepared(agreed).train
        assert isinstance(found, Examples)
        tested = found
    stands = Examples(x.expand(rows, *agreed["shape"]), y.expand(rows), scale)
    return Source(FOLDER, train=stands, test=tested, classes=len(names), class_names=names)
