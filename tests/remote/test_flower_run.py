"""A Flower federation as users start one: a SuperLink, two SuperNodes and `flwr run`, each a process of its own, with
TLS, keys of nodes and of clients, and tables that never leave their clients."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import machines
import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from needs import posix
from patients import patients

from fedrelay import config
from fedrelay.cli.main import main

pytestmark = posix

NAMES = ("north", "south")
FILE = """
rounds = 1
seed = 1
[data]
name = "table"
path = "TABLES"
label = "outcome"
test = "TEST"
[model]
name = "mlp"
hidden = [16]
[algorithm]
name = "fedseq+scaffold"
groups = 1
[local]
lr = 0.1
batch = 16
"""


class Federation:
    """Flower's own commands, none of which outlives the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started = folder, list[subprocess.Popen[bytes]]()
        self.port, *self.ports = free_ports(3)
        (folder / "flower").mkdir()
        self.keys = folder / "keys"
        assert main(["keys", "make", str(self.keys), "--server", "127.0.0.1", "--clients", ",".join(NAMES)]) == 0
        connection = f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{self.keys / "authority.pem"}"\n'
        text = f'[superlink]\ndefault = "here"\n[superlink.here]\n{connection}'
        (folder / "flower" / "config.toml").write_text(text, encoding="utf-8")
        ours = {
            "FLWR_HOME": str(folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        self.environment = {**os.environ, **ours}

    def start(self, name: str, *words: str | Path) -> subprocess.Popen[bytes]:
        program = Path(sys.executable).with_name(str(words[0]))
        with (self.folder / f"{name}.log").open("wb") as log:
            made = subprocess.Popen(
                [program, *words[1:]], cwd=self.folder, env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        self.started.append(made)
        return made

    def superlink(self) -> None:
        place = ("--host", "127.0.0.1", "--port", str(self.port), "--enable-supernode-auth")
        pair = ("--ssl-certfile", self.keys / "server.pem", "--ssl-keyfile", self.keys / "server.key")
        words = (*place, *pair, "--ssl-ca-certfile", self.keys / "authority.pem")
        self.start("superlink", "flower-superlink", *words, "--disable-runtime-dependency-installation")

    def supernode(self, name: str, port: int) -> subprocess.Popen[bytes]:
        """A node with a key of its own, as `ssh-keygen -t ecdsa -b 384` makes them, which the SuperLink is told of."""
        key, path = ec.generate_private_key(ec.SECP384R1()), self.folder / f"node-{name}"
        private = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        path.write_bytes(key.private_bytes(*private))
        public = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(*public))
        words = ("flwr", "supernode", "register", path.with_suffix(".pub"), "here", "--name", name)
        assert self.start(f"register-{name}", *words).wait(timeout=120) == 0, self.said
        told = f'name="{name}" home="{self.folder / name}" data="{self.folder / "tables" / name}.csv"'
        told += f' keys="{self.keys / "clients" / name}"'
        words = ("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", self.keys / "authority.pem")
        more = ("--auth-supernode-private-key", path, "--port", str(port), "--node-config", told)
        return self.start(name, "flower-supernode", *words, *more)

    @property
    def said(self) -> str:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in self.folder.glob("*.log"))

    def close(self) -> None:
        for process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path)
    try:
        yield made
    finally:
        made.close()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_flwr_run_ends_with_the_model_of_the_simulation_to_the_bit(federation, tmp_path):
    rng, tables, test = np.random.default_rng(3), tmp_path / "tables", tmp_path / "test.csv"
    tables.mkdir()
    for place, name in enumerate(NAMES):
        (tables / f"{name}.csv").write_text(patients(40 + 10 * place, older=4.0 * place, rng=rng), encoding="utf-8")
    test.write_text(patients(60, older=2.0, rng=rng), encoding="utf-8")
    text = FILE.replace("TABLES", str(tables)).replace("TEST", str(test))
    (tmp_path / "e.toml").write_text(text, encoding="utf-8")
    out, app = tmp_path / "run", tmp_path / "app"
    words = ["--clients", ",".join(NAMES), "--out", str(out), "--own-data", "--test", str(test)]
    assert main(["flower", "init", str(tmp_path / "e.toml"), str(app), *words]) == 0
    federation.superlink()
    recorder = config.build({**config.read(tmp_path / "e.toml"), "engine": {"name": "inline"}}).record(tmp_path / "sim")
    list(recorder.run())
    for _ in machines.ticks(f"there is no SuperLink: {federation.said}"):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", federation.port)) == 0:
                break
    nodes = [federation.supernode(name, port) for name, port in zip(NAMES, federation.ports, strict=True)]
    words = ("flwr", "run", app, "here", "--run-config", f'keys="{federation.keys}"')
    assert federation.start("flwr", *words).wait(timeout=120) == 0, federation.said
    for _ in machines.ticks(f"the run did not end: {federation.said}"):
        if (out / "summary.json").exists():
            break
        assert not any(node.poll() for node in nodes), federation.said
    found = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert found["params_sha256"] == recorder.summary().params_sha256
    assert found["drops"] == 0
    hops = [json.loads(line) for line in (out / "hops.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted(hop["name"] for hop in hops) == list(NAMES)
    assert max(hop["working"] for hop in hops) > 0
    told = [json.loads((tmp_path / name / "sent.jsonl").read_text(encoding="utf-8").splitlines()[0]) for name in NAMES]
    assert [one["told"]["rows"] for one in told] == [40, 50]
    homes = [tmp_path / name for name in NAMES]
    assert all(path.stat().st_mode & 0o077 == 0 for home in homes for path in home.rglob("*"))
    processes = [json.loads((home / "process.json").read_text(encoding="utf-8"))["pid"] for home in homes]
    assert all(map(is_there, processes))
    for node in nodes:
        node.send_signal(signal.SIGTERM)
        node.wait(timeout=60)
    for _ in machines.ticks("a client's process outlives its SuperNode"):
        if not any(map(is_there, processes)):
            break
