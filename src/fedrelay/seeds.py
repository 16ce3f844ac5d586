"""The only source of randomness: generators that derive from a seed and labels.

The same (seed, labels) always give the same stream, so results depend on neither engine, worker count nor order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["derive", "rng", "torch_seed"]


def derive(seed: int, *labels: str | int) -> int:
    """A 64-bit number for these labels, the same on every machine and Python."""
    text = "/".join(str(part) for part in (seed, *labels))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def rng(seed: int, *labels: str | int) -> np.random.Generator:
    """A NumPy generator for these labels."""
    return np.random.Generator(np.random.PCG64(derive(seed, *labels)))


@contextmanager
def torch_seed(seed: int, *labels: str | int) -> Iterator[None]:
    """Everything inside that draws from torch's global generator (dropout, initial weights) draws from these labels."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(derive(seed, *labels) & (2**63 - 1))
    try:
        yield
    finally:
        torch.set_rng_state(before)
