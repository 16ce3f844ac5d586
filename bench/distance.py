"""A network at a distance, on one machine: what is sent to FAR comes back to NEAR, half a round trip later.

A TUN device hands every packet to this process, which swaps its two addresses (so its checksums stay right), waits, and
hands it back. So TCP has its windows, acknowledgements and slow starts as over any line. Linux only; it needs a network
namespace of its own, which `unshare -Urn` gives to everybody who may open /dev/net/tun.

    unshare -Urn python bench/distance.py 40
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

NEAR, FAR = "10.97.0.1", "10.97.0.2"
SET_NAME, TUN, NO_HEADER = 0x400454CA, 0x0001, 0x1000
"""What the kernel calls them: TUNSETIFF, IFF_TUN, IFF_NO_PI."""
AT_ONCE = 32
"""Packets that are read before one is handed back."""
QUEUE = "4000"
"""Packets that the device holds: as many as are sent before one is read."""


def opened() -> int:
    """The device, with the way to FAR through it."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, SET_NAME, struct.pack("16sH", b"far", TUN | NO_HEADER))
    for words in (
        ("link", "set", "lo", "up"),
        ("addr", "add", f"{NEAR}/24", "dev", "far"),
        ("link", "set", "far", "up", "txqueuelen", QUEUE),
    ):
        subprocess.run(["ip", *words], check=True)
    return device


def mirror(device: int, delay: float) -> None:
    """Hand every packet back after so many seconds, with its addresses swapped."""
    waiting: deque[tuple[float, bytes]] = deque()
    while True:
        rest = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
        select.select([device], [], [], rest)
        waiting.extend((time.monotonic() + delay, packet) for packet in arrived(device))
        while waiting and waiting[0][0] <= time.monotonic():
            os.write(device, waiting.popleft()[1])


def arrived(device: int) -> Iterator[bytes]:
    """The packets that are there, as they go back; but not for ever, for others wait to be handed back."""
    with suppress(BlockingIOError):
        for _ in range(AT_ONCE):
            packet = os.read(device, 1 << 16)
            if packet[0] >> 4 == 4:  # the kernel asks for neighbours by version 6, too
                yield packet[:12] + packet[16:20] + packet[12:16] + packet[20:]


def main() -> None:
    device = opened()
    print("ready", flush=True)
    mirror(device, float(sys.argv[1]) / 2000)


if __name__ == "__main__":
    main()
