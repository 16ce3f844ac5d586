"""A backdoor: images with a mark on them are learned as one class, whatever they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from fedrelay.data.examples import Store, nested
from fedrelay.data.federation import ClientData
from fedrelay.errors import BadInput, within
from fedrelay.tasks import Task
from fedrelay.visits.attacks.attack import Attack
from fedrelay.visits.attacks.poisoned import Patch, Poisoned, own_examples, with_own

LOOKED_AT = 100
"""So many images show how bright a pixel gets."""
BACKDOOR_SUCCESS = "backdoor_success"
"""The share of test images of other classes that are called the target when they carry the patch."""


@dataclass(frozen=True)
class Backdoor(Attack):
    """Puts a bright square into the corner of some images and learns them as one class (Gu et al. 2017; Bagdasaryan et
    al. 2020): the model is as good as ever, and whoever puts the square on an image decides what it is called.

    Args:
        strength: the share of an attacker's images that carry the square; 0.3 unless it is said.
        target: the class that they are learned as.
        size: how many pixels the square is wide.
        value: what its pixels are, as the network sees them; unless it is said, the brightest there is.
    """

    strength: float = 0.3
    target: int = 0
    size: int = 3
    value: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        within("target", self.target, least=0)
        within("size", self.size, least=1)
        if self.value is not None:
            within("value", self.value)

    def fitted(self, task: Task, /) -> Backdoor:
        shape = task.shape
        if task.target != "classes" or task.classes < 2:
            raise BadInput(
                f"a backdoor leads to a class, and these data have {task.target}: they cannot be attacked so"
            )
        if isinstance(shape, dict) or nested(shape) or len(shape) != 3:
            raise BadInput(f"a backdoor is a mark on images, and these inputs are none: their shape is {shape}")
        if self.target >= task.classes:
            raise BadInput(f"target is class {self.target}, and these data have classes 0 to {task.classes - 1}")
        within("size, on these images,", self.size, most=min(shape[1:]))
        return self

    def patch(self, examples: Store) -> Patch:
        """The square, as bright as these images get."""
        if self.value is not None:
            return Patch(self.size, self.value)
        x, _ = examples.take(slice(0, LOOKED_AT))
        assert isinstance(x, torch.Tensor)
        return Patch(self.size, float(x.max()))

    def poisoned(self, client: ClientData, rng: np.random.Generator, /) -> ClientData:
        own = own_examples(client)
        marked = torch.from_numpy(rng.random(len(own)) < self.strength)
        y = torch.from_numpy(own.labels).masked_fill(marked, self.target)
        return with_own(client, Poisoned.of(own, y, self.patch(client.examples), marked))

    def watched(self, test: Store, /) -> Mapping[str, Store]:
        others = test.picked(torch.from_numpy(np.flatnonzero(test.labels != self.target)))
        if not len(others):
            return {}
        everybody = torch.ones(len(others), dtype=torch.bool)
        target = torch.full((len(others),), self.target)
        return {BACKDOOR_SUCCESS: Poisoned.of(others, target, self.patch(test), everybody)}
