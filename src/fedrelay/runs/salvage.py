"""What can still be read of a run folder: lines that are damaged are left out and counted, for whoever only looks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fedrelay.errors import BadInput
from fedrelay.runs.folder import CONFIG, ROUNDS, SUMMARY, Run, load, read_config, read_summary
from fedrelay.runs.json_files import Damaged, parsed
from fedrelay.runs.log import RoundLog
from fedrelay.runs.rounds import decoded, whole_lines

NUMBERS = re.compile(r"(\d+)")
"""seed-2 comes before seed-10."""
DEEPEST = 3
"""Folders inside folders in which runs are looked for."""


@dataclass(frozen=True)
class Salvaged:
    """A run, and what is wrong with its folder in a sentence; nothing as a rule."""

    run: Run
    damage: str = ""


def salvaged(folder: Path) -> Salvaged:
    """The run of a folder as far as it can be read; refused only if nothing can be."""
    try:
        return Salvaged(load(folder))
    except BadInput as error:
        if not (folder / CONFIG).is_file() or not (folder / ROUNDS).is_file():
            raise
        config, reason = read_config(folder / CONFIG), str(error)
    try:
        summary = read_summary(folder / SUMMARY)
    except BadInput:
        summary = None
    lines = whole_lines(folder / ROUNDS)
    logs = [log for log in map(readable, lines) if log is not None]
    rounds = list({log.round: log for log in logs}.values())
    skipped = len(lines) - len(rounds)
    run = Run(folder.resolve().name, folder, config, rounds, summary)
    if not skipped:
        return Salvaged(run, f"{folder} is damaged, and shown as far as it can be read ({reason}).")
    many = (
        f"{skipped} damaged lines of {folder / ROUNDS} were"
        if skipped > 1
        else f"1 damaged line of {folder / ROUNDS} was"
    )
    return Salvaged(run, f"{many} skipped; curves lack those rounds, and so does what was sent until later ones.")


def readable(line: bytes) -> RoundLog | None:
    """The round that a line tells of, whichever it is; None if it is damaged."""
    try:
        number = parsed(line).get("round")
        return decoded(line, number) if isinstance(number, int) else None
    except Damaged:
        return None


def run_folders(folder: Path) -> list[Path]:
    """The folder itself if it is a run's, else all run folders inside; refused if there are none."""
    if not folder.is_dir() or (folder / CONFIG).exists() or (folder / ROUNDS).exists():
        return [folder]
    inside = (path.parent for depth in range(1, DEEPEST + 1) for path in folder.glob("*/" * depth + CONFIG))
    found = sorted(inside, key=lambda path: [part.zfill(9) for part in NUMBERS.split(str(path))])
    if not found:
        state = "is empty" if not any(folder.iterdir()) else "has no run inside"
        raise BadInput(f"{folder} {state}: name a folder that `fedrelay run FILE.toml --out DIR` has written")
    return found
