"""What matrix multiplication at full speed would allow: one large product a "round".

Speeds are by the operations of plain convolution; who needs fewer can be above it.
"""

from __future__ import annotations

import sys

import torch
from gate import Gate, counted

SIDE = 2048


def main() -> None:
    threads = int(sys.argv[2])
    torch.set_num_threads(threads)
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)
    gate = Gate(version=torch.__version__, setting=counted(threads, "thread"), flops=2 * SIDE**3)
    while True:
        torch.mm(a, b, out=out)
        gate.tick()


if __name__ == "__main__":
    main()
