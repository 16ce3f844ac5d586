"""What a hop takes over Flower: an empty Flower app and ours in turn, on one SuperLink with two SuperNodes.

Both carry as many bytes, one message at a time, with the same pauses; Flower's settings are its defaults, but that it
installs nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrelay.cli.main import main

BIN = Path(sys.executable).parent
ECHO = Path(__file__).with_name("flower-echo")
PAUSED = "paused.py"
NAMES = ("north", "south")
PATIENCE = 900.0


def flower_hops(folder: Path, experiment: str, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of our hops beside training, and of those of the empty app before and after."""
    path, app, out = folder / "flower.toml", folder / "app", folder / "flower-run"
    path.write_text(experiment, encoding="utf-8")
    words = ["--clients", ",".join(NAMES), "--out", str(out), "--set", "data.clients=2", "--set", "algorithm.groups=1"]
    if main(["flower", "init", str(path), str(app), *words]):
        raise SystemExit("the app could not be written")
    shutil.copy(ECHO / PAUSED, app)
    project = (app / "pyproject.toml").read_text(encoding="utf-8")
    project = project.replace("fedrelay.remote.flower.server:app", f"{Path(PAUSED).stem}:app")
    (app / "pyproject.toml").write_text(project, encoding="utf-8")
    with federation(folder) as run:
        empty = echoed(run, folder / "before.json", rounds)
        run(app)
        wait_for(out / "summary.json")
        lines = (out / "hops.jsonl").read_text(encoding="utf-8").splitlines()
        hops = [json.loads(line) for line in lines]
        empty += echoed(run, folder / "after.json", rounds)
    return sorted(hop["seconds"] - hop["working"] for hop in hops if hop["round"] > 1), sorted(empty)


def echoed(run, out: Path, rounds: int) -> list[float]:
    """Hops of the empty app; the first two start what nobody waits for later."""
    run(ECHO, "--run-config", f'out="{out}" hops={2 + 2 * rounds}')
    wait_for(out)
    return json.loads(out.read_text(encoding="utf-8"))[2:]


@contextmanager
def federation(folder: Path) -> Iterator:
    """A SuperLink with two SuperNodes, and how an app is run on it."""
    port, *ports = free_ports(1 + len(NAMES))
    home = folder / "flower"
    home.mkdir()
    connection = f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (home / "config.toml").write_text(connection, encoding="utf-8")
    ours = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    environment = {**os.environ, **ours, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    quiet = {"env": environment, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = ("--insecure", "--disable-runtime-dependency-installation", "--host", "127.0.0.1", "--port", str(port))
    started = [subprocess.Popen([BIN / "flower-superlink", *words], **quiet)]
    for name, own in zip(NAMES, ports, strict=True):
        told = f'name="{name}" home="{folder / name}"'
        words = ("--insecure", "--superlink", f"127.0.0.1:{port}", "--port", str(own), "--node-config", told)
        started.append(subprocess.Popen([BIN / "flower-supernode", *words], **quiet))
    try:
        time.sleep(15)  # until both nodes are there
        yield lambda app, *more: subprocess.run([BIN / "flwr", "run", app, "here", *more], check=True, **quiet)
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(path: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > until:
            raise SystemExit(f"{path} did not come")
        time.sleep(0.2)
