"""What a hop costs with real clients: everything but training, from a request to its answer.

Eight clients in processes of their own on loopback, keys and TLS on, chains of four, a model of 0.8 million numbers
(3.2 MB): `fedrelay serve` and `fedrelay join` as users start them. Beside it, in the same run, an empty gRPC stream
with the same certificates that carries as many bytes there and back.

    python bench/remote.py --rounds 20
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CLIENTS = tuple(f"site{number}" for number in range(8))
NUMBERS = 800_000
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

ECHO = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import grpc
from fedrelay.remote import keys
from fedrelay.remote.frames import OPTIONS, Assembler, frames

folder = Path(sys.argv[1])

def echo(requests, context):
    assembler = Assembler(1 << 30)
    for frame in requests:
        message = assembler.add(frame)
        if message is not None:
            yield from frames(message)

server = grpc.server(ThreadPoolExecutor(4), options=OPTIONS)
handler = grpc.stream_stream_rpc_method_handler(echo)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Go": handler}),))
port = server.add_secure_port("127.0.0.1:0", keys.server_credentials(folder))
server.start()
print(port, flush=True)
server.wait_for_termination()
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=20)
    rounds: int = options.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="fedrelay-hops-") as name:
        folder = Path(name)
        command("keys", "make", folder / "keys", "--server", "127.0.0.1", "--clients", ",".join(CLIENTS)).wait()
        plain = sorted(echoes(folder / "keys", 30))
        hops = relayed(folder, rounds)
        # The first round builds networks and buffers at every client.
        later = [hop for hop in hops if hop["round"] > 1]
        beside = sorted(hop["seconds"] - hop["working"] for hop in later)
        print(f"{len(later)} hops of {later[0]['sent'] / 1e6:.2f} MB there, {later[0]['received'] / 1e6:.2f} MB back")
        for text, values in (("a hop beside training", beside), ("an empty gRPC stream", plain)):
            print(f"{text:<24} median {1e3 * statistics.median(values):6.1f} ms   {spread(values)}")
        working = sorted(hop["working"] for hop in later)
        print(f"{'training (one step)':<24} median {1e3 * statistics.median(working):6.1f} ms   {spread(working)}")


def spread(values: list[float]) -> str:
    return f"({1e3 * values[0]:.1f} to {1e3 * values[-1]:.1f})"


def command(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fedrelay.cli", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def relayed(folder: Path, rounds: int) -> list[dict[str, float]]:
    """What every hop of a run took."""
    (folder / "hops.toml").write_text(FILE.replace("ROUNDS", str(rounds)), encoding="utf-8")
    out = folder / "run"
    server = command(
        *("serve", folder / "hops.toml", "--keys", folder / "keys", "--listen", "127.0.0.1:0", "--out", out)
    )
    assert server.stderr is not None
    line = next(line for line in server.stderr if "listening on" in line)
    port = line.split(" for ")[0].rpartition(":")[2].strip()
    clients = []
    for name in CLIENTS:
        words = ("--keys", folder / "keys" / "clients" / name, "--home", folder / name, "--data", "experiment")
        clients.append(command("join", "--server", f"127.0.0.1:{port}", *words))
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


def echoes(folder: Path, count: int) -> Iterator[float]:
    """Seconds of round trips of as many bytes over a plain stream with the same keys."""
    import queue

    from fedrelay.remote import keys
    from fedrelay.remote.frames import Assembler, frames
    from fedrelay.remote.grpc_client import open_channel

    server = subprocess.Popen([sys.executable, "-c", ECHO, str(folder)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = int(server.stdout.readline())
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def pieces() -> Iterator[bytes]:
        while (message := outbox.get()) is not None:
            yield from frames(message)

    credentials, _ = keys.client_credentials(folder / "clients" / CLIENTS[0])
    channel = open_channel(f"127.0.0.1:{port}", credentials)
    try:
        answers, assembler = channel.stream_stream("/bench.Echo/Go")(pieces()), Assembler(1 << 30)
        for number in range(count + 3):
            began = time.perf_counter()
            outbox.put(bytes(4 * NUMBERS))
            for frame in answers:
                if assembler.add(frame) is not None:
                    break
            if number >= 3:
                yield time.perf_counter() - began
    finally:
        outbox.put(None)
        channel.close()
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
