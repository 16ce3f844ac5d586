"""The user's own code at every access: it draws from whichever generator it likes, and every one of them is seeded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from fedrelay import seeds
from fedrelay.errors import BadInput


@contextmanager
def seeded_access() -> Iterator[Callable[[int], None]]:
    """Inside, what is given seeds the global generators of torch, NumPy and Python; then they are as they were."""
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002  # the global one is meant
    try:
        yield _seed_all
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        random.setstate(before[2])


def _seed_all(number: int) -> None:
    torch.default_generator.manual_seed(number)
    np.random.seed(number & 0xFFFFFFFF)  # noqa: NPY002
    random.seed(number)


def seeds_for(rows: Sequence[int], rng: np.random.Generator | None) -> list[int]:
    """A seed for every one of these examples: from the visit's generator, which goes on as if nothing had been drawn;
    outside training always the same one for the same example."""
    if rng is None:
        return [seeds.derive(0, "access", row) >> 1 for row in rows]
    # A child, and not a number of its stream: the order of examples is the same with and without the user's draws.
    (child,) = rng.spawn(1)
    numbers: list[int] = child.integers(0, 2**63, len(rows)).tolist()
    return numbers


@dataclass(frozen=True)
class PerExample:
    """Any function of one example (torchvision's transforms, say) as the transform of a batch.

    Args:
        train: what an example becomes in training, at every access anew. It may draw from torch's, NumPy's or Python's
            global generator: they are seeded for every example from the run's seed.
        test: what it becomes otherwise; by default it stays as it is.

    Images are given as tensors (channels, height, width), and must come back in this order.
    """

    train: Callable[[torch.Tensor], torch.Tensor]
    test: Callable[[torch.Tensor], torch.Tensor] | None = None

    def __call__(self, x: torch.Tensor, rng: np.random.Generator | None, /) -> torch.Tensor:
        function = self.test if rng is None else self.train
        if function is None:
            return x
        if not isinstance(x, torch.Tensor):
            raise BadInput("PerExample takes one input; of several, a Dataset can transform each as it likes")
        image = x.ndim == 4
        found = []
        with seeded_access() as seed:
            for number, example in zip(seeds_for(range(len(x)), rng), x, strict=True):
                seed(number)
                made = function(example.permute(2, 0, 1) if image else example)
                if not isinstance(made, torch.Tensor):
                    raise BadInput(f"the transform {function} must return a tensor, found a {type(made).__name__}")
                found.append(made.permute(1, 2, 0) if image and made.ndim == 3 else made)
        return torch.stack(found)
