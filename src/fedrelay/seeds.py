"""The only source of randomness: generators that derive from a seed and labels.

The same (seed, labels) always give the same stream, so results depend on neither engine, worker count nor order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["derive", "rng", "torch_generator", "torch_seed"]

MOST = 2**63 - 1
"""What torch's generators begin with is not larger."""


def derive(seed: int, *labels: str | int) -> int:
    """A 64-bit number for these labels, the same on every machine and Python."""
    text = "/".join(map(str, (seed, *labels)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def rng(seed: int, *labels: str | int) -> np.random.Generator:
    """A NumPy generator for these labels."""
    return np.random.Generator(np.random.PCG64(derive(seed, *labels)))


def torch_generator(number: int) -> torch.Generator:
    """One that draws what torch's global generator draws inside `torch_seed`, for labels of which this is derived."""
    return torch.Generator().manual_seed(number & MOST)


@contextmanager
def torch_seed(seed: int, *labels: str | int, device: torch.device | None = None) -> Iterator[None]:
    """Everything inside that draws from torch's global generator (dropout, initial weights) draws from these labels; so
    does what draws from the generator of this device."""
    number = derive(seed, *labels) & MOST
    there = None if device is None or device.type == "cpu" else torch.get_device_module(device)
    before, before_there = torch.get_rng_state(), None if there is None else there.get_rng_state(device)
    torch.default_generator.manual_seed(number)
    if there is not None and device is not None:
        several = getattr(there, "default_generators", None)
        (there if several is None else several[device.index or 0]).manual_seed(number)
    try:
        yield
    finally:
        torch.set_rng_state(before)
        if there is not None:
            there.set_rng_state(before_there, device)
