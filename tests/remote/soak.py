"""A run in which processes are killed again and again: what it ends with is the simulation's model, to the bit.

python tests/remote/soak.py --rounds 200 --page docs/deploy.md
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from machines import Machine, Site, ticks
from scenes import NAMES, written

from fedrelay import config
from fedrelay.cli.main import main as command
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.marks import filled

SPARED, SERVER = "west", "server"
"""This client is never killed, so that its memory and open files can be watched."""
GROWTH, MORE_FILES = 0.1, 3
"""How much the second half of a soak may have more than the first, of a process that lives on: a tenth of its memory,
and so many open files (a call that is being made anew has a few)."""
LEAST = 8
"""Looks at a process before halves of them say anything."""
ARROW = "→"


@dataclass
class Soaked:
    """What came of it."""

    same: bool
    drops: int
    kills: dict[str, int]
    seconds: float
    megabytes: dict[str, list[float]] = field(default_factory=lambda: {SPARED: [], SERVER: []})
    """Of the client that is never killed and of the server, over time."""
    files: dict[str, list[int]] = field(default_factory=lambda: {SPARED: [], SERVER: []})
    between: int = 0
    """Kills that came at a random moment, most of them in the middle of a visit."""

    def grown(self) -> list[str]:
        """What is not flat: of the client that is never killed, memory and open files of the second half beside the
        first; of the server, which is a new process after every kill, open files of all its lives."""
        found = []
        for what, values, limit in (
            ("MB", self.megabytes[SPARED], lambda most: most * (1 + GROWTH)),
            ("open files", self.files[SPARED], lambda most: most + MORE_FILES),
            ("open files of the server", self.files[SERVER], lambda most: most + len(NAMES) + MORE_FILES),
        ):
            early, late = values[: len(values) // 2], values[len(values) // 2 :]
            if len(values) >= LEAST and max(late) > limit(max(early)):
                found.append(f"{max(early):.0f} {what} became {max(late):.0f}")
        return found


def soak(folder: Path, rounds: int, *, every: int, seed: int = 0) -> Soaked:
    """Kill a client or the server whenever `every` more rounds are done, and start it again: each in turn, in an order
    that is drawn. Every other kill comes a random moment later, wherever its victim is then."""
    path = written(folder, "fedseq+scaffold", "groups = 2", rounds=rounds, checkpoint=5)
    killed = [*(name for name in NAMES if name != SPARED), SERVER]
    drawn = random.Random(seed)
    victims, began = cycle(drawn.sample(killed, len(killed))), time.monotonic()
    assert command(["keys", "make", str(folder / "keys"), "--server", "127.0.0.1", "--clients", ",".join(NAMES)]) == 0
    site, soaked = Site(folder), Soaked(False, -1, dict.fromkeys((*NAMES, SERVER), 0), 0.0)
    try:
        server = serving(site, path, "127.0.0.1:0")
        port = server.port
        clients = {name: joining(site, port, name) for name in NAMES}
        following, looked, usual = every, 0, 0.0
        for _ in ticks("the run did not end", patience=3600.0):
            if server.ended() is not None:
                break
            done = len(lines_of(folder / "run"))
            if done > looked:  # once a round
                looked = done
                for name, machine in ((SPARED, clients[SPARED]), (SERVER, server)):
                    watch(name, machine, soaked)
            if done < following:
                continue
            usual = usual or (time.monotonic() - began) / following
            if sum(soaked.kills.values()) % 2:  # not where a line of the record has just been written
                time.sleep(drawn.uniform(0.0, 2.0) * min(usual, 1.0))
                soaked.between += 1
            following = len(lines_of(folder / "run")) + every
            victim = next(victims)
            soaked.kills[victim] += 1
            if victim == SERVER:
                server.kill()
                server.wait()
                server = serving(site, path, f"127.0.0.1:{port}")
            else:
                clients[victim].kill()
                clients[victim].wait()
                clients[victim] = joining(site, port, victim)
        assert server.wait() == 0, server.said
        for client in clients.values():
            end_of(client)
    finally:
        site.close()
    recorder = config.build(config.read(path, ["engine.name=inline"])).record(folder / "simulated")
    list(recorder.run())
    found = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    soaked.same = found["params_sha256"] == recorder.summary().params_sha256
    soaked.drops, soaked.seconds = found["drops"], time.monotonic() - began
    return soaked


def end_of(client: Machine, patience: float = 20.0) -> None:
    """A client ends with the run; one that was away at that moment looks for the server for ever, and is ended."""
    until = time.monotonic() + patience
    while client.ended() is None and time.monotonic() < until:
        time.sleep(0.05)
    if client.ended() is None:
        assert client.said.rstrip().endswith("trying again"), client.said
        client.kill()
    else:
        assert client.ended() == 0, client.said


def serving(site: Site, path: Path, listen: str) -> Machine:
    keys, out = site.folder / "keys", site.folder / "run"
    return site.start("serve", path, "--keys", keys, "--out", out, "--resume", "--grace", "600", "--listen", listen)


def joining(site: Site, port: int, name: str) -> Machine:
    words = ("--keys", site.folder / "keys" / "clients" / name, "--home", site.folder / f"home-{name}")
    return site.start("join", "--server", f"127.0.0.1:{port}", "--data", "experiment", *words, name=name)


def lines_of(folder: Path) -> list[str]:
    path = folder / "rounds.jsonl"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def watch(name: str, machine: Machine, soaked: Soaked) -> None:
    """Note the memory and the open files of a process, where the system tells."""
    place = Path(f"/proc/{machine.pid}")
    with suppress(OSError):  # it may have ended just now
        status = (place / "status").read_text(encoding="utf-8")
        for line in status.splitlines():
            if line.startswith("VmRSS"):  # one that has ended, and is not waited for yet, has no memory
                soaked.megabytes[name].append(int(line.split()[1]) / 1024)
                soaked.files[name].append(len(list((place / "fd").iterdir())))


def table(rounds: int, found: Soaked) -> str:
    """What came of it, for the page."""
    clients = sum(count for name, count in found.kills.items() if name != SERVER)
    rows = [
        ["rounds", f"{rounds}, in {found.seconds / 60:.0f} minutes"],
        [
            "kills (SIGKILL)",
            f"{clients} of clients, {found.kills[SERVER]} of the server; {found.between} of them at a random moment",
        ],
        ["clients dropped from a round", f"{found.drops}"],
        ["the model", "the simulation's, to the bit" if found.same else "ANOTHER THAN THE SIMULATION'S"],
        [
            f"a client that is never killed: memory, first half {ARROW} second half",
            halves(found.megabytes[SPARED], " MB"),
        ],
        [f"the same: open files, first half {ARROW} second half", halves(found.files[SPARED])],
        ["the server, over all its lives: memory, the most", f"{max(found.megabytes[SERVER], default=0):.0f} MB"],
        ["the same: open files, the most", f"{max(found.files[SERVER], default=0)}"],
    ]
    return markdown_table(["", ""], rows)


def halves(values: Sequence[float], unit: str = "") -> str:
    """The most of the first half, and of the second: what grows shows."""
    middle = len(values) // 2
    return (
        f"at most {max(values[:middle]):.0f}{unit} {ARROW} {max(values[middle:]):.0f}{unit}" if middle else "not known"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=200)
    options.add_argument("--every", type=int, default=3)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--page", type=Path, help="the document that gets the table")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedrelay-soak-") as folder:
        found = soak(Path(folder), asked.rounds, every=asked.every, seed=asked.seed)
    made = table(asked.rounds, found)
    print(made)
    if asked.page is not None:
        asked.page.write_text(filled(asked.page.read_text(encoding="utf-8"), {"soak": made}), encoding="utf-8")
    for text in found.grown():
        print(f"NOT FLAT: {text}", file=sys.stderr)
    sys.exit(0 if found.same and not found.drops and not found.grown() else 1)


if __name__ == "__main__":
    main()
