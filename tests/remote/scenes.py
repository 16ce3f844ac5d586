"""What tests of real clients are about: an experiment on digits, its server, and clients."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from machines import Machine, Site, ticks

from fedrelay import config

NAMES = ("east", "north", "south", "west")
FILE = """
rounds = ROUNDS
checkpoint = CHECKPOINT
seed = 1
[data]
name = "digits"
clients = 4
partition = { name = "dirichlet", alpha = 0.5 }
[model]
name = "mlp"
hidden = [16]
[algorithm]
name = "METHOD"
SETTINGS
[local]
lr = 0.1
batch = 16
[evaluate]
every = 10
"""


def written(folder: Path, method: str, settings: str = "", *, rounds: int = 3, checkpoint: int = 1) -> Path:
    """An experiment for four clients, in a file."""
    text = FILE.replace("METHOD", method).replace("SETTINGS", settings)
    path = folder / "experiment.toml"
    path.write_text(text.replace("ROUNDS", str(rounds)).replace("CHECKPOINT", str(checkpoint)), encoding="utf-8")
    return path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def simulated(path: Path) -> str:
    """The fingerprint of the model that the simulation ends with."""
    tables = config.read(path, ["engine.name=inline"])
    recorder = config.build(tables).record(path.parent / "simulated")
    list(recorder.run())
    return recorder.summary().params_sha256


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def joined(site: Site, port: int, name: str, *more: str | Path, before: Callable[[], object] = lambda: None) -> Machine:
    data = () if "--data" in more else ("--data", "experiment")
    words = ("--server", f"127.0.0.1:{port}", "--name", name, "--home", site.folder / f"home-{name}", *data, *more)
    return site.start("join", *words, name=name, before=before)


def served(
    site: Site,
    path: Path,
    *more: str | Path,
    listen: str = "127.0.0.1:0",
    before: Callable[[], object] = lambda: None,
) -> Machine:
    return site.start("serve", path, "--listen", listen, "--out", site.folder / "run", *more, before=before)


def lines_of(folder: Path) -> list[dict]:
    path = folder / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def until_round(server: Machine, folder: Path, least: int) -> None:
    """Wait until so many rounds are done."""
    for _ in ticks(f"round {least} did not come"):
        if len(lines_of(folder)) >= least:
            return
        assert server.ended() is None, server.said


def clock(**shift: float) -> type[datetime]:
    """A clock that is off."""

    class Off(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(**shift)

    return Off
