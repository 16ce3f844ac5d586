"""The workloads, and the same numbers for everybody. Needs only NumPy, so that every contender can import it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Workload:
    """Clients of equal size that train `model` with plain SGD; `chain` clients in sequence (FedSeq) count as one."""

    name: str
    about: str
    model: str
    shape: tuple[int, ...]
    clients: int
    size: int
    per_round: int
    batch: int
    epochs: int = 1
    chain: int = 1
    multiplications: tuple[int, ...] = ()
    """Multiply-adds of one example forward, layer by layer; the first layer needs no gradient of its input."""
    classes: int = 10
    text: bool = False
    """Whether inputs are characters, as many different ones as there are classes."""

    @property
    def examples(self) -> int:
        """Processed in a round."""
        return self.per_round * self.chain * self.size * self.epochs

    @property
    def flops(self) -> int:
        """Of one example, forward and backward."""
        first, *rest = self.multiplications
        return 2 * (2 * first + 3 * sum(rest))

    def data(self) -> tuple[NDArray[np.float32] | NDArray[np.int64], NDArray[np.int64]]:
        """Unit noise, or characters drawn evenly; images are (n, height, width, channels)."""
        rng = np.random.default_rng(0)
        count = self.clients * self.size
        if self.text:
            return rng.integers(0, self.classes, (count, *self.shape)), rng.integers(0, self.classes, count)
        stored = (*self.shape[1:], self.shape[0]) if len(self.shape) == 3 else self.shape
        return rng.standard_normal((count, *stored), dtype=np.float32), rng.integers(0, self.classes, count)


LENET = (28 * 28 * 64 * 75, 10 * 10 * 64 * 1600, 1600 * 384, 384 * 192, 192 * 10)
IMAGE = (3, 32, 32)
LETTERS, LENGTH = 80, 80
"""LEAF's Shakespeare: so many different characters, so many of them in a sequence."""
LSTM = (0, LENGTH * 400 * (8 + 100), LENGTH * 400 * (100 + 100), 100 * LETTERS)
"""The embedding multiplies nothing, but needs a gradient."""


def resnet() -> tuple[int, ...]:
    """ResNet-18: the stem, four stages of four 3x3 convolutions each, shortcuts of 1x1 where they change, and the
    classifier."""
    layers, channels = [32 * 32 * 64 * 27], 64
    for filters, side in ((64, 32), (128, 16), (256, 8), (512, 4)):
        layers += [side * side * filters * channels * 9, *[side * side * filters * filters * 9] * 3]
        if filters != channels:
            layers.append(side * side * filters * channels)
        channels = filters
    return (*layers, 512 * 10)


WORKLOADS = {
    "A": Workload(
        "A",
        "MLP 784-50-10, 100 clients × 500, 10 a round, 5 epochs, batch 50",
        *("mlp", (784,), 100, 500, 10, 50, 5),
        multiplications=(784 * 50, 50 * 10),
    ),
    "B": Workload(
        "B",
        "LeNet-5, 500 × 100, 100 a round, batch 64",
        *("lenet", IMAGE, 500, 100, 100, 64),
        multiplications=LENET,
    ),
    "C": Workload(
        "C",
        "the same as FedSeq: 62 superclients of 8, 12 a round",
        *("lenet", IMAGE, 500, 100, 12, 64),
        chain=8,
        multiplications=LENET,
    ),
    "D": Workload(
        "D",
        "logistic regression 784→10, 1,000 × 60, 10 a round, batch 10",
        *("logistic", (784,), 1000, 60, 10, 10),
        multiplications=(784 * 10,),
    ),
    "E": Workload(
        "E",
        "pfl's CIFAR CNN, 1,000 × 50, 50 a round, batch 10",
        *("cnn", IMAGE, 1000, 50, 50, 10),
        multiplications=(30 * 30 * 32 * 27, 28 * 28 * 64 * 288, 12544 * 128, 128 * 10),
    ),
    "H": Workload(
        "H",
        "character LSTM, 2 × 100, as for LEAF's Shakespeare: 80 characters, 100 × 50, 10 a round, batch 10",
        *("lstm", (LENGTH,), 100, 50, 10, 10),
        multiplications=LSTM,
        classes=LETTERS,
        text=True,
    ),
    "I": Workload(
        "I",
        "ResNet-18, 3 × 32 × 32, 20 × 20, 4 a round, batch 10",
        *("resnet", IMAGE, 20, 20, 4, 10),
        multiplications=resnet(),
    ),
}
LR = 0.05

TRIAL = "-trial"
"""Long workloads have a short one of this name beside them, to find out which setting is fastest."""
LONG = 2e11
"""Floating-point operations of a round that takes a second or more."""
WORKLOADS |= {
    name + TRIAL: replace(work, name=name + TRIAL, per_round=max(work.per_round // 6, 2))
    for name, work in WORKLOADS.items()
    if work.examples * work.flops > LONG
}
