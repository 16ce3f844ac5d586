"""The walk-through of docs/deploy.md, as it is on the page, between machines that are network namespaces.

Every machine has a network, a folder and a list of hosts of its own, and a cable to the relay; all of them are made by
`unshare` and `ip`, which need no privileges where user namespaces are allowed. Blocks ```sh on MACHINE``` run in the
order of the page; one that serves or joins goes on while the next ones run.

python tests/remote/walkthrough.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from patients import patients

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "deploy.md"
BLOCK = re.compile(r"^```(sh on|toml) (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECTION = re.compile(r"^## Two machines.*?(?=^## )", re.DOTALL | re.MULTILINE)
ADDRESSES = {"relay": "192.0.2.10", "north": "192.0.2.11", "south": "192.0.2.12"}
HOSTS = "127.0.0.1 localhost\n192.0.2.10 relay.example.org\n"
STAYS = re.compile(r"^fedrelay (serve(?!.*--dry-run)|join) ", re.MULTILINE)
PATIENCE = 600
ALONE = ("unshare", "--user", "--map-root-user", "--net", "--mount")


@dataclass
class Block:
    """A command under way, with all that it has printed so far."""

    machine: str
    text: str
    process: subprocess.Popen[bytes]
    log: Path

    def end(self) -> None:
        code = self.process.wait(PATIENCE)
        if code:
            raise AssertionError(f"on {self.machine} this ended with {code}:\n{self.text}\n{self.said}")

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")


@dataclass
class Machines:
    """The machines, each a process that holds its namespaces open."""

    folder: Path
    holders: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def build(self) -> None:
        """Machines, and a cable from the relay to each of the others."""
        hosts = self.folder / "hosts"
        hosts.write_text(HOSTS, encoding="utf-8")
        for name in ADDRESSES:
            (self.folder / name).mkdir()
            inside = f"mount --bind {hosts} /etc/hosts && ip link set lo up && echo ready && exec sleep infinity"
            holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", inside], stdout=subprocess.PIPE)
            self.holders[name] = holder
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n", f"{name} could not be made"
        for name in ADDRESSES:
            if name != "relay":
                near, far = f"to-{name}", f"at-{name}"
                ran(["ip", "link", "add", near, "type", "veth", "peer", "name", far])
                self._plug("relay", near, name)
                self._plug(name, far, "relay")

    def _plug(self, name: str, end: str, other: str) -> None:
        """Put an end of a cable into a machine."""
        ran(["ip", "link", "set", end, "netns", str(self.holders[name].pid)])
        ran([*self.on(name), "ip", "addr", "add", ADDRESSES[name], "peer", ADDRESSES[other], "dev", end])
        ran([*self.on(name), "ip", "link", "set", end, "up"])

    def on(self, name: str) -> list[str]:
        return ["nsenter", "--net", "--mount", f"--target={self.holders[name].pid}", f"--wd={self.folder / name}"]

    def run(self, name: str, text: str) -> None:
        """Run a block; what goes on before it on the same machine has to end first."""
        for block in self.blocks:
            if block.machine == name:
                block.end()
        log = self.folder / f"{len(self.blocks)}-{name}.log"
        with log.open("wb") as said:
            words = [*self.on(name), "sh", "-e", "-c", text]
            process = subprocess.Popen(words, stdout=said, stderr=subprocess.STDOUT, env=environment())
        self.blocks.append(Block(name, text, process, log))
        if not STAYS.search(text):
            self.blocks[-1].end()
        self._carry()

    def _carry(self) -> None:
        """What the relay has packed for a machine goes there, as the page asks its readers to do."""
        for name in ADDRESSES:
            packed = self.folder / "relay" / f"{name}.tar"
            if packed.exists():
                packed.rename(self.folder / name / packed.name)

    def close(self) -> None:
        for process in (*(block.process for block in self.blocks), *self.holders.values()):
            if process.poll() is None:
                process.kill()
            process.wait()


def environment() -> Mapping[str, str]:
    """So that `fedrelay` is the one under test."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def ran(words: list[str]) -> None:
    subprocess.run(words, check=True)


def equip(folder: Path) -> None:
    """The tables that the page takes for granted."""
    rng = np.random.default_rng(3)
    for number, name in enumerate(ADDRESSES):
        path = folder / name / ("test.csv" if name == "relay" else "patients.csv")
        path.write_text(patients(60, older=4.0 * number, rng=rng), encoding="utf-8")


def follow(folder: Path) -> list[Block]:
    """Do what the page says."""
    section = SECTION.search(PAGE.read_text(encoding="utf-8"))
    assert section, f"{PAGE} has no section on two machines"
    machines = Machines(folder)
    try:
        machines.build()
        equip(folder)
        for kind, name, text in BLOCK.findall(section[0]):
            if kind == "toml":
                (folder / "relay" / name).write_text(text, encoding="utf-8")
            else:
                machines.run(name, text)
        for block in machines.blocks:
            block.end()
    finally:
        machines.close()
    return machines.blocks


def lacks() -> str:
    """Why machines cannot be made here; nothing if they can."""
    try:
        # A bind mount and a cable: what all the rest is made of.
        text = "mount --bind /etc/hosts /etc/hosts && ip link add near type veth peer name far"
        tried = subprocess.run([*ALONE, "sh", "-c", text], capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return tried.stderr.strip() if tried.returncode else ""


def alone(folder: Path) -> subprocess.CompletedProcess[str]:
    """Follow the page from inside a namespace, with this folder for the machines'."""
    words = [*ALONE, sys.executable, __file__, "--in", str(folder)]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())


def main() -> None:
    if sys.argv[1:2] == ["--in"]:
        for block in follow(Path(sys.argv[2])):
            print(f"--- on {block.machine}\n{block.text}\n{block.said}", flush=True)
        return
    if reason := lacks():
        sys.exit(f"network namespaces cannot be made here: {reason}")
    with tempfile.TemporaryDirectory(prefix="fedrelay-walk-") as folder:
        done = alone(Path(folder))
    print(done.stdout)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
