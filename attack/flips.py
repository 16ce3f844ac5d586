"""Bits that flip in the files of a run folder: what is damaged is refused, or made anew, and never taken for true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import cases
from cases import Case
from child import Blow, command, complaint
from same import difference, record
from share import Share, Verdict

BITS = 48
"""In every file."""
HALF_WAY = "--set", "rounds=4"
CASES = (cases.run_of("scaffold", cases.SPILLING), cases.run_of("fedper"), cases.COMPARE)


@dataclass(frozen=True)
class Folder:
    """A folder of results, finished or not, and what going on with it comes to."""

    name: str
    case: Case
    path: Path
    expected: dict[str, Any]

    @property
    def files(self) -> list[Path]:
        found = [path.relative_to(self.path) for path in (self.path / "out").rglob("*") if path.is_file()]
        return sorted(path for path in found if path.name != ".lock")


def flipped(share: Share) -> Iterator[Verdict]:
    """Bit by bit over all files, so that a part of the trials has something of each."""
    every = [(folder, file) for folder in folders(share.folder) for file in folder.files]
    for number in share.numbers():
        if number >= len(every) * BITS:
            return
        yield replace(trial(share, number, *every[number % len(every)]), of=len(every) * BITS)


def folders(place: Path) -> list[Folder]:
    """Of every case one that is finished and, of runs, one that was killed on its way."""
    found = []
    for case in CASES:
        path = place / f"whole-{case.name.replace(' ', '-')}"
        ended = command(case.write(path), path)
        if problem := complaint(ended):
            raise RuntimeError(f"{case.name} does not even run undisturbed: {problem}")
        expected = record(path / "out")
        found.append(Folder(f"{case.name}, finished", case, path, expected))
        if case.verb == "run":
            found.append(Folder(f"{case.name}, half-way", case, interrupted(case, path, ended.seconds), expected))
    return found


def interrupted(case: Case, whole: Path, seconds: float) -> Path:
    """A run that was killed after some checkpoint."""
    path = whole.with_name(whole.name + "-half")
    for share in (0.7, 0.8, 0.6, 0.9, 0.5, 0.95, 0.4):
        rmtree(path, ignore_errors=True)
        command(case.write(path), path, Blow(share * seconds))
        if list((path / "out" / "checkpoint").glob("*.pt")) and not (path / "out" / "summary.json").exists():
            return path
    raise RuntimeError(f"{case.name} could not be killed half-way")


def trial(share: Share, number: int, folder: Folder, file: Path) -> Verdict:
    own = share.folder / "trial"
    rmtree(own, ignore_errors=True)
    copytree(folder.path, own)
    rng = share.rng(number)
    content = bytearray((own / file).read_bytes())
    if not content:
        return Verdict(f"{folder.name}, {file} (empty)")
    places = [(rng.randrange(len(content)), rng.randrange(8)) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
    for place, bit in places:
        content[place] ^= 1 << bit
    (own / file).write_bytes(content)
    label = f"{folder.name}, {file}, byte and bit {places}"
    return Verdict(label, problem_of(own, folder, file))


def problem_of(own: Path, folder: Folder, file: Path) -> str:
    """What is shown of a damaged folder, and what becomes of it by going on."""
    run = (Path("out") if folder.case.verb == "run" else file.parent).as_posix()
    if (own / run / "config.toml").exists():
        shown = command(["report", run, "--out", "page.html"], own)
        if problem := complaint(shown, (0, 1, 2)):
            return f"report: {problem}"
        if shown.code == 1 and len(shown.said.strip().splitlines()) < 2:
            return "report: it left something out without a word"
        asked = command(["predict", run, "digits", "--out", "predicted.csv"], own)
        if problem := complaint(asked, (0, 2)):
            return f"predict: {problem}"
    went_on = command([*folder.case.write(own), *folder.case.again], own)
    if problem := complaint(went_on, (0, 2)):
        return f"going on: {problem}"
    if went_on.code == 2:
        return ""
    differing = difference(folder.expected, record(own / "out"))
    return f"going on ended well, but {differing}" if differing else ""
