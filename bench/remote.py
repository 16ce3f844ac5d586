"""What a hop costs with real clients: everything but training, from a request to its answer, and what it is made of.

Eight clients in processes of their own on loopback, keys and TLS on, chains of four, a model of 0.8 million numbers
(3.2 MB): `fedrelay serve` and `fedrelay join` as users start them. Beside it, in the same run, an empty gRPC stream
with the same certificates that carries one byte, and as many as a hop, there and back.

    python bench/remote.py --rounds 20 --page docs/deploy.md
    python bench/remote.py --rounds 10 --delay 40      # as at a distance of 40 ms there and back (Linux)
    python bench/remote.py --flower                    # also over Flower, beside an empty Flower app (minutes)
    python bench/remote.py --flower only               # over Flower alone
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import distance
from flower_hops import flower_hops
from stream import echoes, own_code

from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.marks import filled

INSIDE = "FEDRELAY_AT_A_DISTANCE"
"""Set where the network is our own."""
CLIENTS = tuple(f"site{number}" for number in range(8))
FLOWER_ROUNDS = 10
"""Rounds of two hops each over Flower, some seconds a hop."""
ALSO, ONLY = "also", "only"
FILE = """
rounds = ROUNDS
seed = 1
checkpoint = 1000
[data]
name = "digits"
clients = 8
[model]
name = "mlp"
hidden = [10600]
[algorithm]
name = "fedseq"
groups = 2
[local]
steps = 1
batch = 8
lr = 0.01
[evaluate]
every = 1000
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--delay", type=float, default=0.0, help="milliseconds there and back; 0: loopback")
    beside = "also over Flower, beside an empty Flower app; `only`: over nothing else"
    options.add_argument("--flower", nargs="?", const=ALSO, choices=(ALSO, ONLY), help=beside)
    options.add_argument("--flower-rounds", type=int, default=FLOWER_ROUNDS, help="of two hops each")
    options.add_argument("--page", type=Path, help="the document that gets the table")
    asked = options.parse_args()
    if asked.delay and INSIDE not in os.environ:  # a network of our own, in which nobody else is delayed
        os.execvpe("unshare", ["unshare", "-Urn", sys.executable, *sys.argv], os.environ | {INSIDE: "1"})
    with tempfile.TemporaryDirectory(prefix="fedrelay-hops-") as name, line(asked.delay) as ends:
        place, found = f"hops at {asked.delay:g} ms" if asked.delay else "hops", dict[str, str]()
        if asked.flower != ONLY:
            found[place] = measured(Path(name), asked.rounds, ends)
        if asked.flower:
            found["hops over Flower"] = over_flower(Path(name), asked.flower_rounds)
    print(*found.values(), sep="\n\n")
    if asked.page is not None:
        asked.page.write_text(filled(asked.page.read_text(encoding="utf-8"), found), encoding="utf-8")


@dataclass(frozen=True)
class Ends:
    """Where a server listens, and where clients find it."""

    listen: str = "127.0.0.1"
    host: str = "127.0.0.1"


@contextmanager
def line(delay: float) -> Iterator[Ends]:
    """Loopback, or a line that is so many milliseconds long, there and back."""
    if not delay:
        yield Ends()
        return
    mirror = subprocess.Popen([sys.executable, distance.__file__, str(delay)], stdout=subprocess.PIPE, text=True)
    assert mirror.stdout is not None
    try:
        mirror.stdout.readline()
        yield Ends(distance.NEAR, distance.FAR)
    finally:
        mirror.kill()
        mirror.wait()


def measured(folder: Path, rounds: int, ends: Ends) -> str:
    """What hops take, and what they are made of, as a table."""
    before = os.getloadavg()[0]
    command("keys", "make", folder / "keys", "--server", ends.host, "--clients", ",".join(CLIENTS)).wait()
    hops = [hop for hop in relayed(folder, rounds, ends) if hop["round"] > 1]  # the first builds networks and buffers
    size = int(median(hop["sent"] for hop in hops))

    def stream(bytes_: int) -> list[float]:
        return echoes(folder / "keys", CLIENTS[0], bytes_, count=30, listen=ends.listen, host=ends.host)

    found = parts(hops, stream(1), stream(size), own_code(size // 4))
    rows = [[text, f"{1e3 * value:.1f}", spread(values)] for text, (value, values) in found.items()]
    about = (
        f"{len(hops)} hops of {size / 1e6:.2f} MB there and as much back, {len(CLIENTS)} clients in two chains, on "
        f"{os.cpu_count()} cores with a load of {before:.1f} before the run."
    )
    return markdown_table(["", "median, ms", "from, to"], rows) + "\n\n" + about


def over_flower(folder: Path, rounds: int) -> str:
    """What hops take over Flower, ours and those of an empty app, as a table."""
    before = os.getloadavg()[0]
    ours, empty = flower_hops(folder, FILE.replace("ROUNDS", str(1 + rounds)), rounds)
    found = {"**a hop over Flower, beside training**": ours, "a hop of an empty Flower app": empty}
    rows = [[text, f"{1e3 * mean(values):.0f}", spread(values)] for text, values in found.items()]
    about = (
        f"{len(ours)} hops of ours, {len(empty)} of the empty app, half of them before and half after, two SuperNodes, "
        f"a load of {before:.1f} before the run. Ours take {mean(ours) / mean(empty):.2f} times as long."
    )
    return markdown_table(["", "mean, ms", "from, to"], rows) + "\n\n" + about


def parts(
    hops: Sequence[Mapping[str, float]], wake: Sequence[float], stream: Sequence[float], own: Mapping[str, float]
) -> dict[str, tuple[float, Sequence[float]]]:
    """Rows of the table: a figure in seconds, and all that it is the median of. Parts are differences of medians."""
    beside = sorted(hop["seconds"] - hop["working"] for hop in hops)
    working = sorted(hop["working"] for hop in hops)
    ours = sum(own.values())
    return {
        "training: one step of 8 examples": (median(working), working),
        "**a hop beside training**": (median(beside), beside),
        "an empty gRPC stream of as many bytes": (median(stream), stream),
        "of a hop: wake-ups and the way (a stream of one byte)": (median(wake), wake),
        "of a hop: transfer (that stream, without the wake-ups)": (median(stream) - median(wake), ()),
        f"of a hop: our own code ({', '.join(f'{name} {1e3 * value:.1f}' for name, value in own.items())})": (ours, ()),
        "of a hop: the rest (two chains at once, from thread to thread, waiting for a core)": (
            median(beside) - median(stream) - ours,
            (),
        ),
    }


def spread(values: Sequence[float]) -> str:
    return f"{1e3 * values[0]:.1f}, {1e3 * values[-1]:.1f}" if values else ""


def command(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fedrelay.cli", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def relayed(folder: Path, rounds: int, ends: Ends) -> list[dict[str, float]]:
    """What every hop of a run took."""
    (folder / "hops.toml").write_text(FILE.replace("ROUNDS", str(rounds)), encoding="utf-8")
    out = folder / "run"
    server = command(
        *("serve", folder / "hops.toml", "--keys", folder / "keys", "--listen", f"{ends.listen}:0", "--out", out)
    )
    assert server.stderr is not None
    said = next(text for text in server.stderr if "listening on" in text)
    port = said.split(" for ")[0].rpartition(":")[2].strip()
    clients = []
    for name in CLIENTS:
        words = ("--keys", folder / "keys" / "clients" / name, "--home", folder / name, "--data", "experiment")
        clients.append(command("join", "--server", f"{ends.host}:{port}", *words))
    try:
        _, said = server.communicate(timeout=600)
        if server.returncode:
            raise SystemExit(said)
        for client in clients:
            client.communicate(timeout=60)
    finally:
        for process in (server, *clients):
            if process.poll() is None:
                process.kill()
    return [json.loads(text) for text in (out / "hops.jsonl").read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
