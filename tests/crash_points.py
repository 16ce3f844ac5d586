"""The commands that write folders, small enough to be cut at every one of their file operations.

`Cut` is one command in a folder of its own: `strike` lets it happen with a fault, `mended` lets the same command go on
(`--resume`, or a clean start) and says in which way the result is not that of a command that nobody cut; "" if it is.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import faults

from fedrelay.cli import main
from fedrelay.system import files

COMMON = """
rounds = 2
seed = 3
checkpoint = 1
[data]
name = "digits"
clients = 6
partition = { name = "dirichlet", alpha = 1.0 }
[model]
name = "mlp"
hidden = [4]
[local]
batch = 64
lr = 0.1
[engine]
name = "inline"
memory_limit = 0.001
"""
"""Every client's memory takes more than a kilobyte, so all but the last are in the file."""
SCAFFOLD = COMMON + '[algorithm]\nname = "scaffold"\nfraction = 0.5\n'
FILES = {
    "run": SCAFFOLD,
    "compare": SCAFFOLD + '[runs.one]\n[runs.two]\nalgorithm.name = "fedavg"\n',
    "tune": SCAFFOLD,
    "groups": COMMON + '[groups]\ntraits = ["histogram"]\nrepeats = 1\nmax_clients = 3\n',
}
FILES["longer"] = FILES["run"].replace("[engine]", "[evaluate]\nevery = 3\n[engine]")
OPTIONS = {"longer": ("--set", "rounds=3", "--resume"), "tune": ("--lr", "0.05,0.1")}
"""`longer` asks more rounds of a run that has ended: its last line is written anew, without the test that it had."""
FINGERPRINT = re.compile(r"-[0-9a-f]{64}(?=\.pt)")
TIMES = ("seconds", "described_seconds", "examples_per_second")


@dataclass(frozen=True)
class Cut:
    """A command, and the folder where its file and its results are."""

    command: str
    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "file.toml").write_text(FILES[self.command], encoding="utf-8")
        if self.command == "longer":
            assert faults.once(partial(quietly, self._words())).code == 0

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def action(self, *more: str) -> faults.Action:
        return partial(quietly, self._words(*OPTIONS.get(self.command, ()), *more))

    def _words(self, *more: str) -> list[str]:
        command = "run" if self.command == "longer" else self.command
        return [command, str(self.folder / "file.toml"), "--out", str(self.out), *more]

    def operations(self) -> list[str]:
        """What the command does to the disk when nothing goes wrong."""
        return faults.operations(self.action())

    def strike(self, n: int, kind: str) -> faults.Ended:
        return faults.at(n, kind, self.action())

    def mended(self, expected: Mapping[str, Any]) -> str:
        """What is wrong after the same command went on; `expected` is what `results` finds where nothing was cut."""
        ended = faults.once(self.action(*(["--resume"] if self.command == "run" else [])))
        if ended.code:
            return f"going on ended with {ended.code}: {ended.said}"
        found = results(self.out)
        differing = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        return f"not as without a fault: {', '.join(differing)}" if differing else ""


def whole(command: str, folder: Path) -> tuple[list[str], dict[str, Any]]:
    """What the command does to the disk, and what comes of it, when nothing goes wrong.

    It happens here first, so that no child has to import what a command imports only when it needs it.
    """
    assert Cut(command, folder / f"{command}-before").action()() == 0
    cut = Cut(command, folder / f"{command}-whole")
    return cut.operations(), results(cut.out)


def tried(command: str, n: int, kind: str, *, expected: Mapping[str, Any], folder: Path) -> str:
    """Cut the command once and go on: what went wrong, or nothing."""
    cut = Cut(command, folder)
    try:
        ended = cut.strike(n, kind)
        if kind in faults.KILLS and ended.code != -signal.SIGKILL:
            return f"it was not killed but ended with {ended.code}: {ended.said}"
        if kind not in faults.KILLS and (ended.code not in (0, 1, 2) or "Traceback" in ended.said):
            return f"a full disk ended it with {ended.code}: {ended.said}"
        return cut.mended(expected)
    finally:
        shutil.rmtree(folder)


def results(out: Path) -> dict[str, Any]:
    """All that must be the same, by file; of files that tell times, only that they are there."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in out.rglob("*") if not path.is_dir()):
        if files.PART.fullmatch(path.name) and not (path.parent / "config.toml").exists():
            continue  # nobody holds a lock there, so it is swept only when it is old
        name = FINGERPRINT.sub("", path.relative_to(out).as_posix())
        found[name] = READERS[path.suffix](path) if path.suffix in READERS else None
    return found


def lines_of(path: Path) -> Any:
    return [timeless(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def object_of(path: Path) -> Any:
    return timeless(json.loads(path.read_text(encoding="utf-8")))


def timeless(value: Any) -> Any:
    """Without what was measured by a watch."""
    if isinstance(value, dict):
        return {key: timeless(part) for key, part in value.items() if key not in TIMES}
    return [timeless(part) for part in value] if isinstance(value, list) else value


READERS: Mapping[str, Callable[[Path], Any]] = {
    ".jsonl": lines_of,
    ".json": object_of,
    ".toml": Path.read_bytes,
    ".csv": Path.read_bytes,
    ".pt": lambda path: path.name in ("model.pt", "client_models.pt") and path.read_bytes(),
}


def quietly(words: list[str]) -> int:
    """The command; warnings are not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return main(words)
