"""What a hop is made of, each alone: a gRPC stream with our certificates that carries any number of bytes there and
back, and what our own code does with a model before and after."""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch

from fedrelay.engines.guard import spoiled
from fedrelay.engines.remote.messages import Done, Request, answer_of
from fedrelay.engines.remote.trees import decode
from fedrelay.remote import keys
from fedrelay.remote.frames import Assembler, frames
from fedrelay.remote.grpc_client import open_channel
from fedrelay.visits import Sgd

WARM = 3
"""The first messages open the connection and its windows."""
ECHO = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import grpc
from fedrelay.remote import keys
from fedrelay.remote.frames import OPTIONS, Assembler, frames

def echo(requests, context):
    assembler = Assembler(1 << 30)
    for frame in requests:
        message = assembler.add(frame)
        if message is not None:
            yield from frames(message)

server = grpc.server(ThreadPoolExecutor(4), options=OPTIONS)
handler = grpc.stream_stream_rpc_method_handler(echo)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Go": handler}),))
port = server.add_secure_port(sys.argv[2] + ":0", keys.server_credentials(Path(sys.argv[1])))
server.start()
print(port, flush=True)
server.wait_for_termination()
"""


def echoes(folder: Path, client: str, size: int, *, count: int, listen: str, host: str) -> list[float]:
    """Seconds that messages of `size` bytes take there and back over a plain stream, sorted."""
    server = subprocess.Popen([sys.executable, "-c", ECHO, str(folder), listen], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = int(server.stdout.readline())
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def pieces() -> Iterator[bytes]:
        while (message := outbox.get()) is not None:
            yield from frames(message)

    credentials, _ = keys.client_credentials(folder / "clients" / client)
    channel, found = open_channel(f"{host}:{port}", credentials), []
    try:
        answers, assembler = channel.stream_stream("/bench.Echo/Go")(pieces()), Assembler(1 << 30)
        for _ in range(count + WARM):
            began = time.perf_counter()
            outbox.put(bytes(size))
            for frame in answers:
                if assembler.add(frame) is not None:
                    break
            found.append(time.perf_counter() - began)
    finally:
        outbox.put(None)
        channel.close()
        server.kill()
        server.wait()
    return sorted(found[WARM:])


def own_code(numbers: int, count: int = 30) -> dict[str, float]:
    """Seconds of our own code in one hop, by what it does: at the server and at the client together."""
    model = torch.randn(numbers, generator=torch.Generator().manual_seed(0)) * 0.01
    request = Request("t", "update", 1, 0, 0.0, model, {}, None, "n")
    done = Done("t", 8.0, model, 8, {"loss": 1.0}, {}, False, 0.0)
    there, back, work = request.encoded(), done.encoded(), Sgd()
    return {
        "writing messages": timed(request.encoded, count) + timed(done.encoded, count),
        "reading them": timed(lambda: decode(there), count) + timed(lambda: answer_of(bytes(back)), count),
        "looking whether the model is sound": timed(lambda: spoiled(work, model, model, numbers), count),
    }


def timed(action: Callable[[], object], count: int) -> float:
    """Seconds of processor time, the median of so many times."""
    found = []
    for _ in range(count):
        began = time.process_time()
        action()
        found.append(time.process_time() - began)
    return median(found)
