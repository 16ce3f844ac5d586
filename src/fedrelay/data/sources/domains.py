"""Domain folders, <domain>/<class>/<image>: PACS, Office-Caltech-10, Office-31, Office-Home, and your own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.augment import Levelled
from fedrelay.data.examples import Store
from fedrelay.data.federation import Rows, Sent, Source
from fedrelay.data.locate import Layout, find
from fedrelay.data.sources.cache import Arrays, cached, cached_file
from fedrelay.data.sources.checks import check_clients, examples, wrong
from fedrelay.data.sources.images import (
    DEEP_SCALE,
    SCALE,
    decode,
    held_out,
    images_in,
    looked_at,
    others_in,
    scaled_images,
    subfolders,
)
from fedrelay.data.sources.pictures import colour_of
from fedrelay.data.stores.on_disk import StoredExamples, write_rows
from fedrelay.data.survey import levels_of, scaled
from fedrelay.errors import within

LOG = logging.getLogger("fedrelay")

AT_ONCE = 256
"""So many images are in memory while a file of them is written."""


def _layouts(domains: str, *folders: str) -> tuple[Layout, ...]:
    return tuple(Layout("folders", folder, tuple(domains.split(","))) for folder in folders)


PACS_LAYOUTS = _layouts("art_painting,cartoon,photo,sketch", "PACS", "PACS/kfold", "pacs", "pacs/kfold")
OFFICE_CALTECH10_LAYOUTS = _layouts(
    "amazon,Caltech|caltech,dslr,webcam", "office_caltech_10", "office-caltech-10", "OfficeCaltech10"
)
OFFICE31_LAYOUTS = _layouts(
    "amazon,dslr,webcam", "office31", "office-31", "Office-31", "office31/domain_adaptation_images"
)
OFFICE_HOME_LAYOUTS = _layouts(
    "Art,Clipart,Product,Real World|RealWorld|Real_World",
    "OfficeHomeDataset_10072016",
    "office_home",
    "office-home",
    "OfficeHome",
)


def pacs(folder: Path, *, size: int = 64, test: float = 0.2) -> Source:
    """9,991 pictures of 7 classes as photos, paintings, cartoons and sketches (PACS), by domain."""
    return _named("pacs", folder, PACS_LAYOUTS, classes=7, size=size, test=test)


def office_caltech10(folder: Path, *, size: int = 64, test: float = 0.2) -> Source:
    """2,533 pictures of 10 kinds of objects from 4 cameras and catalogues (Office-Caltech-10), by domain."""
    return _named("office-caltech-10", folder, OFFICE_CALTECH10_LAYOUTS, classes=10, size=size, test=test)


def office31(folder: Path, *, size: int = 64, test: float = 0.2) -> Source:
    """4,110 pictures of 31 kinds of office objects from 3 sources (Office-31), by domain."""
    return _named("office-31", folder, OFFICE31_LAYOUTS, classes=31, size=size, test=test)


def office_home(folder: Path, *, size: int = 64, test: float = 0.2) -> Source:
    """15,588 pictures of 65 kinds of things as art, clip art, products and photos (Office-Home), by domain."""
    return _named("office-home", folder, OFFICE_HOME_LAYOUTS, classes=65, size=size, test=test)


def domain_folders(folder: Path, *, size: int = 64, test: float = 0.2) -> Source:
    """Your own images as <domain>/<class>/<image>, by domain."""
    return image_folders(folder.name, folder, size=size, test=test)


def _named(name: str, folder: Path, layouts: tuple[Layout, ...], *, classes: int, size: int, test: float) -> Source:
    layout, base = find(name, folder, layouts)
    domains = [next(base / name for name in wanted.split("|") if (base / name).exists()) for wanted in layout.files]
    tree = Tree.of(base, domains)
    if len(tree.class_names) != classes:
        found = f"{len(tree.class_names)}: {', '.join(tree.class_names[:8])}"
        raise wrong(base, f"{classes} classes in the domains of {name}", found)
    return tree.source(name, size=size, test=test)


def image_folders(
    name: str,
    folder: Path,
    *,
    size: int,
    test: float,
    background: str | None = None,
    levels: tuple[float, ...] | None = None,
    on_disk: bool = False,
) -> Source:
    """Any <client>/<class>/<image>, by client. What is left out is told in the source's notes, and logged."""
    if not folder.is_dir():
        raise wrong(folder, "a folder", "a file" if folder.exists() else "nothing there")
    tree = Tree.of(folder, subfolders(folder))
    source = tree.source(name, size=size, test=test, background=background, levels=levels, on_disk=on_disk)
    left = others_in(folder, tree.files)
    if left:
        named = ", ".join(left[:10]) + (" …" if len(left) > 10 else "")
        note = f"{len(left)} files are left out, because they are no images in <client>/<class>: {named}"
        source = replace(source, notes=(note, *source.notes))
        LOG.info("%s: left out: %s", name, ", ".join(left))
    for note in source.notes:
        LOG.warning("%s: %s", name, note)
    return source


@dataclass(frozen=True)
class Tree:
    """The images of a folder with the number of their owner and of their class; nothing is decoded yet."""

    base: Path
    files: tuple[Path, ...]
    owners: Rows
    labels: Rows
    owner_names: tuple[str, ...]
    class_names: tuple[str, ...]

    @classmethod
    def of(cls, base: Path, owners: list[Path]) -> Tree:
        """Of these folders of owners below `base`; one without images is refused by name."""
        files = [owner.name for owner in owners if not owner.is_dir()]
        if files:
            raise wrong(base, "folders <client>/<class>/<image>", f"a file {files[0]}")
        found = {owner.name: {kind.name: images_in(kind) for kind in subfolders(_inner(owner))} for owner in owners}
        if not found:
            raise wrong(base, "folders <client>/<class>/<image>", "no folders")
        check_clients(base, list(found), [sum(map(len, kinds.values())) for kinds in found.values()])
        class_names = sorted({kind for kinds in found.values() for kind, images in kinds.items() if images})
        check_spelling(base, found)
        place = {name: number for number, name in enumerate(class_names)}
        rows = [
            (image, number, place[kind])
            for number, kinds in enumerate(found.values())
            for kind, images in kinds.items()
            for image in images
        ]
        numbers = np.array([row[1:] for row in rows], dtype=np.int64)
        images = tuple(row[0] for row in rows)
        return cls(base, images, numbers[:, 0], numbers[:, 1], tuple(found), tuple(class_names))

    def pixels(self, size: int, background: str | None) -> tuple[NDArray[Any], tuple[str, ...]]:
        """All images scaled to size x size, from a cache when no file has changed; and what there is to say of them."""

        def build() -> Arrays:
            x, notes = decode(self.base, self.files, size, background)
            return {"x": x, "notes": np.array(notes, dtype=str)}

        found = cached(self.base, f"pictures-{size}{_laid(background)}", self.files, build)
        return found["x"], tuple(map(str, found["notes"]))

    def in_memory(
        self, size: int, background: str | None, levels: tuple[float, ...] | None, trained: Rows
    ) -> tuple[Store, tuple[str, ...], Sent, tuple[float, float] | None]:
        """All images, what there is to say of them, what it took to find out how deep ones are scaled, and how."""
        x, notes = self.pixels(size, background)
        if x.dtype != np.float32:
            return examples(x, self.labels, SCALE), notes, Sent(), None
        x, found, sent = scaled(str(self.base), x, self.owners, trained, levels)
        return examples(x, self.labels, DEEP_SCALE), (*notes, told(found)), sent, found

    def on_disk(
        self, size: int, background: str | None, levels: tuple[float, ...] | None, trained: Rows
    ) -> tuple[Store, tuple[str, ...], Sent, tuple[float, float] | None]:
        """The same in a file that is not read into memory; deep images are scaled whenever they are taken."""

        def look() -> Arrays:
            deep, notes = looked_at(self.base, self.files)
            return {"deep": np.array(deep), "notes": np.array(notes, dtype=str)}

        def build(stream: IO[bytes]) -> None:
            parts = (self.files[start : start + AT_ONCE] for start in range(0, len(self.files), AT_ONCE))
            write_rows(stream, len(self.files), (scaled_images(part, size, background, deep=deep) for part in parts))

        looks = cached(self.base, "looks", self.files, look)
        deep, notes = bool(looks["deep"]), tuple(map(str, looks["notes"]))
        path = cached_file(self.base, f"pictures-{size}{_laid(background)}", self.files, build)
        stored = StoredExamples(path, torch.arange(len(self.files)), torch.from_numpy(self.labels.copy()))
        if not deep:
            return stored.with_transform(SCALE), notes, Sent(), None
        least, most, sent = levels_of(str(self.base), stored, self.owners, trained, levels)
        found = least, most
        return stored.with_transform(Levelled(least, most, DEEP_SCALE)), (*notes, told(found)), sent, found

    def source(
        self,
        name: str,
        *,
        size: int,
        test: float,
        background: str | None = "white",
        levels: tuple[float, ...] | None = None,
        on_disk: bool = False,
    ) -> Source:
        """With a share of every owner's classes held out to test on.

        What is transparent is laid on the background; without one it is refused. `levels` is the range of deep images
        (16 bits, floats, DICOM) that becomes 0 … 1; by default that of all clients' images. With `on_disk` the images
        are not in memory.
        """
        within("size", size, least=1, most=4096)
        within("test", test, above=0, most=0.9)
        train_rows, test_rows = held_out(self.owners * len(self.class_names) + self.labels, test, name)
        if not len(test_rows):
            raise wrong(self.base, "some class of some client with two images, to test on", "none")
        stored, notes, sent, scale = (self.on_disk if on_disk else self.in_memory)(size, background, levels, train_rows)
        return Source(
            name,
            train=stored.picked(torch.from_numpy(train_rows)),
            test=stored.picked(torch.from_numpy(test_rows)),
            classes=len(self.class_names),
            owners=self.owners[train_rows],
            owner_names=self.owner_names,
            class_names=self.class_names,
            test_owners=self.owners[test_rows],
            prepared=sent,
            levels=scale,
            notes=notes,
        )


def told(levels: tuple[float, float]) -> str:
    return f"images are scaled from {levels[0]:g} … {levels[1]:g} to -1 … 1"


def _laid(background: str | None) -> str:
    """The colour that pictures are laid on, in the name of a cache."""
    return "" if background is None else "-{:02x}{:02x}{:02x}".format(*colour_of(background))


def check_spelling(base: Path, found: Mapping[str, Mapping[str, Sequence[Path]]]) -> None:
    """Refuse classes that differ only in capital letters or blanks, with a client that has each."""
    spelt: dict[str, dict[str, str]] = {}
    for owner, kinds in found.items():
        for kind, images in kinds.items():
            if images:
                spelt.setdefault("".join(kind.split()).casefold(), {}).setdefault(kind, owner)
    for ways in spelt.values():
        if len(ways) > 1:
            named = " and ".join(f"{kind!r} at {owner}" for kind, owner in ways.items())
            raise wrong(base, "classes to be written alike at every client", named)


def _inner(owner: Path) -> Path:
    """Office-31 keeps its classes in <domain>/images."""
    inner = subfolders(owner)
    return inner[0] if [folder.name for folder in inner] == ["images"] and not images_in(inner[0]) else owner
