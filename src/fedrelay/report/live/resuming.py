"""Going on with a run that was stopped: `fedrelay run … --resume` in a process of its own, with its words in a file."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.runs.folder import CONFIG
from fedrelay.runs.following import FINISHED, GOING, Glance
from fedrelay.system import files

LOG = "resumed.log"
LONGEST = 20_000
"""Bytes of the log that are shown: its end."""


@dataclass(frozen=True)
class Resumed:
    """A process that goes on with a run. It does not end with us: who closes the page has not stopped the run."""

    process: subprocess.Popen[bytes]
    log: Path

    def told(self) -> dict[str, Any]:
        """Whether it still runs, how it ended, and what it has said."""
        code = self.process.poll()
        return {"going": code is None, "code": code, "log": self._said()}

    def _said(self) -> str:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - LONGEST))
                return file.read().decode(errors="replace")
        except OSError:
            return ""


def resume(glance: Glance, data_dir: Path | None = None) -> Resumed:
    """Go on with this run from its own configuration; one that goes on, has ended or is not ours is refused."""
    folder, config = glance.run.folder, glance.run.config
    if glance.status in GOING:
        raise BadInput(f"{folder} goes on already")
    if glance.status == FINISHED:
        raise BadInput(
            f"{folder} has done all its rounds: `fedrelay run` with more rounds and --resume goes on with it"
        )
    engine = config.get("engine")
    if isinstance(engine, dict) and engine.get("name") == "remote":
        raise BadInput(f"{folder} is a run with real clients: `fedrelay serve … --resume` goes on with it")
    command = [sys.executable, "-m", "fedrelay.cli", "run", str(folder / CONFIG), "--out", str(folder), "--resume"]
    command += [] if data_dir is None else ["--data-dir", str(data_dir)]
    path = folder / LOG
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | files.NO_LINKS, files.PRIVATE)
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}): the run was not begun") from None
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    finally:
        os.close(log)
    return Resumed(process, path)
