"""An item from its file to its pages: panel by panel, resumable; what is there is shown whenever it stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedrelay import config
from fedrelay.data.locate import data_folder
from fedrelay.data.sources import FILES
from fedrelay.errors import BadInput
from fedrelay.studies.claims import REPRODUCED, claim
from fedrelay.studies.names import check_name, folder_name, refuse_controls, refuse_links
from fedrelay.studies.reproduce import library, markdown, outcome, page, pictures, scales
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.item import Item
from fedrelay.studies.reproduce.outcome import Outcome
from fedrelay.studies.reproduce.study import Setting
from fedrelay.system import files

ALONE = "runs"
"""The folder of a panel without a name."""


@dataclass(frozen=True)
class Planned:
    """A panel that is to be done: all that is asked for, the rows of it that are wanted now, and where it goes."""

    name: str
    tables: dict[str, Any]
    wanted: dict[str, Any]
    rows: tuple[str, ...]
    folder: Path
    missing: tuple[str, ...] = ()
    """Data sets that are not at hand."""


@dataclass(frozen=True)
class Told:
    """What could not be done, in words."""

    left_out: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def plan(item: Item, scale: str, out: Path, *, only: Sequence[str] = (), data_dir: Path | None = None) -> list[Planned]:
    """The panels of an item that are wanted at a scale."""
    found = []
    for panel in scales.panels_of(item, scale):
        tables = scales.tables_of(item, scale, panel)
        rows = [row for row in item.kind.rows(tables) if chosen(panel, item.called(row), only)]
        if not rows:
            continue
        refuse_controls(panel, f"panel {panel!r:.100}")
        folder = out / (check_name(folder_name(panel), f"panel {panel!r:.100}") if panel else ALONE)
        wanted = item.kind.chosen(tables, rows)
        found.append(Planned(panel, tables, wanted, tuple(rows), folder, tuple(missing(wanted, data_dir))))
    if not found:
        panels = scales.panels_of(item, scale)
        names = [*panels, *(item.called(row) for panel in panels for row in scales.rows_of(item, scale, panel))]
        raise BadInput(
            f"--only {', '.join(only)}: {item.name} has no such panel or row at the scale {scale} "
            f"(there is: {', '.join(dict.fromkeys(filter(None, names)))})"
        )
    folders = [one.folder for one in found]
    if len(set(folders)) < len(folders):
        raise BadInput(f"{item.name}: two panels would share a folder: give them different names, not {folders}")
    refuse_links(out, folders)
    return found


def chosen(panel: str, row: str, only: Sequence[str]) -> bool:
    """Whether every text that was asked for is in the name of the panel or the row."""
    return all(text.casefold() in f"{panel} / {row}".casefold() for text in only)


def missing(tables: Mapping[str, Any], data_dir: Path | None) -> list[str]:
    """The data sets in files that these tables name and that are not in the data folder."""
    runs = config.section_of(tables, "runs").values()
    sections = [tables.get("data"), *(run.get("data") for run in runs if isinstance(run, Mapping))]
    names = dict.fromkeys(section["name"] for section in sections if isinstance(section, Mapping) and "name" in section)
    folder = data_folder(data_dir)
    return [name for name in names if name in FILES and not FILES[name].present(folder)]


def lacking(item: Item, planned: Iterable[Planned], data_dir: Path | None) -> list[str]:
    """What is left out for want of data, and what to do about it."""
    folder = data_folder(data_dir)
    return [
        f"{one.name or item.name} is left out: {', '.join(one.missing)} is not in {folder} (`fedrelay data get "
        f"{one.missing[0]}`, or --data-dir says where it is){f'; it needs {item.needs}' if item.needs else ''}"
        for one in planned
        if one.missing
    ]


def carry_out(
    item: Item,
    scale: str,
    out: Path,
    setting: Setting,
    *,
    only: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
    runs: Path | None = None,
) -> Outcome:
    """Do what is not done yet of an item; write results.json, table.md and page.html, also when it is stopped.

    The runs of an item that is like another are in the folder of that one, if `runs` says it; that one's results are
    then written anew too.
    """
    homes = {out: item} if runs is None else {runs: library.item_of(item.like), out: item}
    planned = plan(item, scale, runs or out, only=only, data_dir=setting.data_dir)
    absent = lacking(item, planned, setting.data_dir)
    todo = [one for one in planned if not one.missing]
    for text in absent:
        say(text)
    if not todo:
        raise BadInput(f"{item.name} cannot run here: {absent[0]}")
    check(item, todo, setting.data_dir)
    told = {home: still_true(earlier(home, owner, scale), item, planned) for home, owner in homes.items()}
    begun = ((runs or out) / REPRODUCED).is_file()
    for home, owner in homes.items():
        claim(home, REPRODUCED, partial(is_of, owner, scale), force=setting.force)
    setting = replace(setting, force=begun or setting.force)
    failed: list[str] = []
    write_all(homes, scale, told, absent, failed)  # the folders are ours from now on
    try:
        for number, one in enumerate(todo, 1):
            say(f"{item.name} {one.name and f'· {one.name} '}({number} of {len(todo)}, scale {scale})")
            name = f"{item.name}{f', {one.name}' if one.name else ''}"
            failed += [in_panel(one, text) for text in item.kind.carry_out(one.wanted, one.folder, name, setting)]
    finally:
        done = write_all(homes, scale, told, absent, failed)
    return done


def check(item: Item, todo: Iterable[Planned], data_dir: Path | None) -> None:
    """A mistake in the last panel, or too little data for it, must not wait for the first to end."""
    for one in todo:
        try:
            item.kind.check(one.wanted, data_dir)
        except BadInput as error:
            told = f"{item.name}{f', {one.name}' if one.name else ''}: {error}"
            raise BadInput(told + ("; --only runs the other panels" if one.name else "")) from error


def in_panel(planned: Planned, text: str) -> str:
    """What is said of a row, with its panel."""
    return f"{planned.name}, {text}" if planned.name else text


def earlier(home: Path, item: Item, scale: str) -> Outcome | None:
    """What an earlier command has left there of this item at this scale."""
    try:
        found = outcome.read(home / REPRODUCED)
    except BadInput:
        return None  # nothing, or something else, which is refused elsewhere
    return found if (found.item, found.scale) == (item.name, scale) else None


def still_true(before: Outcome | None, item: Item, planned: Iterable[Planned]) -> Told:
    """What an earlier command could not do and this one does not try again."""
    if before is None:
        return Told()
    again = tuple(
        f"{name} is left out: " for one in planned for name in ([one.name] if one.name else [before.item, item.name])
    )
    tried = tuple(in_panel(one, f"{row}: ") for one in planned for row in item.kind.rows(one.wanted))
    return Told(
        tuple(text for text in before.left_out if not text.startswith(again)),
        tuple(text for text in before.failed if not text.startswith(tried)),
    )


def is_of(item: Item, scale: str, found: Any) -> bool:
    """Whether an earlier results.json tells of this item at this scale."""
    return bool(found["item"] == item.name and found["scale"] == scale)


def write_all(
    homes: Mapping[Path, Item], scale: str, told: Mapping[Path, Told], left_out: Sequence[str], failed: Sequence[str]
) -> Outcome:
    """The results of these items, whose runs are all in the first folder, with what was told before; those of the
    last."""
    runs = next(iter(homes))
    return [
        write(item, scale, out, runs, [*told[out].left_out, *left_out], [*told[out].failed, *failed])
        for out, item in homes.items()
    ][-1]


def write(item: Item, scale: str, out: Path, runs: Path, left_out: Sequence[str], failed: Sequence[str]) -> Outcome:
    """The results of what is there, whichever command has made it."""
    found = gather(item, scale, runs)
    made = outcome.outcome_of(item, scale, found, left_out=left_out, failed=failed)
    out.mkdir(parents=True, exist_ok=True)
    files.write(out / REPRODUCED, outcome.dumped(made))
    files.write(out / "table.md", markdown.document(made).encode())
    files.write(out / "page.html", page.html(made, pictures.drawn(item, found)).encode(errors="replace"))
    return made


def gather(item: Item, scale: str, out: Path) -> dict[str, Finished]:
    """What is there of every panel."""
    return {
        panel: item.kind.gather(scales.tables_of(item, scale, panel), out / (folder_name(panel) if panel else ALONE))
        for panel in scales.panels_of(item, scale)
    }
