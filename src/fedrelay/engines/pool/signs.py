"""Signs of life: a few numbers in shared memory that a worker writes and its parent reads whenever it likes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrelay.engines.packing import SMALLEST_BLOCK, Block

BEAT = 1.0
"""Seconds between two signs of a worker that lives."""

NOWHERE = -1


class Signs:
    """That a worker lives, which chain it runs, and which client it is at."""

    def __init__(self, block: Block) -> None:
        self.path = block.path
        self._numbers = np.asarray(block.bytes)[:24].view(np.int64)  # a plain array is quicker than a mapped one

    @classmethod
    def make(cls, folder: Path, worker: int) -> Signs:
        """Those of a new worker."""
        return cls(Block.make(folder / f"signs-{worker}-0", 0))

    @classmethod
    def at(cls, path: str) -> Signs:
        """The same ones, in the worker."""
        return cls(Block(Path(path), SMALLEST_BLOCK))

    @property
    def beats(self) -> int:
        """How often it has said that it lives."""
        return int(self._numbers[0])

    def beat(self) -> None:
        self._numbers[0] += 1

    @property
    def place(self) -> tuple[int | None, int | None]:
        """Chain and client, by number; None: none yet, or several at once."""
        chain, client = (int(number) for number in self._numbers[1:])
        return (None if chain == NOWHERE else chain), (None if client == NOWHERE else client)

    def run(self, chain: int) -> None:
        """A chain begins, or a stack or a job without one (`NOWHERE`)."""
        self._numbers[1] = chain
        self._numbers[2] = NOWHERE

    def visit(self, client: int) -> None:
        self._numbers[2] = client
